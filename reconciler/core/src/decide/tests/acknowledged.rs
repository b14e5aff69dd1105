//! Which halts a person lifts, and which stand.

use jiff::Timestamp;
use proptest::prelude::*;

use super::versions::{self, acknowledged, failed, failures, halted, names, over, record};
use super::world::*;
use crate::tests::world::NOW;

fn said(halted_at: &str) -> [AcknowledgedHalt; 1] {
    [AcknowledgedHalt {
        version: NEW.to_owned(),
        halted_at: halted_at.to_owned(),
    }]
}

fn halt_of(record: &VersionRecord) -> (&str, &str) {
    record
        .halted
        .as_ref()
        .map_or(("", ""), |halt| (&halt.at, &halt.reason))
}

/// The record after a pass in which no node has anything to tell; `None` = it stays as it is.
fn in_time(now: &str, said: &[AcknowledgedHalt], known: VersionRecord) -> Option<VersionRecord> {
    record(
        &FleetFacts {
            acknowledged: said,
            now,
            ..without_slots()
        },
        Some(known),
        &[],
    )
}

/// The record after a pass in which the failure of the node `n` is told.
fn after_failure(
    now: &str,
    said: &[AcknowledgedHalt],
    known: Option<VersionRecord>,
    failure: &LastFailure,
) -> Option<VersionRecord> {
    record(
        &FleetFacts {
            acknowledged: said,
            now,
            ..fleet()
        },
        known,
        &[over(Some(failure))],
    )
}

/// Does it lift the halt to acknowledge this record?
fn is_lifted_by_its_own_time(now: &str, known: &VersionRecord) -> bool {
    in_time(now, &acknowledged(known), known.clone()).is_some_and(|lifted| lifted.halted.is_none())
}

#[test]
fn an_acknowledgement_lifts_halts_up_to_its_time() {
    for (halted_at, lifts) in [
        ("2026-11-21T02:00:00Z", Some("2026-11-21T02:00:00Z")),
        ("2026-11-21T03:00:00+01:00", Some("2026-11-21T02:00:00Z")),
        ("2026-11-21T03:12:00Z", Some("2026-11-21T03:12:00Z")),
        (NOW, Some(NOW)),
        ("2026-11-21T01:59:59Z", None),
        ("2026-11-21T04:00:01Z", None),
        ("2099-01-01T00:00:00Z", None),
        ("", None),
        ("yesterday", None),
        ("2026-11-21", None),
    ] {
        let after = in_time(NOW, &said(halted_at), halted(failed(&["a"])));
        assert_eq!(after.is_some(), lifts.is_some(), "{halted_at}");
        if let Some(after) = after {
            assert_eq!(
                (names(&after), &after.halted),
                (vec!["a"], &None),
                "{halted_at}"
            );
            assert_eq!(after.acknowledged_at.as_deref(), lifts, "{halted_at}");
            assert_eq!(
                in_time(NOW, &said(halted_at), after.clone()),
                None,
                "{halted_at}: once"
            );
            assert_eq!(
                in_time(NOW, &[], after),
                None,
                "{halted_at}: removed, it halts nothing"
            );
        }
    }
    let of_another = [AcknowledgedHalt {
        version: OLD.to_owned(),
        halted_at: NOW.to_owned(),
    }];
    assert_eq!(in_time(NOW, &of_another, halted(failed(&["a"]))), None);
}

#[test]
fn a_future_halt_needs_its_very_time() {
    let mut ahead = halted(failed(&["a"]));
    "2026-11-21T04:30:00Z".clone_into(&mut ahead.halted.as_mut().unwrap().at);
    for (halted_at, lifts) in [
        ("2026-11-21T04:30:00Z", true),
        ("2026-11-21T04:30:01Z", false),
        (NOW, false),
    ] {
        assert_eq!(
            in_time(NOW, &said(halted_at), ahead.clone()).is_some(),
            lifts,
            "{halted_at}"
        );
    }
}

#[test]
fn a_halt_without_readable_time_gets_one() {
    let mut timeless = halted(failed(&["a"]));
    "9999-99-99T00:00:00Z".clone_into(&mut timeless.halted.as_mut().unwrap().at);
    let mended = in_time(NOW, &[], timeless).unwrap();
    assert_eq!(halt_of(&mended), (NOW, "it failed on a (FellBack)"));
    assert!(is_lifted_by_its_own_time(NOW, &mended));
}

