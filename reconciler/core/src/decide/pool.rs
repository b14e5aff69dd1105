//! What the pool of a node says of its update.

use semver::Version;

use super::{Abort, Case, Decision, Reason};
use crate::facts::{FleetFacts, NodeFacts, NodeView, Steering};
use crate::rules::GateState;
use crate::window::Starts;

/// How far an update has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not begun.
    Start,
    /// It has begun; the node is not cordoned yet.
    Cordon,
}

/// Does the pool of this node let its update start, or go on to the cordon?
///
/// # Errors
/// Why not.
pub(super) fn allows<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &NodeFacts<'a>,
    stage: Stage,
) -> Result<(), Reason<'a>> {
    let starts = match (view.steering, fleet.pool_of(view)) {
        (Steering::Conflict(pools), _) => return Err(Reason::PoolConflict(pools)),
        (_, Some(pool)) => pool.starts,
        (_, None) => return Err(Reason::NotUnderstood("its pool is not known yet")),
    };
    match starts {
        Starts::AdmissionNotEnforced => Err(Reason::AdmissionNotEnforced),
        Starts::Invalid(why) => Err(Reason::PoolInvalid(why)),
        Starts::Paused => Err(Reason::PoolPaused),
        Starts::Frozen(until) if !node.update_now => Err(Reason::Frozen(until)),
        Starts::OutsideWindow(until) if !node.update_now => Err(Reason::OutsideWindow(until)),
        Starts::Open | Starts::Frozen(_) | Starts::OutsideWindow(_) => match awaited(fleet, view) {
            Some(_) if stage == Stage::Cordon => Ok(()),
            _ => well(fleet, view),
        },
    }
}

/// Of the gates of its pool one of which nobody knows for now, if the others are open: what has begun waits for it.
pub(super) fn awaited<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Reason<'a>> {
    let (state, gate) = fleet.pool_of(view)?.gate?;
    (state == GateState::Awaited).then_some(Reason::GateUnknown(gate))
}

/// Are the gates of its pool open?
///
/// # Errors
/// One is not.
pub(super) fn well<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<(), Reason<'a>> {
    match fleet.pool_of(view).and_then(|pool| pool.gate) {
        None => Ok(()),
        Some((GateState::Closed, gate)) => Err(Reason::GateClosed(gate)),
        Some((_, gate)) => Err(Reason::GateUnknown(gate)),
    }
}

/// Does it allow this version, is it old enough, and are the pools done with it that go first?
///
/// # Errors
/// It does not.
pub(super) fn allows_version<'a>(
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
    // Order and age are for what is new.
    if goes_back(view, version) {
        return Ok(());
    }
    if let Some(first) = pool.waits_for(version) {
        return Err(Reason::WaitingForPool(first));
    }
    let node = view.node.filter(|node| !node.update_now);
    node.and_then(|node| pool.ripens((version, node.variant)))
        .map_or(Ok(()), |until| Err(Reason::VersionTooYoung(until)))
}

/// Does the node run a newer version than this one?
pub(crate) fn goes_back(view: &NodeView<'_>, version: &str) -> bool {
    let runs = view.node.and_then(|node| node.version);
    let both = runs
        .and_then(|runs| Version::parse(runs).ok())
        .zip(Version::parse(version).ok());
    both.is_some_and(|(runs, version)| version < runs)
}

impl<'a> Case<'_, 'a> {
    /// The update has begun, perhaps hours ago, and the node is not cordoned yet: is it given up because the pool no longer
    /// allows it, or the whole fleet is paused, or because a node of another zone is out of service? Or does it wait for a
    /// gate?
    pub(super) fn closed(self) -> Option<Decision<'a>> {
        let Self {
            fleet,
            view,
            node,
            shadow,
            ..
        } = self;
        let version = shadow.spec.version.unwrap_or_default();
        let still_allowed = allows(fleet, view, node, Stage::Cordon)
            .and_then(|()| allows_version(fleet, view, version));
        if still_allowed.is_err() || fleet.starts == Starts::Paused || view.busy_zone.is_some() {
            return Some(self.abort(Abort::PoolClosed));
        }
        awaited(fleet, view).map(Decision::wait)
    }
}
