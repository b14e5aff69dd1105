//! Times that a leader whose clock was ahead has written.

use brupop_api::fleet::{Done, VersionRecord};
use brupop_api::shadow::{DrainObstacle, Failures, ObstacleKind};
use brupop_api::{Field, Marker, Object, State, Value};

use super::world::*;
use crate::decide::{Abort, Effect, Reason, node as decide_node, slots};
use crate::facts::{BetweenUpdates, FleetFacts};
use std::collections::BTreeMap;

/// An hour after the fleet's.
const AHEAD: &str = "2026-11-21T05:00:00Z";
/// Clocks differ by as much.
const A_LITTLE: &str = "2026-11-21T04:01:00Z";
const NOW: &str = FleetFacts::EXAMPLE.now;

/// What is set, and that nothing but the leader's term is beside it.
fn corrected<'a>(effect: Option<&Effect<'a>>) -> Option<Vec<(Field<'a>, Value<'a>)>> {
    let Some(Effect::Correct(write)) = effect else { return None };
    Some(write.sets.iter().filter(|(field, _)| *field != Field::SpecLeaderTerm).cloned().collect())
}

#[test]
fn a_time_of_the_spec_that_lies_ahead_is_written_as_now() {
    let fleet = fleet();
    let set = |transition: bool, at: &str| {
        let failures = Failures {
            count: 2,
            attempt: 1,
            at: at.to_owned(),
            reason: "FellBack".to_owned(),
            obstacle: None,
        };
        let failures = &*Box::leak(Box::new(failures));
        let mut view = updating(State::StagedAndPerformedUpdate, State::Idle);
        shadow(&mut view, |shadow| shadow.spec.failures = Some(failures));
        view.time.transition_ahead = transition;
        let decision = decide_node(&fleet, &view);
        assert_eq!(decision.milestone, None);
        corrected(decision.effect.as_ref()).unwrap_or_default()
    };
    let noted = |at: &str, of_drain: &str| {
        let (kind, of) = (ObstacleKind::Refused, "apps/v1/ReplicaSet/shop/cart".to_owned());
        let obstacle = Some(DrainObstacle { kind, of, at: Some(of_drain.to_owned()) });
        Failures { at: at.to_owned(), obstacle, ..Failures::default() }
    };
    for (read, written) in [
        (noted(AHEAD, AHEAD), Some(noted(NOW, NOW))),
        (noted("2026-11-21T03:00:00Z", AHEAD), Some(noted("2026-11-21T03:00:00Z", NOW))),
        (noted(AHEAD, A_LITTLE), Some(noted(NOW, A_LITTLE))),
        (noted(NOW, A_LITTLE), None),
    ] {
        let mut view = updating(State::StagedAndPerformedUpdate, State::Idle);
        shadow(&mut view, |shadow| shadow.spec.failures = Some(&read));
        let written = written.map(|failures| vec![(Field::SpecFailures, Value::Failures(failures))]);
        assert_eq!(corrected(decide_node(&fleet, &view).effect.as_ref()), written, "{read:?}");
    }
    let time = (Field::SpecTransitionTimestamp, Value::text(NOW));
    let failed =
        Failures { count: 2, attempt: 1, at: NOW.to_owned(), reason: "FellBack".to_owned(), obstacle: None };
    let failed = (Field::SpecFailures, Value::Failures(failed));
    assert_eq!(set(true, AHEAD), [time.clone(), failed.clone()]);
    assert_eq!(set(true, NOW), [time]);
    assert_eq!(set(false, AHEAD), [failed]);
    // Written once: what it was written as, or clocks that differ a little, are left alone.
    for at in [NOW, A_LITTLE, "2026-11-20T00:00:00Z"] {
        assert_eq!(set(false, at), [], "{at}");
    }
}

