//! Pods and budgets as a drain needs them, and the pods of agents.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::item::{Metadata, Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::printable::printable;
use brupop_api::{Item, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::policy::v1::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde::de::Error as _;

use super::{CORDON_TAINT, ReadCondition, Readiness, bytes};

/// Annotation of mirror pods, which a kubelet runs from its own files.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotations by which a pod asks not to be disrupted, and their values.
const DO_NOT_DISRUPT: [(&str, &str); 2] = [
    (names::DO_NOT_DISRUPT_ANNOTATION, "true"),
    (names::SAFE_TO_EVICT_ANNOTATION, "false"),
];
/// Most bytes of labels. They are needed for the selectors of budgets; a pod of sane size has some hundred bytes.
const LABELS_MAX: usize = 8 * 1024;
const LABELS_COUNT_MAX: usize = 128;
/// Most bytes of `apiVersion`, `kind` and `name` of an owner, as they are told to people. Kubernetes takes any text.
const OWNER_MAX: usize = 318;

/// Longest selector that is kept, in bytes of its JSON. Anybody with a namespace can make one of more than a megabyte.
const SELECTOR_MAX: usize = 4 * 1024;
/// Most keys and values of a selector.
const REQUIREMENTS_MAX: usize = 64;
/// Reason that the disruption controller writes when it cannot compute a budget, for example because it does not know the
/// controller of one of its pods.
const SYNC_FAILED: &str = "SyncFailed";

/// A pod as it is watched, readable or not.
pub type PodItem = Item<Pod>;

/// The part of a pod that a drain needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Pod {
    /// The node that it runs on, or will.
    pub node: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The owner that would make it again.
    pub controller: Option<Controller>,
    /// A kubelet runs it from its own files.
    pub is_mirror: bool,
    /// It is terminating, and should be gone by then.
    pub gone_by: Option<Timestamp>,
    /// It may be scheduled to a cordoned node.
    pub tolerates_cordon: bool,
    /// It has run to its end.
    pub finished: bool,
    /// It has not begun to run.
    pub pending: bool,
    /// Its condition Ready, if it has one.
    pub readiness: Option<Readiness>,
    /// The annotation by which it asks not to be disrupted, if it does.
    pub do_not_disrupt: Option<&'static str>,
    /// It says that it may be evicted, whether a controller makes it again or not.
    pub safe_to_evict: bool,
    /// The time that it has to terminate, in seconds.
    pub grace: i64,
}

/// The owner that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

impl Pod {
    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }

    /// Whether budgets hold up its eviction. They do not hold up that of a pod that has ended, or has not begun.
    pub(crate) fn is_budgeted(&self) -> bool {
        !self.finished && !self.pending
    }
}

#[derive(Deserialize)]
struct PodShape {
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    #[serde(default, deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    owner_references: Vec<OwnerReference>,
    #[serde(default, deserialize_with = "lenient_time")]
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    tolerations: Vec<Toleration>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<ReadCondition>,
}

/// Whether it tolerates the taint of a cordoned node, which has no value.
fn tolerates_cordon(toleration: &Toleration) -> bool {
    let is_among = |field: &Option<String>, words: &[&str]| {
        words.contains(&field.as_deref().unwrap_or_default())
    };
    let Toleration { key, value, .. } = toleration;
    let matches = if is_among(&toleration.operator, &["Exists"]) {
        is_among(key, &["", CORDON_TAINT])
    } else {
        is_among(key, &[CORDON_TAINT]) && is_among(value, &[""])
    };
    matches && is_among(&toleration.effect, &["", "NoSchedule"])
}

fn controller(owner: OwnerReference) -> Controller {
    let [api_version, kind, name] = [owner.api_version, owner.kind, owner.name]
        .map(|text| printable(&text, OWNER_MAX).into_owned());
    Controller {
        api_version,
        kind,
        name,
    }
}