#[test]
fn what_was_acknowledged_lifts_no_later_halt() {
    let (fell_back, said) = (failures("FellBack"), said(NOW));
    let gone_on = VersionRecord {
        acknowledged_at: Some(NOW.to_owned()),
        ..failed(&["a"])
    };
    for (what, now, known, counted_at) in [
        (
            "in the very second",
            NOW,
            Some(gone_on.clone()),
            "2026-11-21T04:00:01Z",
        ),
        (
            "by a clock that went back",
            "2026-11-21T03:59:00Z",
            Some(gone_on.clone()),
            "2026-11-21T04:00:01Z",
        ),
        (
            "long after",
            "2026-11-21T09:00:00Z",
            Some(gone_on),
            "2026-11-21T09:00:00Z",
        ),
        (
            "its record was forgotten meanwhile",
            NOW,
            None,
            "2026-11-21T04:00:01Z",
        ),
    ] {
        let acknowledged_at = known
            .as_ref()
            .and_then(|known| known.acknowledged_at.clone());
        let again = after_failure(now, &said, known, &fell_back).unwrap();
        assert_eq!(
            halt_of(&again),
            (counted_at, "it failed on n (FellBack)"),
            "{what}"
        );
        assert_eq!(again.acknowledged_at, acknowledged_at, "{what}");
        assert_eq!(
            in_time(now, &said, again.clone()),
            None,
            "{what}: it stands"
        );
        assert!(is_lifted_by_its_own_time(now, &again), "{what}");
    }
}

#[test]
fn a_failure_under_halt_must_be_acknowledged() {
    let (fell_back, seen) = (failures("FellBack"), halted(failed(&["a"])));
    let further = after_failure(NOW, &[], Some(seen.clone()), &fell_back).unwrap();
    assert_eq!(
        halt_of(&further),
        (NOW, "it failed on n (FellBack), a (FellBack)")
    );
    let known = BTreeMap::from([(NEW.to_owned(), seen.clone())]);
    let passed = slots(
        &FleetFacts {
            versions: &known,
            ..fleet()
        },
        &[over(Some(&fell_back))],
    );
    assert_eq!(passed.halted, [], "no new halt is told of");
    let too_early = acknowledged(&seen);
    assert_eq!(in_time(NOW, &too_early, further.clone()), None);
    assert!(is_lifted_by_its_own_time(NOW, &further));
    // Another in the same second makes it a later one as well.
    let (held, another) = (
        slot("brs-o", "brs-o", 1),
        over(Some(&fell_back)).named("brs-o"),
    );
    let third = record(
        &FleetFacts {
            slots: &held,
            ..fleet()
        },
        Some(further),
        &[another],
    )
    .unwrap();
    assert_eq!(halt_of(&third).0, "2026-11-21T04:00:01Z");
    // In one pass: what was acknowledged goes, what nobody has seen halts.
    let both = after_failure(NOW, &too_early, Some(seen), &fell_back).unwrap();
    assert_eq!(halt_of(&both), (NOW, "it failed on n (FellBack)"));
    assert_eq!(
        both.acknowledged_at.as_deref(),
        Some("2026-11-21T02:00:00Z")
    );
}

#[test]
fn a_slot_taken_late_counts_nothing_anew() {
    const LATER: &str = "2026-11-21T05:00:00Z";
    let fell_back = failures("FellBack");
    let halted = after_failure(NOW, &[], None, &fell_back).unwrap();
    assert_eq!(
        after_failure(LATER, &[], Some(halted.clone()), &fell_back),
        None
    );
    let lifted = in_time(LATER, &acknowledged(&halted), halted).unwrap();
    assert_eq!(
        after_failure(LATER, &[], Some(lifted.clone()), &fell_back),
        None
    );
    let again = LastFailure {
        at: "2026-11-21T04:30:00Z".to_owned(),
        ..fell_back.clone()
    };
    let again = after_failure(LATER, &[], Some(lifted.clone()), &again).unwrap();
    assert_eq!(halt_of(&again), (LATER, "it failed on n (FellBack)"));
    // By a clock that was ahead: nobody knows.
    let again = after_failure("2026-11-21T03:30:00Z", &[], Some(lifted), &fell_back).unwrap();
    assert_eq!(
        halt_of(&again),
        ("2026-11-21T04:00:01Z", "it failed on n (FellBack)")
    );
}

