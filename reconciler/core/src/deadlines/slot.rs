//! Computes whether a slot is held for too long.

use brupop_api::State;
use brupop_api::fleet::Slot;
use jiff::{SignedDuration, Timestamp};

use super::{Clock, Gated, SPELLS, Times};
use crate::policy::Durations;

impl Times<'_> {
    /// The longest time for which a slot stays in this state, if the reconciler can do what the state's deadline asks for.
    fn longest(&self, state: State) -> SignedDuration {
        let (
            Durations {
                stage,
                reboot,
                settle,
                ..
            },
            steps,
        ) = (*self.durations, self.steps);
        let step = match state {
            State::Idle | State::ErrorReset => settle,
            State::StagedAndPerformedUpdate => stage + steps.exclusion + steps.drain * 2,
            State::RebootedIntoUpdate => reboot + steps.exclusion + steps.drain,
            State::MonitoringUpdate => (steps.verify + settle + steps.workloads) * SPELLS,
        };
        step + settle
    }
}

impl Clock<'_> {
    /// Returns since when this slot has been held, if that is known.
    pub(super) fn held_since(&mut self, slot: &Slot) -> Option<Timestamp> {
        self.read([&slot.uid, "slot"], slot.since.as_deref())
    }

    /// Whether this slot is held for longer than the shadow's state, and what follows its deadline, may take. Without a shadow
    /// that can be read, a whole update may take so long.
    pub(super) fn slot_overdue(&mut self, slot: &Slot, times: &Times<'_>) -> bool {
        let since = self.held_since(slot);
        let Some(shadow) = times.shadow else {
            let whole = State::ALL.iter().map(|state| times.longest(*state)).sum();
            return self.passed(since, whole);
        };
        if shadow.spec.state == State::MonitoringUpdate && times.gated == Gated::Closed {
            // A gate that is closed holds it. Were that an alert, a gate that asks for alerts would stay closed by it.
            return false;
        }
        let longest = times.longest(shadow.spec.state);
        self.passed(times.transition, longest) && self.passed_or_unknown(since, longest)
    }

    /// Whether the slot is held for longer than a short step may take, while the host has not staged the update.
    pub(super) fn stages_late(&mut self, slot: &Slot, times: &Times<'_>) -> bool {
        let stages = times.shadow.is_none_or(|shadow| match shadow.spec.state {
            State::Idle | State::ErrorReset => true,
            State::StagedAndPerformedUpdate => !shadow.reached(),
            State::RebootedIntoUpdate | State::MonitoringUpdate => false,
        });
        let since = self.held_since(slot);
        stages && self.passed_or_unknown(since, times.durations.settle)
    }
}