impl Readable for Pod {
    type Kind = k8s_openapi::api::core::v1::Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let PodShape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let PodMetadata {
            labels,
            annotations,
            owner_references,
            deletion_timestamp,
        } = metadata;
        if labels.len() > LABELS_COUNT_MAX || bytes(&labels) > LABELS_MAX {
            return Err(Unreadable::TooLong("labels"));
        }
        let mut owners = owner_references.into_iter();
        let controlling = owners.find(|owner| owner.controller == Some(true));
        let asks = DO_NOT_DISRUPT
            .iter()
            .find(|(key, value)| annotations.get(*key).is_some_and(|it| it == value));
        let safe_to_evict = annotations.get(names::SAFE_TO_EVICT_ANNOTATION);
        Ok(Self {
            safe_to_evict: safe_to_evict.is_some_and(|it| it == "true"),
            grace: spec.termination_grace_period_seconds.unwrap_or_default(),
            node: spec.node_name,
            labels,
            controller: controlling.map(controller),
            is_mirror: annotations.contains_key(MIRROR_POD_ANNOTATION),
            do_not_disrupt: asks.map(|(key, _)| *key),
            gone_by: deletion_timestamp,
            tolerates_cordon: spec.tolerations.iter().any(tolerates_cordon),
            finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            pending: status.phase.as_deref() == Some("Pending"),
            readiness: Readiness::among(&status.conditions),
        })
    }
}

/// Whether this is one of the operator's own pods.
pub fn is_operator_pod(pod: &PodItem, namespace: &str) -> bool {
    pod.namespace() == namespace
        && pod
            .ok()
            .is_some_and(|pod| pod.labels.contains_key(names::COMPONENT_LABEL))
}

/// An agent's pod: where it is, and whether it is Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    /// The node that it runs on.
    pub node: String,
    /// Its condition Ready; `None` also while it is terminating.
    pub readiness: Option<Readiness>,
}

impl AgentPod {
    /// Reads this pod; `None` if it is on no node yet, or cannot be read.
    pub fn of(pod: &PodItem) -> Option<Self> {
        let pod = pod.ok()?;
        Some(Self {
            node: pod.node.clone()?,
            readiness: pod.readiness.filter(|_| pod.gone_by.is_none()),
        })
    }

    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }
}

/// The part of a budget that a drain needs.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Budget {
    /// The pods that it covers; `None` = no pods.
    pub selector: Option<Selector>,
    /// Number of keys and values that the selector has.
    pub requirements: usize,
    /// Whether pods that are not Ready are evicted whatever it allows.
    pub spares_ready_only: bool,
    /// Whether as many pods are healthy as must be, and any must be. Then pods that are not Ready are evicted, too.
    pub enough_healthy: bool,
    /// Number of disruptions that it allows now.
    pub allowed: i32,
    /// The change that would make it allow one, as a part of a sentence.
    pub remedy: &'static str,
    /// Whether its controller has seen its latest version.
    pub observed: bool,
}

#[derive(Deserialize)]
struct BudgetShape {
    metadata: Metadata,
    #[serde(default)]
    spec: PodDisruptionBudgetSpec,
    #[serde(default)]
    status: PodDisruptionBudgetStatus,
}

/// Which pods a budget covers, and whether it lets them go, is as in the API server's eviction.
impl Budget {
    pub(crate) fn covers(&self, pod: &Pod) -> bool {
        let selector = self.selector.as_ref();
        selector.is_some_and(|selector| selector.matches(&pod.labels))
    }

    /// Whether it allows no disruption now.
    pub(crate) fn is_shut(&self) -> bool {
        self.allowed <= 0 && self.observed
    }

    /// Whether it lets this pod, which it covers, go whatever it allows now, because the pod is not Ready.
    pub(crate) fn spares(&self, pod: &Pod) -> bool {
        !pod.is_ready() && (self.spares_ready_only || self.enough_healthy)
    }

