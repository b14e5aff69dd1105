//! A node in mid-update: staged, rebooted, monitored; or given up.

use brupop_api::facts::ShadowFacts;
use brupop_api::{Field, Marker, State, Value};

use super::{Abort, Decision, Effect, Reason, drain, writes};
use crate::facts::{Evicted, FleetFacts, NodeFacts, Situation};

/// Where the host stands, on facts of the Node alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// Still in the boot from which the update began (or was granted).
    Same,
    /// In another boot, with the wanted version.
    IntoUpdate,
    /// In another boot, with another version.
    IntoOther,
}

fn boot(node: &NodeFacts<'_>, shadow: &ShadowFacts<'_>) -> Boot {
    let from = shadow.spec.reboot_from_boot_id.or(shadow.spec.baseline_boot_id);
    match (from == Some(node.boot_id), node.version == shadow.spec.version) {
        (true, _) => Boot::Same,
        (false, true) => Boot::IntoUpdate,
        (false, false) => Boot::IntoOther,
    }
}

/// Has the host gone into its reboot, and not been seen since? On our grant, and on the agent's claim of it.
pub(super) fn went_away(node: &NodeFacts<'_>, shadow: &ShadowFacts<'_>) -> bool {
    shadow.spec.reboot_from_boot_id.is_some()
        && (boot(node, shadow) != Boot::Same || shadow.status.reboot_requested == Some(node.boot_id))
}

fn abort<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>, why: Abort) -> Decision<'a> {
    Decision::write(writes::abort(fleet, shadow, why), Reason::Aborting(why))
}

/// Reasons to give up that hold as long as no reboot is under way: before it is claimed, and after it.
fn given_up(situation: &Situation<'_>, node: &NodeFacts<'_>, shadow: &ShadowFacts<'_>) -> Option<Abort> {
    if shadow.reports(State::ErrorReset) {
        Some(Abort::StepFailed)
    } else if !node.labelled {
        Some(Abort::NotLabelled)
    } else if node.paused {
        Some(Abort::NodePaused)
    } else if situation.time.step_overdue {
        Some(Abort::DeadlineExceeded)
    } else {
        None
    }
}

/// A shadow that upstream's operator left in mid-update knows no attempt: its cordon becomes ours, then it gets one.
///
/// Upstream cordons, and excludes from load balancers, only when the reboot is wanted; what was there before is a person's.
pub(super) fn adopt<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    let Some(slot) = situation.slot(fleet) else { return Decision::wait(Reason::LimitReached) };
    let starting = Reason::Starting(shadow.spec.version.unwrap_or(""));
    let upstreams = shadow.spec.state != State::StagedAndPerformedUpdate;
    if upstreams && node.marker.is_none() && (node.unschedulable || node.excluded) {
        let marker = Marker {
            shadow_uid: shadow.uid.to_owned(),
            attempt: slot.attempt,
            term: fleet.term,
            cordoned_at: node.unschedulable.then(|| fleet.now.to_owned()),
            excluded_at: node.excluded.then(|| fleet.now.to_owned()),
            ..Marker::default()
        };
        let tests = [
            (Field::Unschedulable, Value::flag(node.unschedulable)),
            (Field::ExcludedFromLoadBalancers, Value::flag(node.excluded)),
        ];
        return Decision::write(writes::mark(node, tests, [], marker), starting);
    }
    Decision::write(writes::adopt(fleet, shadow, node, slot), starting)
}

/// Wanted: the image is staged and next to boot. Once it is, the node is emptied and the reboot granted.
pub(super) fn staged<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    let version = shadow.spec.version.unwrap_or("");
    let boot = boot(node, shadow);
    if boot != Boot::Same
        && let Some(undo) = back_into_service(node)
    {
        return undo;
    }
    match boot {
        Boot::IntoUpdate => {
            return Decision::write(writes::skip_reboot(fleet, shadow), Reason::ReturningToService);
        }
        Boot::IntoOther if shadow.reached() => return abort(fleet, shadow, Abort::FellBack),
        Boot::IntoOther => return abort(fleet, shadow, Abort::RebootedByItself),
        // Upstream's operator had begun, and the host came up with the update before we took it over.
        Boot::Same if node.version.is_some() && node.version == shadow.spec.version => {
            return Decision::write(writes::skip_reboot(fleet, shadow), Reason::ReturningToService);
        }
        Boot::Same => {}
    }
    if let Some(why) = given_up(situation, node, shadow) {
        return abort(fleet, shadow, why);
    }
    if !shadow.reached() {
        let echoed = shadow.status.attempt == shadow.spec.attempt;
        if echoed && shadow.status.target_version != shadow.spec.version {
            return abort(fleet, shadow, Abort::OtherTarget);
        }
        return Decision::wait(if node.agent_ready { Reason::Staging(version) } else { Reason::AgentSilent });
    }
    empty_then_grant(fleet, situation, node, shadow)
}

