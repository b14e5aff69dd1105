//! An effect as a request that owns what it needs, and the Event about it.

use brupop_api::write::Misfit;
use brupop_api::{Object, Write};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::Preconditions;
use serde_json::{Value, json};

use brupop_core::cluster::Cluster;
use brupop_core::decide::{Decision, Effect, Milestone, new_shadow};
use brupop_core::facts::{FleetFacts, NodeView, UnmanagedNode};
use brupop_core::outcome::{self, Ended};
use brupop_core::status::EventText;

use crate::operation::{Confirm, Operation, resource_version};

/// Which object a request writes. While a request of this key is under way, or what it wrote has not come back through the
/// watch, no other request of this key is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The ledger.
    Ledger,
    /// The shadow of this name: itself.
    Shadow(String),
    /// The Node of the shadow of this name.
    Node(String),
    /// The shadow of this name: its conditions.
    Condition(String),
    /// The fleet: limit, counts, conditions.
    FleetStatus,
    /// The pool of this name: its status.
    PoolStatus(String),
}

/// One request to the API server, with what is needed when its answer comes.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// The `resourceVersion` of the object that it was decided on.
    pub(super) seen: Option<u64>,
    /// The leader's term that begins once this request succeeds.
    pub(super) begins_term: Option<u64>,
    pub(super) context: Context,
}

/// The node of a request, for logs, and the Event to publish once the request succeeds.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub(super) node: String,
    pub(super) version: String,
    pub(super) state: &'static str,
    pub(super) reason: &'static str,
    pub(super) event: Option<EventText>,
    /// The objects on which the Event is published.
    pub(super) objects: Vec<ObjectReference>,
    /// What has ended once the request succeeds.
    pub(super) ended: Vec<Ended>,
}

impl Context {
    /// The context of a request for one node.
    pub(super) fn of(
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &'static str,
        event: Option<EventText>,
    ) -> Self {
        let name = view.shadow_name;
        let shadow = cluster.shadow(name);
        let on_node = shadow.is_none() || event.as_ref().is_some_and(EventText::concerns_node);
        let node = cluster.node(name).filter(|_| on_node).map(|node| node.object_ref(&()));
        let facts = view.shadow;
        Self {
            node: brupop_api::names::node_of_shadow(name).unwrap_or(name).to_owned(),
            version: facts.and_then(|shadow| shadow.spec.version).unwrap_or_default().to_owned(),
            state: facts.map_or("", |shadow| shadow.spec.state.as_str()),
            reason,
            event,
            objects: node.into_iter().chain(shadow.map(|shadow| shadow.object_ref(&()))).collect(),
            ended: vec![],
        }
    }
}

impl Key {
    /// The `resourceVersion` in which the object of this key is known.
    pub(super) fn version_in(&self, cluster: &Cluster) -> Option<u64> {
        match self {
            Self::Ledger | Self::FleetStatus => resource_version(&cluster.ledger()?.fleet.metadata),
            Self::Shadow(name) | Self::Condition(name) => {
                resource_version(&cluster.entries.get(name)?.shadow.as_ref()?.metadata)
            }
            Self::PoolStatus(name) => resource_version(&cluster.pools.get(name)?.item.metadata),
            Self::Node(name) => resource_version(cluster.node(name)?.meta()),
        }
    }
}

/// The request for a write to the ledger, and the Event to publish once it is made.
pub(super) fn ledger(
    cluster: &Cluster,
    write: &Write<'_>,
    begins_term: Option<u64>,
    event: Option<EventText>,
) -> Request {
    let nothing = Value::Null;
    let quoted = cluster.ledger().map_or(&nothing, |ledger| &ledger.quoted);
    Request {
        key: Key::Ledger,
        operation: write.patch(quoted).map_or_else(Operation::Misfit, Operation::PatchLedger),
        seen: Key::Ledger.version_in(cluster),
        begins_term,
        context: Context {
            reason: event.as_ref().map_or("", |event| event.reason),
            event,
            objects: of_fleet(cluster),
            ..Context::default()
        },
    }
}