#[test]
fn a_time_of_the_marker_that_lies_ahead_is_written_as_now() {
    let fleet = fleet();
    let before = Marker {
        excluded_at: Some("2026-11-21T03:00:00Z".to_owned()),
        cordoned_at: Some(AHEAD.to_owned()),
        drain_started_at: Some(AHEAD.to_owned()),
        drained_at: Some(A_LITTLE.to_owned()),
        ..marker(1, false)
    };
    let mut view = updating(State::StagedAndPerformedUpdate, State::StagedAndPerformedUpdate);
    marked(&mut view, &before);
    let decision = decide_node(&fleet, &view);
    let sets = corrected(decision.effect.as_ref()).unwrap();
    let [(Field::Marker, Value::Marker(after))] = &sets[..] else { panic!("{sets:?}") };
    let expected = Marker {
        cordoned_at: Some(NOW.to_owned()),
        drain_started_at: Some(NOW.to_owned()),
        ..before.clone()
    };
    assert_eq!(**after, expected);
    let after = after.clone().into_owned();
    marked(&mut view, &after);
    assert!(!matches!(decide_node(&fleet, &view).effect, Some(Effect::Correct(_))), "once");
}

#[test]
fn a_node_that_takes_no_change_is_given_up_whatever_time_its_marker_names() {
    let fleet = fleet();
    for excluded_at in [NOW, AHEAD] {
        let before = Marker { excluded_at: Some(excluded_at.to_owned()), ..marker(1, false) };
        let mut view = updating(State::StagedAndPerformedUpdate, State::StagedAndPerformedUpdate);
        marked(&mut view, &before);
        view.denied = Some("denied by a policy of somebody else");
        let decision = decide_node(&fleet, &view);
        let object = match &decision.effect {
            Some(Effect::Write(write)) => write.object,
            other => panic!("{excluded_at}: {other:?}"),
        };
        let reason = Reason::Aborting(Abort::NodeChangesDenied);
        assert_eq!((object, decision.reason), (Object::ShadowSpec(SHADOW), reason), "{excluded_at}");
    }
}

#[test]
fn times_of_the_ledger_that_lie_ahead_are_written_as_now() {
    let mut held = slot(SHADOW, UID, 1);
    held.get_mut(SHADOW).unwrap().since = Some(AHEAD.to_owned());
    let done = |since: &str| {
        let done_pools = BTreeMap::from([
            ("canary".to_owned(), Done { since: Some(since.to_owned()), longest_seconds: 3 }),
            ("web".to_owned(), Done { since: Some("2026-11-21T03:00:00Z".to_owned()), longest_seconds: 0 }),
        ]);
        BTreeMap::from([(NEW.to_owned(), VersionRecord { done_pools, ..VersionRecord::default() })])
    };
    let (ahead, past) = (done(AHEAD), done(NOW));
    let fleet =
        FleetFacts { slots: &held, versions: &ahead, between_updates: BetweenUpdates::EndedAhead, ..fleet() };
    // A node that could begin does not in the same write.
    let mut other = idle();
    (other.shadow_name, other.owner_uid) = ("brs-o", None);
    shadow(&mut other, |shadow| (shadow.name, shadow.uid) = ("brs-o", "o"));
    let views = [updating(State::StagedAndPerformedUpdate, State::Idle), other];
    let decided = slots(&fleet, &views);
    let write = decided.write.unwrap();
    assert_eq!((write.object, decided.taken.len()), (Object::Ledger, 0));
    let mut slot = held[SHADOW].clone();
    slot.since = Some(NOW.to_owned());
    assert_eq!(
        write.sets,
        [
            (Field::Slot(SHADOW), Value::Slot(slot.clone())),
            (Field::VersionRecord(NEW), Value::VersionRecord(past[NEW].clone())),
            (Field::LastFinished, Value::text(NOW)),
        ]
    );
    assert!(write.tests.contains(&(Field::VersionRecord(NEW), Value::VersionRecord(ahead[NEW].clone()))));
    let held = BTreeMap::from([(SHADOW.to_owned(), slot)]);
    let after = FleetFacts {
        slots: &held,
        versions: &past,
        between_updates: BetweenUpdates::PauseIsOver,
        default_pool: limited(2),
        ..fleet
    };
    let decided = slots(&after, &views);
    assert_eq!(decided.taken, [1], "once, and then things go on");
}

#[test]
fn until_it_is_corrected_updates_pause() {
    let fleet = FleetFacts { between_updates: BetweenUpdates::EndedAhead, ..without_slots() };
    assert!(fleet.must_pause(&idle().node.unwrap(), false));
    assert!(!matches!(decide_node(&fleet, &idle()).reason, Reason::NotLeading));
}
