//! An effect as a call that owns what it needs, and the Event about it.

use brupop_api::write::Misfit;
use brupop_api::{Object, Write, names};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::Preconditions;
use serde_json::{Value, json};

use brupop_core::cluster::Cluster;
use brupop_core::decide::{Decision, Effect, Milestone, new_shadow};
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
            .map(|node| node.object_ref(&()));
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
            &cluster.entries.get(name)?.shadow.as_ref()?.metadata
        }
        Object::PoolStatus(name) => &cluster.pools.get(name)?.item.metadata,
        Object::Node(name) => cluster.node(&names::shadow_name(name))?.meta(),
    })
}

/// The call for a write to the ledger, and the Event to publish once it is made.
pub(super) fn ledger(cluster: &Cluster, write: &Write<'_>, event: Option<EventText>) -> Call {
    let nothing = Value::Null;
    let quoted = cluster.fleet().map_or(&nothing, |fleet| &fleet.quoted);
    let reason = event.as_ref().map_or("", |event| event.reason);
    let context = Context {
        reason,
        event,
        objects: of_fleet(cluster),
        ..Context::default()
    };
    Call::about(
        cluster,
        Object::Ledger,
        write.patch(quoted).map(Operation::Patch),
        context,
    )
}

fn of_fleet(cluster: &Cluster) -> Vec<ObjectReference> {
    cluster
        .fleet()
        .map(|fleet| fleet.object.object_ref(&()))
        .into_iter()
        .collect()
}

/// The call for what was decided for one node; `None` for evictions, which are many, and for what was not read.
pub(super) fn of(
    cluster: &Cluster,
    view: &NodeView<'_>,
    decision: &Decision<'_>,
    fleet: &FleetFacts<'_>,
) -> Option<Call> {
    let effect = decision.effect.as_ref()?;
    let object = match effect {
        Effect::Write(write) => write.object,
        _ => Object::ShadowSpec(view.shadow_name),
    };
    let operation = operation(cluster, view, effect, fleet).transpose()?;
    let event = decision
        .milestone
        .and_then(|milestone| EventText::of_milestone(view, milestone));
    let mut context = Context::of(cluster, view, decision.reason.as_str(), event);
    if decision.milestone == Some(Milestone::Removed) {
        // Nobody looks at the Events of objects that are gone.
        context.objects = of_fleet(cluster);
    }
    let ended = phases::ended_by(cluster, fleet, view, decision).into_iter();
    context.ended = ended
        .chain(phases::without_workloads(fleet, view, decision))
        .collect();
    Some(Call::about(cluster, object.owned(), operation, context))
}

/// What is asked of the API server for this effect; nothing if it is asked elsewhere, or what it is about was not read.
fn operation(
    cluster: &Cluster,
    view: &NodeView<'_>,
    effect: &Effect<'_>,
    fleet: &FleetFacts<'_>,
) -> Result<Option<Operation>, Misfit> {
    let shadow = view.shadow_name;
    Ok(match effect {
        Effect::Write(write) => patch(cluster, shadow, write)?.map(Operation::Patch),
        Effect::Grant {
            confirm: write,
            grant,
        } => confirm(cluster, view, write)?
            .zip(patch(cluster, shadow, grant)?)
            .map(|(confirm, patch)| Operation::Grant(Box::new(confirm), patch)),
        Effect::CreateShadow { attempt } => view.node.map(|node| {
            let shadow = new_shadow(node.name, node.uid, *attempt, fleet.term, fleet.now);
            Operation::Create(json!(shadow))
        }),
        Effect::DeleteShadow { uid } => {
            let read = cluster
                .shadow(shadow)
                .and_then(|shadow| shadow.metadata.resource_version.clone());
            let delete = |version| {
                let uid = Some((*uid).to_owned());
                Operation::Delete(Preconditions {
                    uid,
                    resource_version: Some(version),
                })
            };
            read.map(delete)
        }
        Effect::Evict | Effect::Delete => None,
    })
}