fn of_fleet(cluster: &Cluster) -> Vec<ObjectReference> {
    cluster.ledger().map(|ledger| ledger.fleet.object_ref(&())).into_iter().collect()
}

/// The request for what was decided for one node; `None` for evictions, which are many.
pub(super) fn of(
    cluster: &Cluster,
    view: &NodeView<'_>,
    decision: &Decision<'_>,
    fleet: &FleetFacts<'_>,
) -> Option<Request> {
    let name = view.shadow_name.to_owned();
    let effect = decision.effect.as_ref()?;
    let key = match effect {
        Effect::Write(Write { object: Object::Node(_), .. })
        | Effect::Correct(Write { object: Object::Node(_), .. }) => Key::Node(name),
        _ => Key::Shadow(name),
    };
    let operation =
        operation(cluster, view, effect, fleet).unwrap_or_else(|misfit| Some(Operation::Misfit(misfit)))?;
    let event = decision.milestone.and_then(|milestone| EventText::of_milestone(view, milestone));
    let mut context = Context::of(cluster, view, decision.reason.as_str(), event);
    if decision.milestone == Some(Milestone::Removed) {
        // Nobody looks at the Events of objects that are gone.
        context.objects = of_fleet(cluster);
    }
    context.ended = outcome::ended_by(cluster, fleet, view, decision).into_iter().collect();
    Some(Request { seen: key.version_in(cluster), key, operation, begins_term: None, context })
}

/// What is asked of the API server for this effect; nothing if it is asked elsewhere, or what it is about was not read.
fn operation(
    cluster: &Cluster,
    view: &NodeView<'_>,
    effect: &Effect<'_>,
    fleet: &FleetFacts<'_>,
) -> Result<Option<Operation>, Misfit> {
    let shadow = view.shadow_name;
    let name = || shadow.to_owned();
    Ok(match effect {
        Effect::Write(write) | Effect::Correct(write) => {
            match (&write.object, patch(cluster, shadow, write)?) {
                (Object::ShadowSpec(_), Some(patch)) => Some(Operation::PatchShadow { name: name(), patch }),
                (Object::Node(node), Some(patch)) => {
                    Some(Operation::PatchNode { name: (*node).to_owned(), patch })
                }
                _ => None,
            }
        }
        Effect::Grant { confirm: write, grant } => confirm(cluster, view, write)?
            .zip(patch(cluster, shadow, grant)?)
            .map(|(confirm, patch)| Operation::Grant { confirm: Box::new(confirm), name: name(), patch }),
        Effect::CreateShadow { attempt } => view.node.map(|node| {
            let shadow = new_shadow(node.name, node.uid, *attempt, fleet.term, fleet.now);
            Operation::CreateShadow(Box::new(shadow))
        }),
        Effect::DeleteShadow { uid } => {
            let read = cluster.shadow(shadow).and_then(|shadow| shadow.metadata.resource_version.clone());
            read.map(|version| {
                let preconditions =
                    Preconditions { uid: Some((*uid).to_owned()), resource_version: Some(version) };
                Operation::DeleteShadow { name: name(), preconditions }
            })
        }
        Effect::Evict | Effect::Delete => None,
    })
}

/// The patch for a write to a node's object, as it was read.
fn patch(cluster: &Cluster, name: &str, write: &Write<'_>) -> Result<Option<JsonPatch>, Misfit> {
    match write.object {
        // The type knows every field that a patch quotes, and absent is as good as null to the API server.
        Object::ShadowSpec(_) => cluster.shadow(name).map(|shadow| write.patch(&json!(shadow))).transpose(),
        Object::Node(_) => cluster.node(name).map(|node| write.patch(&node.quoted())).transpose(),
        // The reconciler writes no status of a shadow here, and the ledger belongs to no node.
        Object::ShadowStatus(_) | Object::Fleet => Ok(None),
    }
}

/// What confirms that the node is drained: the write of the Node, and the marker as it was read.
fn confirm(cluster: &Cluster, view: &NodeView<'_>, write: &Write<'_>) -> Result<Option<Confirm>, Misfit> {
    let patch = patch(cluster, view.shadow_name, write)?;
    Ok(patch.zip(view.node).map(|(patch, node)| Confirm {
        node: node.name.to_owned(),
        patch,
        marker: node.marker.cloned(),
        overlooked: cluster.drain(view.shadow_name).and_then(|plan| plan.overlooked),
    }))
}

