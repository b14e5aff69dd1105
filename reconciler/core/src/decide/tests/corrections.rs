//! Times that a leader whose clock was ahead has written.

use super::world::*;

/// An hour after the fleet's.
const AHEAD: &str = "2026-11-21T05:00:00Z";
/// Clocks differ by as much.
const A_LITTLE: &str = "2026-11-21T04:01:00Z";
const NOW: &str = FleetFacts::EXAMPLE.now;

/// What is set beside the leader's term.
fn corrected<'a>(decision: &Decision<'a>) -> Vec<(Field<'a>, Value<'a>)> {
    let Some(Effect::Correct(write)) = &decision.effect else { return vec![] };
    write.sets.iter().filter(|(field, _)| *field != Field::SpecLeaderTerm).cloned().collect()
}

#[test]
fn a_time_of_the_spec_that_lies_ahead_is_written_as_now() {
    let failed = |at: &str, of_drain: Option<&str>| {
        let (kind, of) = (ObstacleKind::Refused, "apps/v1/ReplicaSet/shop/cart".to_owned());
        let obstacle = of_drain.map(|at| DrainObstacle { kind, of, at: Some(at.to_owned()) });
        Failures { count: 2, attempt: 1, at: at.to_owned(), reason: "FellBack".to_owned(), obstacle }
    };
    let past = "2026-11-21T03:00:00Z";
    for (transition_ahead, read, written) in [
        (true, failed(AHEAD, None), Some(failed(NOW, None))),
        (true, failed(NOW, None), None),
        (false, failed(AHEAD, None), Some(failed(NOW, None))),
        (false, failed(AHEAD, Some(AHEAD)), Some(failed(NOW, Some(NOW)))),
        (false, failed(past, Some(AHEAD)), Some(failed(past, Some(NOW)))),
        (false, failed(AHEAD, Some(A_LITTLE)), Some(failed(NOW, Some(A_LITTLE)))),
        // Written once: what it was written as, or clocks that differ a little, are left alone.
        (false, failed(NOW, Some(A_LITTLE)), None),
        (false, failed(A_LITTLE, None), None),
        (false, failed(past, None), None),
    ] {
        let view: NodeView<'_> = updating(StagedAndPerformedUpdate, Idle);
        let view = view
            .with(|view| view.time.transition_ahead = transition_ahead)
            .with_shadow(|shadow| shadow.spec.failures = Some(&read));
        let decision = decide(&fleet(), &view);
        let time = transition_ahead.then_some((Field::SpecTransitionTimestamp, Value::text(NOW)));
        let failures = written.map(|failures| (Field::SpecFailures, Value::Failures(failures)));
        let expected: Vec<_> = time.into_iter().chain(failures).collect();
        assert_eq!((corrected(&decision), decision.milestone), (expected, None), "{read:?}");
    }
}

#[test]
fn a_time_of_the_marker_that_lies_ahead_is_written_as_now() {
    let at = |at: &str| Some(at.to_owned());
    let before = Marker {
        excluded_at: at("2026-11-21T03:00:00Z"),
        cordoned_at: at(AHEAD),
        drain_started_at: at(AHEAD),
        drained_at: at(A_LITTLE),
        ..marker(1, false)
    };
    let after = Marker { cordoned_at: at(NOW), drain_started_at: at(NOW), ..before.clone() };
    let decision = |marker| decide(&fleet(), &staged().marked_by(marker));
    let sets = corrected(&decision(Box::leak(Box::new(before))));
    let [(Field::Marker, Value::Marker(written))] = &sets[..] else { panic!("{sets:?}") };
    assert_eq!(**written, after);
    assert_eq!(corrected(&decision(Box::leak(Box::new(after)))), [], "once");
}

#[test]
fn a_node_that_takes_no_change_is_given_up_whatever_time_its_marker_names() {
    for excluded_at in [NOW, AHEAD] {
        let before = Marker { excluded_at: Some(excluded_at.to_owned()), ..marker(1, false) };
        let view: NodeView<'_> = staged();
        let view = view.marked_by(&before).with(|view| view.denied = Some("a policy of somebody else"));
        let decision = decide(&fleet(), &view);
        let reason = Reason::Aborting(Abort::NodeChangesDenied);
        assert_eq!(write(&decision).object, Object::ShadowSpec(SHADOW), "{excluded_at}");
        assert_eq!(decision.reason, reason, "{excluded_at}");
    }
}

#[test]
fn times_of_the_ledger_that_lie_ahead_are_written_as_now() {
    let held = |since: &str| {
        let slot = Slot { since: Some(since.to_owned()), ..SLOT[SHADOW].clone() };
        BTreeMap::from([(SHADOW.to_owned(), slot)])
    };
    let done = |since: &str| {
        let done_pools = BTreeMap::from([
            ("canary".to_owned(), Done { since: Some(since.to_owned()), longest_seconds: 3 }),
            ("web".to_owned(), Done { since: Some("2026-11-21T03:00:00Z".to_owned()), longest_seconds: 0 }),
        ]);
        BTreeMap::from([(NEW.to_owned(), VersionRecord { done_pools, ..VersionRecord::default() })])
    };
    let (ahead, past) = ((held(AHEAD), done(AHEAD)), (held(NOW), done(NOW)));
    let between_updates = BetweenUpdates::EndedAhead;
    let fleet = FleetFacts { slots: &ahead.0, versions: &ahead.1, between_updates, ..fleet() };
    assert!(fleet.must_pause(&idle().node.unwrap(), false), "until it is corrected");
    // A node that could begin does not in the same write.
    let views = [updating(StagedAndPerformedUpdate, Idle), idle().named("brs-o")];
    let decided = slots(&fleet, &views);
    let write = decided.write.unwrap();
    assert_eq!((write.object, decided.taken.len()), (Object::Ledger, 0));
    let record = |versions: &BTreeMap<String, VersionRecord>| Value::VersionRecord(versions[NEW].clone());
    assert_eq!(
        write.sets,
        [
            (Field::Slot(SHADOW), Value::Slot(past.0[SHADOW].clone())),
            (Field::VersionRecord(NEW), record(&past.1)),
            (Field::LastFinished, Value::text(NOW)),
        ]
    );
    assert!(write.tests.contains(&(Field::VersionRecord(NEW), record(&ahead.1))));
    let after = FleetFacts {
        slots: &past.0,
        versions: &past.1,
        between_updates: BetweenUpdates::PauseIsOver,
        default_pool: limited(2),
        ..fleet
    };
    assert_eq!(slots(&after, &views).taken, [1], "once, and then things go on");
}
