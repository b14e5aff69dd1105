use MaySend::{Ready, UnderWay, Until};

use super::*;
use serde_json::json;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_write_waits_until_it_comes_back() {
    let mut last = InFlight::default();
    assert_eq!(last.readiness(Some(5), s(0)), Ready);
    last.sent();
    assert_eq!(last.readiness(Some(9), s(100)), UnderWay);
    assert_eq!(
        last.written("", Some(5), Some(7), None, s(1)),
        Wrote::Change
    );
    assert_eq!(last.readiness(Some(6), s(2)), Until(s(31)));
    assert_eq!(
        last.readiness(None, s(2)),
        Ready,
        "it has gone: the fleet is made again at once"
    );
    assert_eq!(last.readiness(Some(7), s(2)), Ready);
    assert_eq!(last.readiness(Some(8), s(2)), Ready);
    assert_eq!(last.readiness(Some(6), s(31)), Ready, "the watch missed it");
    last.written("", None, Some(9), None, s(40));
    assert_eq!(
        last.readiness(None, s(41)),
        Until(s(70)),
        "made, and not seen yet"
    );
    assert_eq!(last.readiness(Some(9), s(41)), Ready);
}

#[test]
fn a_refusal_waits_for_another_version_or_longer() {
    let mut last = InFlight::default();
    assert_eq!(last.refused(Some(5), s(0)), 1);
    assert_eq!(last.readiness(Some(5), s(1)), Until(s(4)));
    assert_eq!(last.readiness(Some(6), s(1)), Ready);
    for times in 2..=8 {
        assert_eq!(last.refused(Some(5), s(0)), times);
    }
    assert_eq!(last.readiness(Some(5), s(1)), Until(s(60)));
    last.written("", Some(5), Some(9), None, s(0));
    assert_eq!(last.refused(Some(9), s(0)), 1, "a success ends the row");
}

#[test]
fn only_refusals_count_as_refusals() {
    let mut last = InFlight::default();
    last.failed("timeout", s(0));
    last.failed("timeout", s(0));
    assert_eq!(last.refused(Some(5), s(0)), 1);
    last.failed("timeout", s(0));
    assert_eq!(
        [(); 2].map(|()| last.refused(Some(5), s(0))),
        [2, 3],
        "though failures came between them"
    );
}

#[test]
fn writes_that_somebody_undoes_slow_down() {
    let mut last = InFlight::default();
    let mut write = |reason, version| {
        let wrote = last.written(reason, Some(version), Some(version + 1), None, s(0));
        (wrote, last.readiness(Some(version + 2), s(0)))
    };
    for version in 0..16 {
        assert_eq!(write("Draining", version), (Wrote::Change, Ready));
    }
    assert_eq!(
        write("Draining", 16),
        (Wrote::Again { first: true }, Until(s(1)))
    );
    assert_eq!(
        write("Draining", 17),
        (Wrote::Again { first: false }, Until(s(2)))
    );
    assert_eq!(write("Rebooting", 18), (Wrote::Change, Ready));
    for version in 19..60 {
        assert_eq!(
            write("", version),
            (Wrote::Change, Ready),
            "the ledger is written for many nodes"
        );
    }
}

#[test]
fn a_write_that_slows_down_still_waits_to_come_back() {
    let mut last = InFlight::default();
    for version in 0..17 {
        last.written("Draining", Some(version), Some(version + 1), None, s(0));
    }
    assert_eq!(
        last.readiness(Some(16), s(2)),
        Until(s(31)),
        "decided on what it replaced"
    );
    assert_eq!(last.readiness(Some(17), s(0)), Until(s(1)));
    assert_eq!(last.readiness(Some(17), s(1)), Ready);
    assert_eq!(
        last.readiness(Some(16), s(31)),
        Ready,
        "the watch missed it"
    );
}

#[test]
fn what_changed_nothing_waits_though_its_patch_differs() {
    let mut last = InFlight::default();
    for (nth, wait) in [(1, 4), (2, 4), (3, 4), (4, 8), (5, 16)] {
        last.written(
            "Draining",
            Some(5),
            Some(5),
            Some(json!({"now": nth})),
            s(0),
        );
        assert!(!last.would_repeat(Some(5), || Some(json!({"now": nth + 1}))));
        assert_eq!(last.readiness(Some(5), s(0)), Until(s(wait)));
        assert_eq!(last.readiness(Some(6), s(0)), Ready);
    }
}

#[test]
fn a_failure_waits_longer_whatever_the_version() {
    let mut last = InFlight::default();
    for (version, wait) in [
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 8),
        (5, 16),
        (6, 32),
        (7, 60),
        (8, 60),
    ] {
        last.sent();
        last.failed("timeout", s(100));
        assert_eq!(last.readiness(Some(version), s(100)), Until(s(100 + wait)));
    }
    assert_eq!(last.readiness(None, s(160)), Ready);
}

#[test]
fn a_failure_is_logged_once_for_each_reason() {
    let mut last = InFlight::default();
    let mut failed = |why| last.failed(why, s(0));
    assert_eq!(
        ["a", "a", "b", "a"].map(&mut failed),
        [true, false, true, false]
    );
    last.postponed(s(0));
    assert!(!last.failed("a", s(0)), "it did not end in between");
    last.written("", None, Some(1), None, s(0));
    assert!(last.failed("a", s(0)), "it came back");
}

#[test]
fn a_removed_object_is_gone_or_another() {
    let mut last = InFlight::default();
    last.removed(Some(5), s(0));
    assert_eq!(last.readiness(Some(5), s(1)), Until(s(30)));
    assert_eq!(last.readiness(None, s(1)), Ready);
}

#[test]
fn what_changed_nothing_waits_for_a_change() {
    let (one, other) = (|| Some(json!({"limit": 1})), || Some(json!({"limit": 2})));
    let mut last = InFlight::default();
    let write =
        |last: &mut InFlight, seen, written| last.written("", Some(seen), written, one(), s(0));
    assert_eq!(write(&mut last, 5, Some(6)), Wrote::Change);
    assert!(!last.would_repeat(Some(6), one));
    assert_eq!(write(&mut last, 6, Some(6)), Wrote::Nothing { first: true });
    assert!(last.would_repeat(Some(6), one));
    assert!(!last.would_repeat(Some(7), one), "the object has changed");
    assert!(
        !last.would_repeat(Some(6), other),
        "something else is wanted"
    );
    assert_eq!(
        write(&mut last, 7, Some(7)),
        Wrote::Nothing { first: false }
    );
    assert_eq!(write(&mut last, 7, Some(8)), Wrote::Change);
    assert!(!last.would_repeat(Some(7), one));
}

#[test]
fn without_version_or_patch_nothing_is_a_repetition() {
    let mut last = InFlight::default();
    for (seen, written, patch) in [
        (None, None, Some(json!([]))),
        (Some(1), None, Some(json!([]))),
        (Some(1), Some(1), None),
    ] {
        assert_eq!(last.written("", seen, written, patch, s(0)), Wrote::Change);
        assert!(!last.would_repeat(seen, || Some(json!([]))));
    }
}
