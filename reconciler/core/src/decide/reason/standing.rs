//! Says what a reason means for its node: whether it moves, waits for its turn, or is held back.

use brupop_api::conditions::ConditionStatus;

use super::{DrainStep, MonitorStep, OtherOperator, Reason, RebootStep, StagingStep};

/// What a reason means for its node. *Idle*: meanwhile its agent downloads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
    /// Whether a node with an update waits for nothing but its turn or its time. What else holds it back is about the node
    /// itself.
    pub fn waits_for_turn(&self) -> bool {
        if matches!(self, Self::OtherOperator(OtherOperator::LeftUpdate)) {
            return false;
        }
        matches!(self, Self::Staging(StagingStep::Begins(_)))
            || matches!(
                self.kind(),
                Standing::Next | Standing::Queued | Standing::QueuedIdle
            )
    }

    /// Whether the node would begin if there was room, once others are done, or once something is over that ends by itself or that
    /// a new leader does not know yet.
    pub(crate) fn needs_place(&self) -> bool {
        match self {
            Self::Finishing
            | Self::OutsideWindow(_)
            | Self::WaitingForPool(_)
            | Self::VersionTooYoung(_) => false,
            Self::BudgetAllowsNone(_)
            | Self::AgentSilent(_)
            | Self::OtherOperator(OtherOperator::Installed) => true,
            reason => reason.waits_for_turn() && !reason.forbids_download(),
        }
    }

    /// Whether the agent downloads nothing ahead meanwhile.
    pub(crate) fn forbids_download(&self) -> bool {
        matches!(self.kind(), Standing::QueuedIdle | Standing::HeldIdle)
    }

    /// Whether an update of the fleet's usual course begins a step with it. Such a word is written at once, and once; others only
    /// if they last. What lies between two steps lasts milliseconds, or is worth a word because it does not.
    pub fn begins_step(&self) -> bool {
        matches!(
            self,
            Self::Staging(StagingStep::Downloads(_))
                | Self::Draining(DrainStep::Evicts)
                | Self::Rebooting(RebootStep::Claimed)
                | Self::Monitoring(MonitorStep::InService)
        )
    }

    /// Whether an update is under way.
    pub fn is_moving(&self) -> bool {
        self.kind() == Standing::Moving
    }

    /// The status of the condition Progressing.
    pub fn status(&self) -> ConditionStatus {
        match self.kind() {
            Standing::NotKnown => ConditionStatus::Unknown,
            Standing::Moving | Standing::Next => ConditionStatus::True,
            Standing::Queued | Standing::QueuedIdle | Standing::Held | Standing::HeldIdle => {
                ConditionStatus::False
            }
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
