//! The steps of an update: what each asks of the API server, and what it means for the update.

use std::borrow::Cow;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{Field, Value, Write};

use super::reason::{Abort, Reason};
use super::writes;
use crate::facts::{FleetFacts, NodeView};
use crate::objects::NodeFacts;

/// A step that is taken for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the shadow, Idle, owned by the Node. Its `spec.attempt` is one more than that of an earlier shadow, if the Node's
    /// marker names one.
    CreateShadow {
        /// `spec.attempt` to begin with.
        attempt: Option<u64>,
    },
    DeleteShadow(Deletion),
    /// Begins the update to this version.
    Stage(&'a str),
    /// Uses up the attempt of a slot while the shadow stays Idle.
    SkipAttempt,
    /// Excludes the node from load balancers.
    Exclude,
    /// Cordons the node, which begins its drain.
    Cordon,
    /// Cordons the node once more, because somebody has uncordoned it during its drain.
    CordonAgain,
    /// Lists the operator's own pods in the marker, because no other pod is left to evict.
    ListOperatorPods,
    /// Removes the record that the node is drained, because pods have come since.
    DrainAgain,
    /// Evicts the pods that a drain evicts.
    Evict,
    /// Deletes the pods that are left at the drain's deadline, including those without a controller.
    DeletePods,
    /// Records that the node is drained, and grants its reboot.
    Grant,
    /// Withdraws the grant, unless the agent has claimed its reboot meanwhile.
    WithdrawGrant,
    /// Goes on without a grant, because the host runs the update already.
    SkipReboot,
    /// Begins to monitor the updated node.
    Monitor,
    /// Ends the update as a success.
    Finish {
        /// Each workload whose pods were evicted is available again, as far as that is known.
        workloads_back: bool,
    },
    /// Gives the update up.
    Abort(Abort),
    /// Puts the node back into service. The marker keeps the owners of evicted pods until the update is over.
    PutBack,
    /// Undoes all that the marker records.
    Undo,
    /// Removes the annotations that keep autoscalers from removing the node.
    Release,
}

/// Why a shadow is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Its Node was deleted.
    NodeGone,
    /// Its Node was deleted soon after its update: perhaps an autoscaler removes what is updated.
    UpdatedNodeGone,
    /// Its Node was deleted and recreated.
    NodeReplaced,
    /// Its node is no longer opted in.
    OptedOut,
}

/// What is asked of the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// A conditional write.
    Write(Write<'a>),
    /// The grant of the reboot. It is made only after a fresh list of the node's pods, and then a write of the Node, have
    /// confirmed that the node is drained.
    Grant {
        /// The write of the Node: it tests that the Node is still cordoned and marked, and records that it is drained now.
        confirm: Write<'a>,
        grant: Write<'a>,
    },
    CreateShadow {
        /// `spec.attempt` to begin with.
        attempt: Option<u64>,
    },
    /// The shadow with this UID is deleted.
    DeleteShadow {
        /// Precondition of the deletion.
        uid: &'a str,
    },
    /// Pods are evicted.
    Evict,
    /// Pods are deleted.
    Delete,
}

impl<'a> Step<'a> {
    /// Returns what this step asks of the API server; `None` if an object that it is about is not there.
    pub fn effect(self, fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Effect<'a>> {
        Some(match self {
            Self::CreateShadow { attempt } => Effect::CreateShadow { attempt },
            Self::DeleteShadow(_) => Effect::DeleteShadow {
                uid: view.shadow?.uid,
            },
            Self::Evict => Effect::Evict,
            Self::DeletePods => Effect::Delete,
            Self::Grant => {
                let (node, shadow) = (view.node?, view.shadow?);
                Effect::Grant {
                    confirm: writes::drained(fleet, node),
                    grant: writes::grant(fleet, &shadow, node),
                }
            }
            _ if self.changes_node() => Effect::Write(self.write_of_node(fleet, view, view.node?)?),
            _ => Effect::Write(self.write_of_shadow(fleet, view)?),
        })
    }