#[test]
fn two_halted_versions_have_their_own_words() {
    let other = "1.21.0";
    let versions: BTreeMap<String, VersionRecord> = [NEW, other]
        .map(|version| (version.to_owned(), halted(failed(&["a"]))))
        .into();
    let lifted = |said: &[AcknowledgedHalt]| -> Vec<&str> {
        let fleet = FleetFacts {
            acknowledged: said,
            versions: &versions,
            ..without_slots()
        };
        let write = slots(&fleet, &[]).write;
        let lifts = |version: &&str| {
            let record = write
                .as_ref()
                .and_then(|write| record_of(write, Field::VersionRecord(version)));
            record.is_some_and(|record| record.halted.is_none())
        };
        [NEW, other].into_iter().filter(lifts).collect()
    };
    let [one] = said(NOW);
    let another = AcknowledgedHalt {
        version: other.to_owned(),
        ..one.clone()
    };
    assert_eq!(lifted(std::slice::from_ref(&one)), [NEW]);
    assert_eq!(lifted(std::slice::from_ref(&another)), [other]);
    assert_eq!(lifted(&[one, another]), [NEW, other]);
}

/// What happens to one version.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A node fails.
    Fails,
    /// A person acknowledges the halt that they see.
    Says,
    /// The person takes that out again.
    TakesOut,
    /// A pass is made, and that is all.
    Nothing,
}

proptest! {
    /// Whatever the clocks of the leaders say: a halt is lifted if a person has seen all that was counted by then, and once.
    #[test]
    fn who_lifts_a_halt_has_seen_it(
        events in prop::collection::vec(
            (prop::sample::select(&[Event::Fails, Event::Says, Event::TakesOut, Event::Nothing][..]), -2..3_i64),
            0..24,
        ),
        budget in 1..3_u64,
    ) {
        let fell_back = failures("FellBack");
        let names: Vec<String> = (0..events.len()).map(|nth| format!("brs-n{nth}")).collect();
        let (mut known, mut acknowledged, mut second) = (None::<VersionRecord>, vec![], 1_800_000_000);
        // How many failures there were; how many of them when the person spoke, and when a halt was last lifted.
        let (mut counted, mut seen, mut lifted, mut is_halted) = (0_u64, None, 0_u64, false);
        for (name, (event, seconds)) in names.iter().zip(&events) {
            second += seconds;
            let now = Timestamp::from_second(second).unwrap().to_string();
            let view = over(Some(&fell_back)).named(name);
            let (mut held, mut views) = (BTreeMap::new(), vec![]);
            match (event, &known) {
                (Event::Fails, _) => {
                    held = slot(name, name, 1);
                    views.push(view);
                }
                (Event::Says, Some(record)) if is_halted => {
                    acknowledged = versions::acknowledged(record).to_vec();
                    seen = Some(counted);
                }
                (Event::TakesOut, _) => {
                    acknowledged.clear();
                    seen = None;
                }
                _ => {}
            }
            let fleet = FleetFacts {
                acknowledged: &acknowledged,
                slots: &held,
                now: &now,
                budget: FailureBudget { unproven: Some(budget), proven: None },
                ..fleet()
            };
            if is_halted && seen == Some(counted) {
                (is_halted, lifted) = (false, counted);
            }
            counted += u64::from(matches!(event, Event::Fails));
            is_halted |= counted - lifted >= budget;
            known = record(&fleet, known.clone(), &views).or(known);
            prop_assert_eq!(known.as_ref().is_some_and(|it| it.halted.is_some()), is_halted, "{:?}", known);
            prop_assert_eq!(record(&FleetFacts { slots: &NO_SLOTS, ..fleet }, known.clone(), &[]).is_some(),
                is_halted && seen == Some(counted), "what stands is not written again");
        }
    }
}
