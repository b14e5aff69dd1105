//! What a reason means for its node: does it move, wait for its turn, or is it held back?

use brupop_api::conditions::ConditionStatus;

use super::Reason;

/// What a reason means for its node. *Idle*: meanwhile its agent downloads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The node is not seen, or not understood.
    NotKnown,
    /// An update is under way.
    Moving,
    /// An update begins or has ended: the node does not hold another one up.
    Next,
    /// It waits for its turn or its time.
    Queued,
    /// It waits for a person, a freeze or another operator.
    QueuedIdle,
    /// Something about the node itself holds it back.
    Held,
    /// Something about the node itself holds it back, and no image would be of use.
    HeldIdle,
}

impl Reason<'_> {
    /// Does a node with an update wait for nothing but its turn or its time? What else holds it back is about the node
    /// itself.
    pub fn waits_for_turn(&self) -> bool {
        matches!(self.standing(), Standing::Next | Standing::Queued | Standing::QueuedIdle)
    }

    /// Does the agent download nothing ahead meanwhile?
    pub(crate) fn forbids_download(&self) -> bool {
        matches!(self.standing(), Standing::QueuedIdle | Standing::HeldIdle)
    }

    /// Does an update of the fleet's usual course begin a step with it? Such a word is written at once, and once; others only
    /// if they last. What lies between two steps lasts milliseconds, or is worth a word because it does not.
    pub fn begins_step(&self) -> bool {
        matches!(self, Self::Staging(_) | Self::Draining | Self::Rebooting | Self::Monitoring)
    }

    /// Is an update under way?
    pub fn is_moving(&self) -> bool {
        self.standing() == Standing::Moving
    }

    /// The status of the condition Progressing.
    pub fn status(&self) -> ConditionStatus {
        match self.standing() {
            Standing::NotKnown => ConditionStatus::Unknown,
            Standing::Moving | Standing::Next => ConditionStatus::True,
            Standing::Queued | Standing::QueuedIdle | Standing::Held | Standing::HeldIdle => {
                ConditionStatus::False
            }
        }
    }

    /// Every reason has its place here: a new one does not compile without.
    fn standing(&self) -> Standing {
        match self {
            Self::NotReported
            | Self::AgentSilent
            | Self::NodeGone
            | Self::NotUnderstood(_)
            | Self::NotLeading => Standing::NotKnown,
            Self::Staging(_)
            | Self::ExcludedFromLoadBalancers
            | Self::Cordoning
            | Self::Draining
            | Self::VolumesInUse
            | Self::RebootGranted
            | Self::Rebooting
            | Self::ReturningToService
            | Self::Monitoring
            | Self::WorkloadsUnavailable(_)
            | Self::Aborting(_) => Standing::Moving,
            Self::Starting(_) | Self::Finishing => Standing::Next,
            Self::OutsideWindow(_)
            | Self::AdmissionNotEnforced
            | Self::VersionUnproven(_)
            | Self::WaitingForPool(_)
            | Self::WaitingForZone(_)
            | Self::ControlPlaneBusy(_)
            | Self::VersionTooYoung(_)
            | Self::GateClosed(_)
            | Self::GateUnknown(_)
            | Self::NodeTooYoung
            | Self::PausingBetweenUpdates
            | Self::CheckingPods
            | Self::LimitReached
            | Self::LimitUsedByUnavailableNodes(_) => Standing::Queued,
            Self::FleetPaused | Self::PoolPaused | Self::Frozen(_) | Self::OtherOperator => {
                Standing::QueuedIdle
            }
            Self::NodeReplaced
            | Self::NotLabelled
            | Self::NoUpdate
            | Self::RefreshFailed(_)
            | Self::CannotDisarm(_)
            | Self::NoInPlaceUpdates(_)
            | Self::HostUnreachable(_)
            | Self::CommandRefused(_)
            | Self::RebootRefused(_)
            | Self::NotNextToBoot(_)
            | Self::TooManyLabels
            | Self::TooManyVersionsHalted
            | Self::TooManyPods
            | Self::CannotDrain(_)
            | Self::BudgetAllowsNone(_)
            | Self::NodeLeaving
            | Self::NotBottlerocket
            | Self::NodeChangesDenied(_)
            | Self::RebootOverdue(_) => Standing::Held,
            Self::NodeNotReady
            | Self::NodePaused
            | Self::PoolInvalid(_)
            | Self::PoolConflict(_)
            | Self::NoPool
            | Self::VersionNotAllowed(_)
            | Self::BackingOff
            | Self::VersionHalted(_)
            | Self::VersionHaltedInPool(_) => Standing::HeldIdle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::conditions::REASONS_AGAINST_PREFETCH;

    /// Agents read words, and have a list of their own of those that keep them from downloading.
    #[test]
    fn agents_know_each_word_against_prefetching() {
        let mut words: Vec<_> = Reason::WORDS
            .iter()
            .filter(|word| Reason::of_word(word).is_some_and(|it| it.forbids_download()))
            .copied()
            .collect();
        let mut known = REASONS_AGAINST_PREFETCH.to_vec();
        words.sort_unstable();
        known.sort_unstable();
        assert_eq!(words, known);
    }
}
