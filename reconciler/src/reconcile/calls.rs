//! An effect as a call that owns what it needs, and the Event about it.

use std::borrow::Cow;

use brupop_api::write::Misfit;
use brupop_api::{Object, Write, names};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::Preconditions;
use serde_json::{Value, json};

use brupop_core::cluster::Cluster;
use brupop_core::decide::{Deletion, Effect, Reason, Step, new_shadow};
use brupop_core::facts::{FleetFacts, NodeView, UnmanagedNode};
use brupop_core::phases::{self, Ended};
use brupop_core::status::EventText;

use crate::operation::{Confirm, Operation, resource_version};

/// One call of the API server, with what is needed when its reply comes. While a call about an object is under way, or what it
/// wrote has not come back through the watch, no other call about it is made.
#[derive(Debug)]
pub(super) struct Call {
    /// What is written.
    pub(super) object: Object<String>,
    /// What is asked; or why what was decided does not fit its object. That is a mistake of ours, and fails.
    pub(super) operation: Result<Operation, Misfit>,
    /// The `resourceVersion` of the object that it was decided on.
    pub(super) seen: Option<u64>,
    pub(super) purpose: Purpose,
    pub(super) context: Context,
}

/// What a call is for, if its reply means more than that the object was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To write this leader's term: this process leads once it succeeds.
    BeginTerm(u64),
    /// To label a node.
    OptIn,
    /// Anything else.
    Other,
}

/// The node of a call, for logs, and the Event to publish once the call succeeds.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub(super) node: String,
    pub(super) version: String,
    pub(super) state: &'static str,
    pub(super) reason: &'static str,
    pub(super) event: Option<EventText>,
    /// The objects on which the Event is published.
    pub(super) objects: Vec<ObjectReference>,
    /// What has ended once the call succeeds.
    pub(super) ended: Vec<Ended>,
}

impl Context {
    /// The context of a call for one node.
    pub(super) fn of(
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &'static str,
        event: Option<EventText>,
    ) -> Self {
        let name = view.shadow_name;
        let shadow = cluster.shadow(name);
        let on_node = shadow.is_none() || event.as_ref().is_some_and(EventText::concerns_node);
        let node = cluster
            .node(name)
            .filter(|_| on_node)
            .map(|node| node.object_ref());
        let facts = view.shadow;
        Self {
            node: names::node_of_shadow(name).unwrap_or(name).to_owned(),
            version: facts
                .and_then(|shadow| shadow.spec.version)
                .unwrap_or_default()
                .to_owned(),
            state: facts.map_or("", |shadow| shadow.spec.state.as_str()),
            reason,
            event,
            objects: node
                .into_iter()
                .chain(shadow.map(|shadow| shadow.object_ref(&())))
                .collect(),
            ended: vec![],
        }
    }
}

impl Call {
    /// A call about this object, as it is known.
    pub(super) fn about(
        cluster: &Cluster,
        object: Object<String>,
        operation: Result<Operation, Misfit>,
        context: Context,
    ) -> Self {
        Self {
            seen: version_of(&object, cluster),
            object,
            operation,
            purpose: Purpose::Other,
            context,
        }
    }
}

/// The `resourceVersion` in which the object is known.
pub(super) fn version_of(object: &Object<String>, cluster: &Cluster) -> Option<u64> {
    resource_version(match object {
        Object::Ledger | Object::FleetStatus => &cluster.fleet()?.object.metadata,
        Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
            &cluster.records.get(name)?.shadow.as_ref()?.metadata
        }
        Object::PoolStatus(name) => &cluster.pools.get(name)?.item.metadata,
        Object::Node(name) => {
            let record = cluster.records.get(&names::shadow_name(name))?;
            return record.node.as_ref().and(record.node_version);
        }
    })
}

