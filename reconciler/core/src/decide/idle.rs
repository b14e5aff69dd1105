//! A node that is Idle: what is left of its last update, and whether the next one begins.

use brupop_api::State;

use super::{Case, Decision, Effect, Milestone, Reason, records, undo_when_ready, writes};
use crate::facts::{FleetFacts, Gate, NodeView};

impl<'a> Case<'_, 'a> {
    /// Wanted: nothing. What is left of the last update is undone first; then the next one begins if the node has a
    /// slot.
    pub(super) fn idle(self) -> Decision<'a> {
        let Self { fleet, view, node, shadow } = self;
        if node.marker.is_some() {
            return undo_when_ready(node, Reason::Finishing, None);
        }
        if !node.labelled {
            return Decision::carry_out(Effect::DeleteShadow { uid: shadow.uid }, Reason::NotLabelled);
        }
        match view.slot(fleet) {
            Some(slot) if Some(slot.attempt) > shadow.spec.attempt => match able(fleet, view) {
                Ok(_) if fleet.rests(node) => {
                    Decision::write(writes::skip_attempt(fleet, shadow, slot), Reason::PausingBetweenUpdates)
                }
                // The slot was taken for another version, and counts as a try of that.
                Ok(version) if slot.version.as_deref().is_some_and(|its| its != version) => {
                    Decision::write(writes::skip_attempt(fleet, shadow, slot), Reason::LimitReached)
                }
                Ok(version) => Decision::write(
                    writes::stage(fleet, shadow, node, slot, version),
                    Reason::Starting(version),
                )
                .reaching(Milestone::Started),
                Err(reason) => Decision::write(writes::skip_attempt(fleet, shadow, slot), reason),
            },
            Some(_) => Decision::wait(Reason::Finishing),
            None => {
                let startable = startable(fleet, view);
                Decision::wait(startable.map_or_else(|reason| reason, |_| Reason::LimitReached))
            }
        }
    }
}

/// The version to which this node could be updated now, or why not.
pub(super) fn startable<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<&'a str, Reason<'a>> {
    let version = able(fleet, view)?;
    match view.pods.blocked {
        Some(budget) if !fleet.force => Err(Reason::BudgetAllowsNone(budget)),
        _ => Ok(version),
    }
}

/// The same, whatever budgets allow now: who has a slot waits for them before its cordon.
fn able<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<&'a str, Reason<'a>> {
    let (Some(node), Some(shadow)) = (view.node, view.shadow) else { return Err(Reason::NodeGone) };
    if !node.labelled {
        return Err(Reason::NotLabelled);
    }
    if !node.ready {
        return Err(Reason::NodeNotReady);
    }
    if node.leaving {
        return Err(Reason::NodeLeaving);
    }
    if node.overgrown {
        return Err(Reason::TooManyLabels);
    }
    if node.version.is_none() {
        return Err(Reason::NotBottlerocket);
    }
    if shadow.status.current_version.is_none() || shadow.status.boot_id != Some(node.boot_id) {
        return Err(Reason::NotReported);
    }
    if !shadow.reports(State::Idle) {
        return Err(Reason::Finishing);
    }
    if !node.agent_ready {
        return Err(Reason::AgentSilent);
    }
    // Each update begins with a look, which would fail.
    if let Some(why) = shadow.status.refresh_failed() {
        return Err(Reason::RefreshFailed(why));
    }
    // The Node says which version runs, whatever its agent says: no node is updated to the version that it runs.
    let Some(version) = shadow.update().filter(|version| Some(*version) != node.version) else {
        return Err(Reason::NoUpdate);
    };
    if node.paused {
        return Err(Reason::NodePaused);
    }
    if fleet.versions.get(version).is_some_and(|record| record.halted.is_some()) {
        return Err(Reason::VersionHalted(version));
    }
    if view.time.backing_off {
        return Err(Reason::BackingOff);
    }
    if records::is_full(fleet) && !fleet.versions.contains_key(version) {
        return Err(Reason::TooManyVersionsHalted);
    }
    match fleet.gate {
        Gate::Open => {}
        Gate::OutsideWindow if node.update_now => {}
        Gate::OutsideWindow => return Err(Reason::OutsideWindow),
        Gate::Paused => return Err(Reason::FleetPaused),
        Gate::AdmissionNotEnforced => return Err(Reason::AdmissionNotEnforced),
    }
    if !fleet.alone {
        return Err(Reason::OtherOperator);
    }
    if view.time.young && !node.update_now {
        return Err(Reason::NodeTooYoung);
    }
    if let Some(why) = view.denied {
        return Err(Reason::NodeChangesDenied(why));
    }
    match view.pods.undrainable {
        Some(why) if !fleet.force => Err(Reason::CannotDrain(why)),
        _ => Ok(version),
    }
}
