//! Pods as they are watched, and what an agent's pod shows about its agent.

use std::collections::BTreeMap;

use brupop_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::identity;

/// Annotation of mirror pods, which a kubelet runs from its own files.
pub const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The pod's condition Ready, if it is True.
pub fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    readiness(pod).filter(|condition| condition.status == "True")
}

fn readiness(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Is this one of the operator's own pods?
pub fn is_operator_pod(pod: &Pod, namespace: &str) -> bool {
    pod.metadata.namespace.as_deref() == Some(namespace)
        && pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::COMPONENT_LABEL))
}

/// An agent's pod: where it is, and whether it is Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPod {
    /// The node that it runs on.
    pub node: String,
    /// Since when it is Ready; `None` if it is not.
    pub ready_since: Option<Timestamp>,
    /// Since when it is not, if that is known.
    pub away_since: Option<Timestamp>,
}

impl AgentPod {
    /// Reads this pod; `None` if it is on no node yet.
    pub fn of(pod: &Pod) -> Option<Self> {
        let node = pod.spec.as_ref()?.node_name.clone()?;
        let leaving = pod.metadata.deletion_timestamp.is_some();
        let ready = ready_condition(pod).filter(|_| !leaving);
        let since = |time: &Time| time.0;
        let ready_since =
            ready.map(|ready| ready.last_transition_time.as_ref().map_or(Timestamp::MIN, since));
        let away = readiness(pod).filter(|_| ready.is_none() && !leaving);
        let away_since = away.and_then(|away| away.last_transition_time.as_ref().map(since));
        Some(Self { node, ready_since, away_since })
    }

    /// The agents, by name of their node's shadow. During a rollout of the `DaemonSet` a node may have two: one that is
    /// Ready wins.
    pub fn by_shadow<'p>(pods: impl Iterator<Item = &'p Pod>) -> BTreeMap<String, Self> {
        let mut agents = BTreeMap::<String, Self>::new();
        for agent in pods.filter_map(Self::of) {
            let known = agents.entry(names::shadow_name(&agent.node)).or_default();
            if known.ready_since.is_none() {
                *known = agent;
            }
        }
        agents
    }
}

/// Trims a pod to its identity, its owners and labels, its node, and its phase and readiness.
pub fn trim_pod(pod: &mut Pod) {
    let mut metadata = std::mem::take(&mut pod.metadata);
    pod.metadata = ObjectMeta {
        namespace: metadata.namespace.take(),
        deletion_timestamp: metadata.deletion_timestamp.take(),
        owner_references: metadata.owner_references.take(),
        labels: metadata.labels.take(),
        annotations: metadata.annotations.take().map(|mut annotations| {
            annotations.retain(|key, _| key == MIRROR_POD_ANNOTATION);
            annotations
        }),
        ..identity(metadata)
    };
    pod.spec = pod.spec.take().map(|spec| PodSpec { node_name: spec.node_name, ..PodSpec::default() });
    pod.status = pod.status.take().map(|status| {
        let mut conditions = status.conditions.unwrap_or_default();
        conditions.retain(|condition| condition.type_ == "Ready");
        PodStatus { phase: status.phase, conditions: Some(conditions), ..PodStatus::default() }
    });
}