/// The call for a write to the ledger, and the Event to publish once it is made.
pub(super) fn ledger(
    cluster: &Cluster,
    write: &Write<'_>,
    event: Option<EventText>,
) -> Option<Call> {
    let reason = event.as_ref().map_or("", |event| event.reason);
    let context = Context {
        reason,
        event,
        objects: of_fleet(cluster),
        ..Context::default()
    };
    let patch = patch(cluster, write)?.map(Operation::Patch);
    Some(Call::about(cluster, Object::Ledger, patch, context))
}

fn of_fleet(cluster: &Cluster) -> Vec<ObjectReference> {
    cluster
        .fleet()
        .map(|fleet| fleet.object.object_ref(&()))
        .into_iter()
        .collect()
}

/// The call for a step of one node; `None` for evictions, which are many, and for what was not read.
pub(super) fn of(
    cluster: &Cluster,
    view: &NodeView<'_>,
    step: Step<'_>,
    reason: &Reason<'_>,
    fleet: &FleetFacts<'_>,
) -> Option<Call> {
    let effect = step.effect(fleet, view)?;
    let object = match &effect {
        Effect::Write(write) => write.object,
        _ => Object::ShadowSpec(view.shadow_name),
    };
    let operation = operation(cluster, view, &effect, fleet)?;
    let event = EventText::of_step(view, step);
    let mut context = Context::of(cluster, view, reason.as_str(), event);
    if step == Step::DeleteShadow(Deletion::UpdatedNodeGone) {
        // Nobody looks at the Events of objects that are gone.
        context.objects = of_fleet(cluster);
    }
    let ended = phases::ended_by(cluster, fleet, view, step).into_iter();
    context.ended = ended
        .chain(phases::without_workloads(fleet, view, step))
        .collect();
    Some(Call::about(cluster, object.owned(), operation, context))
}

/// Returns what is asked of the API server for this effect; `None` if it is asked elsewhere, or its object was not read.
fn operation(
    cluster: &Cluster,
    view: &NodeView<'_>,
    effect: &Effect<'_>,
    fleet: &FleetFacts<'_>,
) -> Option<Result<Operation, Misfit>> {
    Some(match effect {
        Effect::Write(write) => patch(cluster, write)?.map(Operation::Patch),
        Effect::Grant { confirm, grant } => {
            let (confirm, grant) = (patch(cluster, confirm)?, patch(cluster, grant)?);
            let node = view.node?;
            confirm.and_then(|patch| {
                let confirm = Confirm {
                    node: node.name().to_owned(),
                    patch,
                    marker: node.marker().cloned(),
                    overlooked: view.pods.overlooked,
                    left: view.pods.left.to_vec(),
                };
                Ok(Operation::Grant(Box::new(confirm), grant?))
            })
        }
        Effect::CreateShadow { attempt } => {
            let node = view.node?;
            let shadow = new_shadow(
                node.name(),
                node.uid.as_str(),
                *attempt,
                fleet.term,
                fleet.now,
            );
            Ok(Operation::Create(json!(shadow)))
        }
        Effect::DeleteShadow { uid } => {
            let shadow = cluster.shadow(view.shadow_name)?;
            Ok(Operation::Delete(Preconditions {
                uid: Some((*uid).to_owned()),
                resource_version: Some(shadow.metadata.resource_version.clone()?),
            }))
        }
        Effect::Evict | Effect::Delete => return None,
    })
}

/// Returns the patch for a write to an object, as it was read; `None` if it was not read.
fn patch(cluster: &Cluster, write: &Write<'_>) -> Option<Result<JsonPatch, Misfit>> {
    static NOTHING: Value = Value::Null;
    let read = match write.object {
        // The type knows every field that a patch quotes, and absent is as good as null to the API server.
        Object::ShadowSpec(name) => Cow::Owned(json!(cluster.shadow(name)?)),
        Object::Node(name) => Cow::Owned(cluster.node(&names::shadow_name(name))?.quoted()),
        Object::Ledger => Cow::Borrowed(cluster.fleet().map_or(&NOTHING, |fleet| &fleet.quoted)),
        // The reconciler writes no other status by conditional patches.
        _ => return None,
    };
    Some(write.patch(&read))
}