/// The request that labels this node.
pub(super) fn opt_in(cluster: &Cluster, unmanaged: &UnmanagedNode<'_>, write: &Write<'_>) -> Option<Request> {
    let node = cluster.node(unmanaged.shadow_name)?;
    let key = Key::Node(unmanaged.shadow_name.to_owned());
    let event = EventText::of_opt_in(unmanaged.name);
    Some(Request {
        seen: key.version_in(cluster),
        key,
        operation: write.patch(&node.quoted()).map_or_else(Operation::Misfit, |patch| Operation::LabelNode {
            name: unmanaged.name.to_owned(),
            patch,
        }),
        begins_term: None,
        context: Context {
            node: unmanaged.name.to_owned(),
            reason: event.reason,
            event: Some(event),
            objects: vec![node.object_ref(&())],
            ..Context::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use brupop_api::Field;
    use brupop_api::facts::ShadowFacts;
    use brupop_core::decide::Reason;
    use brupop_core::facts::NodeFacts;

    const NOW: &str = "2026-11-21T04:00:00Z";

    /// The request for an effect on the node, with this shadow or none.
    fn call(shadow: Option<Value>, effect: Effect<'_>) -> Option<Operation> {
        let mut cluster = Cluster::default();
        if let Some(shadow) = shadow {
            cluster.entry("brs-n").shadow = Some(Arc::new(serde_json::from_value(shadow).unwrap()));
        }
        let view = NodeView {
            node: Some(NodeFacts::EXAMPLE),
            shadow: cluster.shadow("brs-n").and_then(ShadowFacts::of),
            ..NodeView::nothing("brs-n")
        };
        let fleet = FleetFacts { now: NOW, term: 7, ledger_term: Some(7), ..FleetFacts::EXAMPLE };
        let decision = Decision { effect: Some(effect), reason: Reason::NotLabelled, milestone: None };
        of(&cluster, &view, &decision, &fleet).map(|request| request.operation)
    }

    fn shadow(metadata: &Value) -> Value {
        let mut shadow = json!({
            "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"},
        });
        json_patch::merge(&mut shadow["metadata"], metadata);
        shadow
    }

    #[test]
    fn a_shadow_is_deleted_only_as_read() {
        let delete = || Effect::DeleteShadow { uid: "u" };
        let Some(Operation::DeleteShadow { name, preconditions }) =
            call(Some(shadow(&json!({"resourceVersion": "41"}))), delete())
        else {
            panic!("it is deleted")
        };
        assert_eq!(name, "brs-n");
        assert_eq!(
            serde_json::to_value(preconditions).unwrap(),
            json!({"uid": "u", "resourceVersion": "41"})
        );
        assert!(call(Some(shadow(&json!({}))), delete()).is_none(), "not without its version");
    }

    #[test]
    fn a_mistake_of_ours_is_a_request_that_fails() {
        let shadow = Some(shadow(&json!({})));
        let write = |field| Write {
            object: Object::ShadowSpec("brs-n"),
            tests: vec![],
            sets: vec![(field, brupop_api::Value::Number(1))],
        };
        let fits = call(shadow.clone(), Effect::Write(write(Field::SpecAttempt)));
        assert!(matches!(fits, Some(Operation::PatchShadow { .. })), "{fits:?}");
        let mistaken = call(shadow, Effect::Write(write(Field::StatusAttempt)));
        assert!(matches!(mistaken, Some(Operation::Misfit(_))), "{mistaken:?}");
    }

    #[test]
    fn a_new_shadow_says_since_when_it_waits() {
        let Some(Operation::CreateShadow(shadow)) = call(None, Effect::CreateShadow { attempt: Some(3) })
        else {
            panic!("it is created")
        };
        let spec = &shadow.spec;
        assert_eq!((spec.attempt, spec.leader_term), (Some(3), Some(7)));
        assert_eq!(spec.state_transition_timestamp.as_deref(), Some(NOW));
    }
}