/// The patch for a write to a node's object, as it was read.
fn patch(cluster: &Cluster, name: &str, write: &Write<'_>) -> Result<Option<JsonPatch>, Misfit> {
    match write.object {
        // The type knows every field that a patch quotes, and absent is as good as null to the API server.
        Object::ShadowSpec(_) => cluster
            .shadow(name)
            .map(|shadow| write.patch(&json!(shadow)))
            .transpose(),
        Object::Node(_) => cluster
            .node(name)
            .map(|node| write.patch(&node.quoted()))
            .transpose(),
        // The reconciler writes no status by conditional patches, and the ledger belongs to no node.
        _ => Ok(None),
    }
}

/// What confirms that the node is drained: the write of the Node, and the marker as it was read.
fn confirm(
    cluster: &Cluster,
    view: &NodeView<'_>,
    write: &Write<'_>,
) -> Result<Option<Confirm>, Misfit> {
    let patch = patch(cluster, view.shadow_name, write)?;
    Ok(patch.zip(view.node).map(|(patch, node)| Confirm {
        node: node.name.to_owned(),
        patch,
        marker: node.marker.cloned(),
        overlooked: view.pods.overlooked,
        left: view.pods.left.to_vec(),
    }))
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
        objects: vec![node.object_ref(&())],
        ..Context::default()
    };
    let patch = write.patch(&node.quoted()).map(Operation::Patch);
    let call = Call::about(cluster, write.object.owned(), patch, context);
    Some(Call {
        purpose: Purpose::OptIn,
        ..call
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use brupop_api::facts::ShadowFacts;
    use brupop_api::{BottlerocketShadow, Field};
    use brupop_core::decide::Reason;
    use brupop_core::facts::NodeFacts;

    const NOW: &str = "2026-11-21T04:00:00Z";

    /// What is asked for an effect on the node, with this shadow or none.
    fn call(shadow: Option<Value>, effect: Effect<'_>) -> Option<Result<Operation, Misfit>> {
        let mut cluster = Cluster::default();
        if let Some(shadow) = shadow {
            cluster.entry("brs-n").shadow = Some(Arc::new(serde_json::from_value(shadow).unwrap()));
        }
        let view = NodeView {
            node: Some(NodeFacts::EXAMPLE),
            shadow: cluster.shadow("brs-n").and_then(ShadowFacts::of),
            ..NodeView::nothing("brs-n")
        };
        let fleet = FleetFacts {
            now: NOW,
            term: 7,
            ledger_term: Some(7),
            ..FleetFacts::EXAMPLE
        };
        let decision = Decision {
            effect: Some(effect),
            reason: Reason::NotLabelled,
            milestone: None,
        };
        of(&cluster, &view, &decision, &fleet).map(|call| call.operation)
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
        let delete = || Effect::DeleteShadow { uid: "u" };
        let Some(Ok(Operation::Delete(preconditions))) =
            call(Some(shadow(&json!({"resourceVersion": "41"}))), delete())
        else {
            panic!("it is deleted")
        };
        assert_eq!(
            serde_json::to_value(preconditions).unwrap(),
            json!({"uid": "u", "resourceVersion": "41"})
        );
        assert!(
            call(Some(shadow(&json!({}))), delete()).is_none(),
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
        let fits = call(shadow.clone(), Effect::Write(write(Field::SpecAttempt)));
        assert!(matches!(fits, Some(Ok(Operation::Patch(_)))), "{fits:?}");
        let mistaken = call(shadow, Effect::Write(write(Field::StatusAttempt)));
        assert!(matches!(mistaken, Some(Err(_))), "{mistaken:?}");
    }

    #[test]
    fn a_new_shadow_says_since_when_it_waits() {
        let Some(Ok(Operation::Create(shadow))) =
            call(None, Effect::CreateShadow { attempt: Some(3) })
        else {
            panic!("it is created")
        };
        let shadow: BottlerocketShadow = serde_json::from_value(shadow).unwrap();
        let spec = &shadow.spec;
        assert_eq!((spec.attempt, spec.leader_term), (Some(3), Some(7)));
        assert_eq!(spec.state_transition_timestamp.as_deref(), Some(NOW));
    }
}
