//! What a decision is, and the case that it is made for.

use brupop_api::Write;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;

use super::reason::{Abort, Reason};
use crate::facts::{FleetFacts, NodeFacts, NodeView};

/// Something to be done in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// A conditional write.
    Write(Write<'a>),
    /// The grant of the reboot. Make it only after a fresh list of the node's pods, and then a write of the Node, have
    /// confirmed that it is drained.
    Grant {
        /// The write of the Node: it tests that the Node is still cordoned and marked, and records that it is drained now.
        confirm: Write<'a>,
        /// The grant.
        grant: Write<'a>,
    },
    /// Create the shadow, Idle, owned by the Node.
    CreateShadow {
        /// `spec.attempt` to begin with: one more than that of an earlier shadow, if the Node's marker names one.
        attempt: Option<u64>,
    },
    /// Delete the shadow with this UID.
    DeleteShadow {
        /// Precondition of the deletion.
        uid: &'a str,
    },
    /// Evict the pods that a drain evicts.
    Evict,
    /// Delete pods that are still there at the drain's deadline, including those without a controller.
    Delete,
}

/// What to do for a node, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What is to be done now; `None` = wait.
    pub effect: Option<Effect<'a>>,
    /// Why the node moves, or why not.
    pub reason: Reason<'a>,
    /// What the update has come to once the effect is carried out, if people are told of it.
    pub milestone: Option<Milestone>,
}

/// Steps of an update of which an Event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The update has begun.
    Started,
    /// The node is cordoned.
    Cordoned,
    /// The node is cordoned once more: somebody had uncordoned it in mid-drain.
    CordonedAgain,
    /// The reboot is granted although pods are on the node that the drain does not wait for.
    PodsLeft,
    /// The node runs the new version, and all is well.
    Updated,
    /// The node runs the new version, but a workload whose pods were evicted has not come back in time.
    UpdatedWithoutWorkloads,
    /// The update is given up.
    Aborted(Abort),
    /// The node is no longer opted in, so its shadow goes.
    OptedOut,
    /// The Node was deleted soon after its update: perhaps an autoscaler removes what is updated.
    Removed,
}

/// A node that has both its Node and its shadow, in its fleet.
#[derive(Clone, Copy)]
pub(super) struct Case<'c, 'a> {
    pub(super) fleet: &'c FleetFacts<'a>,
    pub(super) view: &'c NodeView<'a>,
    pub(super) node: &'c NodeFacts<'a>,
    pub(super) shadow: &'c ShadowFacts<'a>,
    pub(super) slot: Option<&'a Slot>,
}

impl<'a> Decision<'a> {
    pub(super) fn wait(reason: Reason<'a>) -> Self {
        Self {
            effect: None,
            reason,
            milestone: None,
        }
    }

    pub(super) fn carry_out(effect: Effect<'a>, reason: Reason<'a>) -> Self {
        Self {
            effect: Some(effect),
            reason,
            milestone: None,
        }
    }

    pub(super) fn write(write: Write<'a>, reason: Reason<'a>) -> Self {
        Self::carry_out(Effect::Write(write), reason)
    }

    pub(super) fn reaching(self, milestone: Milestone) -> Self {
        Self {
            milestone: Some(milestone),
            ..self
        }
    }
}
