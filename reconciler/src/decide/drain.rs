//! Emptying a node: out of load balancers, cordon, evict, and only then the grant.

use brupop_api::facts::ShadowFacts;
use brupop_api::{Field, Marker, Value};

use super::{Abort, Decision, Effect, Reason, writes};
use crate::facts::{FleetFacts, NodeFacts, Situation};

/// The next thing to do on the way to an empty node; `Ok` once it was seen empty while cordoned, and as long
/// as it is.
pub(super) fn empty<'a>(
    fleet: &FleetFacts<'a>,
    situation: &Situation<'a>,
    node: &NodeFacts<'a>,
    shadow: &ShadowFacts<'a>,
) -> Result<(), Decision<'a>> {
    let marker = node.marker.cloned().unwrap_or_else(|| Marker {
        shadow_uid: shadow.uid.to_owned(),
        attempt: shadow.spec.attempt.unwrap_or(0),
        ..Marker::default()
    });
    let marker = Marker { term: fleet.term, ..marker };
    let now = || Some(fleet.now.to_owned());

    if marker.drain_started_at.is_none() {
        if !fleet.enforced {
            // Who cannot ask the webhook can empty a node, but neither grant its reboot nor give the update up.
            return Err(Decision::wait(Reason::AdmissionNotEnforced));
        }
        if situation.pods.undrainable.is_some() && !fleet.force {
            let why = Abort::CannotBeEmptied;
            return Err(Decision::write(writes::abort(fleet, shadow, why), Reason::Aborting(why)));
        }
        if fleet.exclude && !node.excluded && marker.excluded_at.is_none() {
            let excluded = Marker { excluded_at: now(), ..marker };
            let sets = [(Field::ExcludedFromLoadBalancers, Value::Set)];
            let tests = [(Field::ExcludedFromLoadBalancers, Value::Absent)];
            return Err(Decision::write(
                writes::mark(node, tests, sets, excluded),
                Reason::ExcludedFromLoadBalancers,
            ));
        }
        if marker.excluded_at.is_some() && !situation.time.exclusion_over {
            return Err(Decision::wait(Reason::ExcludedFromLoadBalancers));
        }
        return Err(cordon(
            node,
            Marker {
                drain_started_at: now(),
                // A cordon that was adopted stays ours; a person's never becomes it.
                cordoned_at: if node.unschedulable { marker.cordoned_at.clone() } else { now() },
                tainted: situation.pods.has_other_node,
                evicted_owners: situation.pods.owners.to_vec(),
                ..marker
            },
        ));
    }
    // Whoever uncordons a node that was empty starts a drain of its own.
    let overdue = situation.time.drain_overdue && (marker.drained_at.is_none() || node.unschedulable);
    if overdue && !fleet.force {
        let why = Abort::DrainTimedOut;
        return Err(Decision::write(writes::abort(fleet, shadow, why), Reason::Aborting(why)));
    }
    if !node.unschedulable {
        // Somebody uncordoned it meanwhile: pods may have come, so it has not been seen empty.
        let again = Marker { cordoned_at: now(), drain_started_at: now(), drained_at: None, ..marker };
        return Err(cordon(node, again));
    }
    if marker.drained_at.is_none() {
        if situation.pods.has_other_node && !node.tainted {
            // There was no other node when it was cordoned, and now there is.
            return Err(cordon(node, Marker { tainted: true, ..marker }));
        }
        if !situation.pods.drained {
            let effect = if overdue { Effect::Delete } else { Effect::Evict };
            return Err(Decision { effect: Some(effect), reason: Reason::Draining });
        }
        let drained = Marker { drained_at: now(), ..marker };
        let write = writes::mark(node, [(Field::Unschedulable, Value::Set)], [], drained);
        return Err(Decision { effect: Some(Effect::ConfirmDrained(write)), reason: Reason::Draining });
    }
    if !situation.pods.known {
        return Err(Decision::wait(Reason::Draining));
    }
    if !situation.pods.drained {
        // Pods have come since: somebody uncordoned it and cordoned it again, and nobody saw; or they heed no cordon and
        // come back each time, so the deadline stays what it is.
        let again = Marker { drained_at: None, ..marker };
        let tests = [(Field::Unschedulable, Value::Set)];
        return Err(Decision::write(writes::mark(node, tests, [], again), Reason::Draining));
    }
    Ok(())
}

fn cordon<'a>(node: &NodeFacts<'a>, marker: Marker) -> Decision<'a> {
    let tests = [(Field::Unschedulable, Value::flag(node.unschedulable))];
    let mut sets = vec![];
    if !node.unschedulable {
        sets.push((Field::Unschedulable, Value::Set));
    }
    if marker.tainted && !node.tainted {
        sets.push((Field::UpdatingTaint, Value::Set));
    }
    Decision::write(writes::mark(node, tests, sets, marker), Reason::Cordoning)
}