    fn write_of_shadow(self, fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Write<'a>> {
        let shadow = &view.shadow?;
        Some(match self {
            Self::Stage(version) => {
                writes::stage(fleet, shadow, view.node?, view.slot(fleet)?, version)
            }
            Self::SkipAttempt => writes::skip_attempt(fleet, shadow, view.slot(fleet)?),
            Self::WithdrawGrant => writes::withdraw_grant(fleet, shadow),
            Self::SkipReboot => writes::skip_reboot(fleet, shadow),
            Self::Monitor => writes::monitor(fleet, shadow),
            Self::Finish { .. } => writes::finish(fleet, shadow),
            Self::Abort(why) => writes::abort(fleet, view, shadow, why),
            _ => return None,
        })
    }

    fn write_of_node(
        self,
        fleet: &FleetFacts<'a>,
        view: &NodeView<'a>,
        node: &'a NodeFacts,
    ) -> Option<Write<'a>> {
        let mut write = match self {
            Self::Exclude => writes::exclude(fleet, view, node),
            Self::Cordon => writes::cordon(fleet, view, node),
            Self::CordonAgain => writes::cordon_again(fleet, view, node),
            Self::ListOperatorPods => writes::change_marker(fleet, view, node, |marker| {
                marker.operator_pods = view.pods.operator_pods.to_vec();
            }),
            Self::DrainAgain => writes::change_marker(fleet, view, node, |marker| {
                (marker.drained_at, marker.was_drained) = (None, true);
            }),
            Self::PutBack => writes::put_back(fleet, view, node, node.marker()?),
            Self::Undo => writes::undo(node, node.marker()?),
            Self::Release => writes::release_to_autoscalers(node, node.marker()?),
            _ => return None,
        };
        if let Some(past) = view.past_retry() {
            let read = Value::Text(Cow::Owned(past.to_string()));
            write.tests.push((Field::Retry, read));
            write.sets.push((Field::Retry, Value::Absent));
        }
        Some(write)
    }

    /// Whether this step changes the Node alone.
    pub fn changes_node(self) -> bool {
        self.empties() && self != Self::Grant
            || matches!(self, Self::PutBack | Self::Undo | Self::Release)
    }

    /// Whether this step takes changes of ours back from the Node.
    pub(super) fn undoes(self) -> bool {
        matches!(self, Self::PutBack | Self::Undo)
    }

    /// Whether this step waits until the pods of its node are known, because it goes on from there to the reboot. To withdraw a
    /// grant does not wait: while a grant stands, nobody watches the pods.
    pub fn empties(self) -> bool {
        matches!(
            self,
            Self::Exclude
                | Self::Cordon
                | Self::CordonAgain
                | Self::ListOperatorPods
                | Self::DrainAgain
                | Self::Grant
        )
    }
}

/// What to do for a node, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What is to be done now; `None` = wait.
    pub step: Option<Step<'a>>,
    /// Why the node moves, or why not.
    pub reason: Reason<'a>,
}

/// What one node asks for, before it is known which nodes get slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assessment<'a> {
    pub(super) step: Option<Step<'a>>,
    pub(super) reason: Reason<'a>,
    /// The version to which an update could begin, if the node had a slot.
    pub(super) may_start: Option<&'a str>,
}

impl<'a> Assessment<'a> {
    pub(super) fn wait(reason: Reason<'a>) -> Self {
        Self {
            step: None,
            reason,
            may_start: None,
        }
    }

    pub(super) fn abort(why: Abort) -> Self {
        Self::take(Step::Abort(why), Reason::Aborting(why))
    }

    pub(super) fn take(step: Step<'a>, reason: Reason<'a>) -> Self {
        Self {
            step: Some(step),
            ..Self::wait(reason)
        }
    }
}

/// A node that has both its Node and its shadow, in its fleet.
#[derive(Clone, Copy)]
pub(super) struct Case<'c, 'a> {
    pub(super) fleet: &'c FleetFacts<'a>,
    pub(super) view: &'c NodeView<'a>,
    pub(super) node: &'a NodeFacts,
    pub(super) shadow: &'c ShadowFacts<'a>,
    pub(super) slot: Option<&'a Slot>,
}
