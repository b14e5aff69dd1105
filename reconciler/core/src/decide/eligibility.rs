//! Whether an update of a node may begin, or why not: by the node, its host, its pool and the fleet.

use brupop_api::shadow::ShadowFacts;
use brupop_api::{Marker, Problem, State};
use semver::Version;

use super::assess::{Case, Decision, abort, closed_gate, take, undo_when_ready, wait};
use super::step::Step;
use super::{Abort, OVERGROWN, Reason};
use crate::facts::{FleetFacts, NodeView, Owner};
use crate::objects::NodeFacts;
use crate::rules::GateState;
use crate::window::Starts;

impl<'a> Case<'_, 'a> {
    /// Wanted: nothing. What is left of the last update is undone first; then the next one begins if the node has a
    /// slot.
    pub(super) fn idle(self) -> Decision<'a> {
        let (fleet, view, node) = (self.fleet, self.view, self.node);
        let is_done = |marker: &Marker| marker.is_kept() && node.labelled;
        if !node.marker().is_none_or(is_done) {
            return undo_when_ready(node, &view.time, Reason::Finishing);
        }
        if !node.labelled {
            return take(Step::DeleteShadow, Reason::NotLabelled);
        }
        let queues = Reason::LimitReached;
        let Some(slot) = view.held() else {
            let is_idle = self.shadow.spec.state == State::Idle;
            return match startable(fleet, view) {
                Ok(version) => Decision {
                    may_start: is_idle.then_some(version),
                    ..wait(queues)
                },
                Err(reason) => wait(reason),
            };
        };
        if Some(slot.attempt) <= self.shadow.spec.attempt {
            return wait(finishing(self.shadow));
        }
        match able(fleet, view) {
            Err(reason) if awaited(fleet, view) == Some(reason) => wait(reason),
            Err(reason) => take(Step::SkipAttempt, reason),
            // The slot was taken for another version, and counts as a try of that.
            Ok(version) if slot.version.as_deref().is_some_and(|its| its != version) => {
                take(Step::SkipAttempt, queues)
            }
            Ok(version) => {
                let begins = Reason::StagingBegins(version);
                take(Step::Stage(version), begins)
            }
        }
    }

    /// Returns what becomes of an update that has begun, perhaps hours ago, before its node is cordoned: it is given up if the
    /// pool no longer allows it, the fleet is paused, or a node of another zone is out of service; or it waits for a gate.
    pub(super) fn closed(self) -> Option<Decision<'a>> {
        let (fleet, view) = (self.fleet, self.view);
        let version = self.shadow.spec.version.as_deref().unwrap_or_default();
        let awaited = awaited(fleet, view);
        let gate = fleet.pool_of(view).and_then(closed_gate);
        let may_go_on = pool_is_open(fleet, view, self.node).is_ok()
            && (awaited.is_some() || gate.is_none())
            && allows_version(fleet, view, version).is_ok();
        if !may_go_on || fleet.paused || view.busy_zone.is_some() {
            return Some(abort(Abort::PoolClosed));
        }
        awaited.map(wait)
    }
}

/// The version to which this node could be updated now, or why not.
fn startable<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<&'a str, Reason<'a>> {
    let version = able(fleet, view)?;
    view.awaited_budget()
        .map_or(Ok(version), |why| Err(Reason::BudgetAllowsNone(why)))
}

/// The version to which the node could be updated, whatever budgets allow now, or why not: a node with a slot waits for
/// budgets before its cordon.
fn able<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<&'a str, Reason<'a>> {
    let node = view.node.ok_or(Reason::NodeGone)?;
    let version = offered(view, node)?;
    first([
        (node.paused, Reason::NodePaused),
        (
            fleet.is_halted_for(view, version),
            Reason::VersionHalted(version),
        ),
    ])?;
    let gate = || fleet.pool_of(view).and_then(closed_gate);
    let allows = pool_is_open(fleet, view, node).and_then(|()| gate().map_or(Ok(()), Err));
    let allows_version = allows_version(fleet, view, version);
    // Obstacles that a person must lift are shown before a closed window: the agent downloads nothing ahead meanwhile.
    for told in [&allows, &allows_version] {
        if let Err(reason) = told
            && reason.forbids_download()
        {
            return Err(*reason);
        }
    }
    first([
        (fleet.paused, Reason::FleetPaused),
        (!fleet.alone, Reason::OtherOperator),
    ])?;
    if let Some(first) = fleet.pool_left_out {
        return Err(Reason::TooManyPools(first));
    }
    allows.and(allows_version)?;
    first([
        (!fleet.enforced, Reason::AdmissionNotEnforced),
        // It ends by itself, so whatever else holds the node is told first.
        (view.time.backing_off, Reason::BackingOff),
        (view.time.young && !node.update_now, Reason::NodeTooYoung),
    ])?;
    let hindrance = (view.led.denied().map(Reason::NodeChangesDenied))
        .or_else(|| view.undrainable().map(Reason::CannotDrain))
        .or_else(|| view.busy_control_plane.map(Reason::ControlPlaneBusy));
    hindrance.map_or(Ok(version), Err)
}