    /// Whether it covers this pod, allows no disruption now, and does not let the pod go all the same. None is allowed, either,
    /// until its controller has seen its latest version.
    pub(crate) fn holds(&self, pod: &Pod) -> bool {
        let is_shut = self.is_shut() || !self.observed;
        pod.is_budgeted() && is_shut && self.covers(pod) && !self.spares(pod)
    }
}

/// Number of disruptions that each budget (namespace, name) allows.
pub type Allowed = BTreeMap<(String, String), i32>;

/// Updates what each budget allowed when it was last looked at. Returns the namespaces in which one allows more than before, or was
/// deleted.
pub fn relaxed<'b>(
    before: &mut Allowed,
    budgets: impl Iterator<Item = &'b Item<Budget>>,
) -> BTreeSet<String> {
    let key = |it: &Item<Budget>| (it.namespace().to_owned(), it.name().to_owned());
    let now: Allowed = budgets.map(|it| (key(it), allowed(it))).collect();
    let before = std::mem::replace(before, now.clone()).into_iter();
    let more = before.filter(|(key, before)| now.get(key).is_none_or(|now| now > before));
    more.map(|((namespace, _), _)| namespace).collect()
}

/// Whether this budget changed in a way that matters to a drain.
pub fn matters(old: &Item<Budget>, new: &Item<Budget>) -> bool {
    let shape = |item: &Item<Budget>| {
        item.body.clone().map(|budget| Budget {
            allowed: 0,
            ..budget
        })
    };
    allowed(old) < allowed(new) || shape(old) != shape(new)
}

/// Returns how many disruptions this budget allows now.
fn allowed(budget: &Item<Budget>) -> i32 {
    budget.ok().map_or(0, |budget| budget.allowed)
}

impl Readable for Budget {
    type Kind = PodDisruptionBudget;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let BudgetShape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let remedy = remedy(&spec, &status);
        let selector = spec.selector.map(read_selector).transpose()?;
        let (selector, requirements) = selector.unzip();
        Ok(Self {
            selector,
            requirements: requirements.unwrap_or(0),
            spares_ready_only: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            enough_healthy: status.desired_healthy > 0
                && status.current_healthy >= status.desired_healthy,
            allowed: status.disruptions_allowed,
            remedy,
            observed: status
                .observed_generation
                .is_none_or(|seen| Some(seen) == ObjectMeta::from(metadata).generation),
        })
    }
}

/// The change that would make a closed budget allow a disruption, as a part of a sentence.
fn remedy(spec: &PodDisruptionBudgetSpec, status: &PodDisruptionBudgetStatus) -> &'static str {
    let percent = |percent: &str| IntOrString::String(percent.to_owned());
    let most = spec.max_unavailable.as_ref();
    let zero = most.is_some_and(|most| [IntOrString::Int(0), percent("0%")].contains(most));
    let mut conditions = status.conditions.iter().flatten();
    if conditions.any(|condition| condition.reason == SYNC_FAILED) {
        "Kubernetes cannot compute it (SyncFailed): kubectl describe pdb says why"
    } else if zero || spec.min_available == Some(percent("100%")) {
        // No number of pods is enough.
        "it never does, however many pods there are, so change the budget"
    } else if status.expected_pods > 0 && status.desired_healthy >= status.expected_pods {
        "it wants all of its pods healthy, so add a pod or change the budget"
    } else {
        "it waits for more of its pods to be healthy"
    }
}

fn read_selector(selector: LabelSelector) -> Result<(Selector, usize), Unreadable> {
    let length = serde_json::to_string(&selector)?.len();
    let expressions = selector.match_expressions.iter().flatten();
    let of_expressions: usize = expressions
        .map(|expression| 1 + expression.values.as_ref().map_or(0, Vec::len))
        .sum();
    let requirements = selector.match_labels.as_ref().map_or(0, BTreeMap::len) + of_expressions;
    if length > SELECTOR_MAX || requirements > REQUIREMENTS_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    match Selector::try_from(selector) {
        Ok(selector) => Ok((selector, requirements)),
        Err(error) => Err(serde_json::Error::custom(error).into()),
    }
}