/// The call that labels this node.
pub(super) fn opt_in(
    cluster: &Cluster,
    unmanaged: &UnmanagedNode<'_>,
    write: &Write<'_>,
) -> Option<Call> {
    let node = cluster.node(unmanaged.shadow_name)?;
    let event = EventText::of_opt_in(unmanaged.name);
    let context = Context {
        node: unmanaged.name.to_owned(),
        reason: event.reason,
        event: Some(event),
        objects: vec![node.object_ref()],
        ..Context::default()
    };
    let patch = patch(cluster, write)?.map(Operation::Patch);
    let mut call = Call::about(cluster, write.object.owned(), patch, context);
    call.purpose = Purpose::OptIn;
    Some(call)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use brupop_api::facts::ShadowFacts;
    use brupop_api::{BottlerocketShadow, Field};
    use brupop_core::objects::NodeFacts;

    const NOW: &str = "2026-11-21T04:00:00Z";

    /// What is asked for an effect on the node, with this shadow or none.
    fn call(shadow: Option<Value>, effect: &Effect<'_>) -> Option<Result<Operation, Misfit>> {
        let mut cluster = Cluster::default();
        if let Some(shadow) = shadow {
            cluster.record("brs-n").shadow =
                Some(Arc::new(serde_json::from_value(shadow).unwrap()));
        }
        let node = NodeFacts::example();
        let view = NodeView {
            node: Some(&node),
            shadow: cluster.shadow("brs-n").and_then(ShadowFacts::of),
            ..NodeView::nothing("brs-n")
        };
        let fleet = FleetFacts {
            now: NOW,
            term: 7,
            ledger_term: Some(7),
            ..FleetFacts::EXAMPLE
        };
        operation(&cluster, &view, effect, &fleet)
    }

    fn shadow(metadata: &Value) -> Value {
        let mut shadow = json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"},
        });
        json_patch::merge(&mut shadow["metadata"], metadata);
        shadow
    }

    #[test]
    fn a_shadow_is_deleted_only_as_read() {
        let delete = Effect::DeleteShadow { uid: "u" };
        let Some(Ok(Operation::Delete(preconditions))) =
            call(Some(shadow(&json!({"resourceVersion": "41"}))), &delete)
        else {
            panic!("it is deleted")
        };
        assert_eq!(
            serde_json::to_value(preconditions).unwrap(),
            json!({"uid": "u", "resourceVersion": "41"})
        );
        assert!(
            call(Some(shadow(&json!({}))), &delete).is_none(),
            "not without its version"
        );
    }

    #[test]
    fn a_mistake_of_ours_is_no_request() {
        let shadow = Some(shadow(&json!({})));
        let write = |field| Write {
            object: Object::ShadowSpec("brs-n"),
            tests: vec![],
            sets: vec![(field, brupop_api::Value::Number(1))],
        };
        let fits = call(shadow.clone(), &Effect::Write(write(Field::SpecAttempt)));
        assert!(matches!(fits, Some(Ok(Operation::Patch(_)))), "{fits:?}");
        let mistaken = call(shadow, &Effect::Write(write(Field::StatusAttempt)));
        assert!(matches!(mistaken, Some(Err(_))), "{mistaken:?}");
    }

    #[test]
    fn a_new_shadow_says_since_when_it_waits() {
        let Some(Ok(Operation::Create(shadow))) =
            call(None, &Effect::CreateShadow { attempt: Some(3) })
        else {
            panic!("it is created")
        };
        let shadow: BottlerocketShadow = serde_json::from_value(shadow).unwrap();
        let spec = &shadow.spec;
        assert_eq!((spec.attempt, spec.leader_term), (Some(3), Some(7)));
        assert_eq!(spec.state_transition_timestamp.as_deref(), Some(NOW));
    }
}