/// The version that the host of this node names, or why none.
fn offered<'a>(view: &NodeView<'a>, node: &'a NodeFacts) -> Result<&'a str, Reason<'a>> {
    let shadow = view.shadow.ok_or(Reason::NodeGone)?;
    first([
        (!node.labelled, Reason::NotLabelled),
        (!node.is_ready(), Reason::NodeNotReady),
        (node.overgrown, Reason::NodeChangesDenied(OVERGROWN)),
        (node.version().is_none(), Reason::NotBottlerocket),
        (!view.has_reported(), Reason::AgentNotReported),
        (!shadow.reports(State::Idle), finishing(&shadow)),
        (!view.agent_ready, Reason::AgentSilent),
    ])?;
    // Each update begins with a refresh, which would fail.
    if shadow.status.cannot_update()
        && let Some(reason) = Reason::of_status(shadow.status)
    {
        return Err(reason);
    }
    // The Node says which version runs, whatever its agent says: no node is updated to the version that it runs.
    let update = shadow
        .update()
        .filter(|version| Some(*version) != node.version());
    update.ok_or_else(|| no_update(&shadow))
}

/// Returns why a host that can look for updates names none.
fn no_update<'a>(shadow: &ShadowFacts<'a>) -> Reason<'a> {
    match shadow.status.problem {
        Some(problem @ Problem::NoUpdateChosen) => {
            Reason::NoUpdateChosen(shadow.status.message.as_deref().unwrap_or(problem.as_str()))
        }
        _ => Reason::NoUpdate,
    }
}

/// Returns why the last update is not over yet: the agent undoes what its attempt did, or its host keeps it from that.
fn finishing<'a>(shadow: &ShadowFacts<'a>) -> Reason<'a> {
    let told = Reason::against_report(shadow.status).filter(|_| !shadow.reports(State::Idle));
    told.unwrap_or(Reason::Finishing)
}

/// The first of these obstacles that is there, as an error.
fn first<'a>(obstacles: impl IntoIterator<Item = (bool, Reason<'a>)>) -> Result<(), Reason<'a>> {
    obstacles
        .into_iter()
        .find(|(is_there, _)| *is_there)
        .map_or(Ok(()), |(_, reason)| Err(reason))
}

/// Checks whether the pool of this node lets its update start, or go on to the cordon, whatever its gates say.
///
/// # Errors
/// Why not.
fn pool_is_open<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
) -> Result<(), Reason<'a>> {
    if node.leaving {
        return Err(Reason::NodeLeaving);
    }
    if let Owner::Conflict(one, other) = view.owner {
        let [one, other] = [one, other].map(|index| fleet.pool_name(index));
        return Err(Reason::PoolConflict(one, other));
    }
    let unknown = Reason::NotUnderstood("its pool is not known yet");
    match fleet.pool_of(view).ok_or(unknown)?.starts {
        Starts::Invalid(why) => Err(Reason::PoolInvalid(why)),
        Starts::Paused => Err(Reason::PoolPaused),
        Starts::Frozen(until) if !node.update_now => Err(Reason::Frozen(until)),
        Starts::OutsideWindow(until) if !node.update_now => Err(Reason::OutsideWindow(until)),
        Starts::Open | Starts::Frozen(_) | Starts::OutsideWindow(_) => Ok(()),
    }
}

/// Of the gates of its pool one of which nobody knows for now, if the others are open: what has begun waits for it.
fn awaited<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Reason<'a>> {
    let (state, gate) = fleet.pool_of(view)?.gate?;
    (state == GateState::Awaited).then_some(Reason::GateUnknown(gate))
}

/// Checks whether the pool allows this version, it is old enough, and the pools that go first are done with it.
///
/// # Errors
/// It does not.
fn allows_version<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    version: &'a str,
) -> Result<(), Reason<'a>> {
    let Some(pool) = fleet.pool_of(view) else {
        return Ok(());
    };
    if !pool.rules.is_none_or(|rules| rules.allow(version)) {
        return Err(Reason::VersionNotAllowed(version));
    }
    let node = view.node.filter(|node| !node.update_now);
    let ripens = || node.and_then(|node| pool.ripens((version, node.variant())));
    let waits = (pool.waits_for(version).map(Reason::WaitingForPool))
        .or_else(|| ripens().map(Reason::VersionTooYoung));
    // Order and age are for what is new.
    let waits = waits.filter(|_| !goes_back(view, version));
    waits.map_or(Ok(()), Err)
}

/// Whether the node runs a newer version than this one.
pub(crate) fn goes_back(view: &NodeView<'_>, version: &str) -> bool {
    let runs = view.node.and_then(|node| node.version());
    let both = runs
        .and_then(|runs| Version::parse(runs).ok())
        .zip(Version::parse(version).ok());
    both.is_some_and(|(runs, version)| version < runs)
}
