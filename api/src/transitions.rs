//! Which state may follow which: the one table that agent, reconciler, webhook and model share.

use crate::State::{
    self, ErrorReset, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate,
};

/// May the reconciler move the spec from one state to the other?
///
/// Forward step by step, and back to Idle from everywhere: by success from `MonitoringUpdate`, by abort from the
/// others.
pub fn spec_may_move(from: State, to: State) -> bool {
    match (from, to) {
        (_, ErrorReset) => false,
        (from, to) if from == to => true,
        (_, Idle)
        | (Idle, StagedAndPerformedUpdate)
        | (StagedAndPerformedUpdate, RebootedIntoUpdate)
        | (RebootedIntoUpdate, MonitoringUpdate) => true,
        _ => false,
    }
}

/// The states that an agent may report while the spec asks for `goal`.
///
/// The goal once it is reached, or `ErrorReset` when it cannot be; from any state before, for an agent may have been
/// away for several steps. Idle cannot fail: there is nothing to do.
pub fn status_may_become(goal: State, from: Option<State>, to: State) -> bool {
    from == Some(to) || to == goal || (to == ErrorReset && goal != Idle && goal != ErrorReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_stays_moves_one_forward_or_to_idle() {
        let legal: Vec<(State, State)> = State::ALL
            .into_iter()
            .flat_map(|from| State::ALL.into_iter().map(move |to| (from, to)))
            .filter(|&(from, to)| spec_may_move(from, to))
            .collect();
        assert_eq!(
            legal,
            [
                (Idle, Idle),
                (Idle, StagedAndPerformedUpdate),
                (StagedAndPerformedUpdate, Idle),
                (StagedAndPerformedUpdate, StagedAndPerformedUpdate),
                (StagedAndPerformedUpdate, RebootedIntoUpdate),
                (RebootedIntoUpdate, Idle),
                (RebootedIntoUpdate, RebootedIntoUpdate),
                (RebootedIntoUpdate, MonitoringUpdate),
                (MonitoringUpdate, Idle),
                (MonitoringUpdate, MonitoringUpdate),
                (ErrorReset, Idle),
            ]
        );
    }

    #[test]
    fn status_follows_the_goal_or_fails() {
        for goal in [
            Idle,
            StagedAndPerformedUpdate,
            RebootedIntoUpdate,
            MonitoringUpdate,
        ] {
            for from in State::ALL.into_iter().map(Some).chain([None]) {
                let reachable: Vec<State> = State::ALL
                    .into_iter()
                    .filter(|&to| from != Some(to) && status_may_become(goal, from, to))
                    .collect();
                let mut expected = vec![goal];
                if goal != Idle {
                    expected.push(ErrorReset);
                }
                expected.retain(|&to| from != Some(to));
                assert_eq!(reachable, expected, "goal {goal}, from {from:?}");
            }
        }
    }
}