/// A host in another boot gets back what we changed on its node before anything else: that needs neither its agent nor
/// the webhook.
fn back_into_service<'a>(node: &NodeFacts<'a>) -> Option<Decision<'a>> {
    let marker = node.marker.filter(|marker| node.ready && marker.holds_changes())?;
    Some(Decision::write(writes::undo(node, marker, true), Reason::ReturningToService))
}

fn empty_then_grant<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    if situation.slot(fleet).is_none_or(|slot| Some(slot.attempt) != shadow.spec.attempt) {
        return Decision::wait(Reason::LimitReached);
    }
    if !node.ready {
        return Decision::wait(Reason::NodeNotReady);
    }
    match drain::empty(fleet, situation, node, shadow) {
        Ok(()) => {
            let grant = writes::grant(fleet, shadow, node);
            // It stands when a fresh list has agreed.
            Decision { effect: Some(Effect::ConfirmDrained(grant)), reason: Reason::Draining }
        }
        Err(decision) => decision,
    }
}

/// Wanted: another boot, with the version. Everything here rests on the Node, its marker and the claim.
pub(super) fn rebooted<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    let boot = boot(node, shadow);
    if boot == Boot::Same {
        return before_reboot(fleet, situation, node, shadow);
    }
    if !node.ready {
        return await_return(situation);
    }
    if let Some(undo) = back_into_service(node) {
        return undo;
    }
    if boot == Boot::IntoOther {
        return abort(fleet, shadow, Abort::FellBack);
    }
    watch_it(fleet, situation, node, shadow)
}

/// The node is in service with the update: go on to watch it, as soon as its agent says so, too. A silent agent does not
/// keep the slot for ever.
fn watch_it<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    if shadow.reached() {
        return Decision::write(writes::monitor(fleet, shadow), Reason::Monitoring);
    }
    match given_up(situation, node, shadow) {
        Some(Abort::NodePaused) | None => Decision::wait(Reason::NotReported),
        Some(why) => abort(fleet, shadow, why),
    }
}

/// The host is on its way; only a person can help one that does not arrive.
fn await_return<'a>(situation: &Situation<'a>) -> Decision<'a> {
    let overdue = situation.time.step_overdue;
    Decision::wait(if overdue { Reason::RebootOverdue } else { Reason::Rebooting })
}

fn before_reboot<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    if shadow.status.reboot_requested == Some(node.boot_id) {
        return await_return(situation);
    }
    if let Some(why) = given_up(situation, node, shadow) {
        return abort(fleet, shadow, why);
    }
    if shadow.spec.reboot_from_boot_id.is_none() {
        // Adopted, or the grant was taken back.
        if node.version == shadow.spec.version {
            // Upstream had rebooted it before we came: it only has to be put back into service.
            return back_into_service(node).unwrap_or_else(|| watch_it(fleet, situation, node, shadow));
        }
        return empty_then_grant(fleet, situation, node, shadow);
    }
    let drained = node.marker.is_some_and(|marker| marker.drained_at.is_some());
    if !drained || !node.unschedulable {
        return Decision::write(writes::withdraw_grant(fleet, shadow), Reason::Draining);
    }
    Decision::wait(Reason::RebootGranted)
}

/// Wanted: the node in service for a while with the new version.
pub(super) fn monitoring<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Decision<'a> {
    if !node.ready {
        // It was in service; whether it comes back is no longer a matter of this step alone.
        if situation.time.step_overdue {
            return abort(fleet, shadow, Abort::NotReady);
        }
        return Decision::wait(Reason::NodeNotReady);
    }
    if node.version != shadow.spec.version {
        return abort(fleet, shadow, Abort::FellBack);
    }
    if let Some(undo) = back_into_service(node) {
        return undo;
    }
    if shadow.reached() && situation.time.soak_over && node.labelled {
        return match situation.evicted {
            Evicted::Missing(_) if situation.time.workloads_overdue => {
                let alone = fleet.slots.len() == 1 && fleet.all_ready;
                let why = if alone { Abort::WorkloadsNotBack } else { Abort::WorkloadsNotBackAmongOthers };
                abort(fleet, shadow, why)
            }
            Evicted::Missing(owner) => Decision::wait(Reason::WorkloadsNotBack(owner)),
            Evicted::Unknown if !situation.time.workloads_overdue => Decision::wait(Reason::Monitoring),
            Evicted::Unknown | Evicted::Back => {
                Decision::write(writes::finish(fleet, shadow), Reason::Finishing)
            }
        };
    }
    match given_up(situation, node, shadow) {
        // It runs the update and is in service: a pause has nothing to hold back any more.
        Some(Abort::NodePaused) | None => Decision::wait(Reason::Monitoring),
        Some(why) => abort(fleet, shadow, why),
    }
}
