//! Which halts a person lifts, and which stand.

use std::collections::BTreeMap;

use brupop_api::fleet::{AcknowledgedHalt, Halt, VersionRecord};
use brupop_api::shadow::Failures;
use jiff::Timestamp;
use proptest::prelude::*;

use super::versions::{acknowledged, failed, failures, halted, names, over, record};
use super::world::*;
use super::*;
use crate::decide::records::{lifted, moment};
use crate::decide::slots;
use crate::facts::FleetFacts;
use crate::rules::FailureBudget;

/// Now, in the world of these tests.
const NOW: &str = "2026-11-21T04:00:00Z";

fn said(halted_at: &str) -> [AcknowledgedHalt; 1] {
    [AcknowledgedHalt { version: NEW.to_owned(), halted_at: halted_at.to_owned() }]
}

fn halt_of(record: &VersionRecord) -> (&str, &str) {
    record.halted.as_ref().map_or(("", ""), |halt| (&halt.at, &halt.reason))
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
        let said = said(halted_at);
        let fleet = FleetFacts { acknowledged: &said, slots: &NO_SLOTS, ..fleet() };
        let after = record(&fleet, Some(halted(failed(&["a"]))), &[]);
        assert_eq!(after.is_some(), lifts.is_some(), "{halted_at}");
        if let Some(after) = after {
            assert_eq!((names(&after), &after.halted), (vec!["a"], &None), "{halted_at}");
            assert_eq!(after.acknowledged_at.as_deref(), lifts, "{halted_at}");
            assert_eq!(record(&fleet, Some(after.clone()), &[]), None, "{halted_at}: once");
            let removed = FleetFacts { acknowledged: &[], ..fleet };
            assert_eq!(record(&removed, Some(after), &[]), None, "{halted_at}: removed, it halts nothing");
        }
    }
    let of_another = [AcknowledgedHalt { version: OLD.to_owned(), halted_at: NOW.to_owned() }];
    let fleet = FleetFacts { acknowledged: &of_another, slots: &NO_SLOTS, ..fleet() };
    assert_eq!(record(&fleet, Some(halted(failed(&["a"]))), &[]), None);
}

#[test]
fn a_future_halt_needs_its_very_time() {
    let mut ahead = halted(failed(&["a"]));
    "2026-11-21T04:30:00Z".clone_into(&mut ahead.halted.as_mut().unwrap().at);
    for (halted_at, lifts) in [("2026-11-21T04:30:00Z", true), ("2026-11-21T04:30:01Z", false), (NOW, false)]
    {
        let said = said(halted_at);
        let fleet = FleetFacts { acknowledged: &said, slots: &NO_SLOTS, ..fleet() };
        assert_eq!(record(&fleet, Some(ahead.clone()), &[]).is_some(), lifts, "{halted_at}");
    }
}

/// Somebody has typed a time of another zone; once it has come, it lifts nothing that came in between.
#[test]
fn a_failure_is_later_than_a_future_line() {
    let said = said("2026-11-21T05:00:00Z");
    let fleet = FleetFacts { acknowledged: &said, slots: &NO_SLOTS, ..fleet() };
    let said_time = said[0].halted_at.parse().ok();
    let at: Timestamp = moment(fleet.now, said_time, &VersionRecord::default()).parse().unwrap();
    assert!(at > "2026-11-21T05:00:00Z".parse().unwrap(), "{at}");
    let halt = Halt { at: at.to_string(), reason: String::new(), ..Halt::default() };
    let later = FleetFacts { now: "2026-11-21T06:00:00Z", ..fleet };
    assert_eq!(lifted(later.now, said_time, &halt), None);
}

#[test]
fn a_halt_without_readable_time_gets_one() {
    let mut timeless = halted(failed(&["a"]));
    "9999-99-99T00:00:00Z".clone_into(&mut timeless.halted.as_mut().unwrap().at);
    let fleet = FleetFacts { slots: &NO_SLOTS, ..fleet() };
    let mended = record(&fleet, Some(timeless), &[]).unwrap();
    assert_eq!(halt_of(&mended), (NOW, "it failed on a (FellBack)"));
    let said = acknowledged(&mended);
    assert!(
        record(&FleetFacts { acknowledged: &said, ..fleet }, Some(mended), &[]).unwrap().halted.is_none()
    );
}

#[test]
fn what_was_acknowledged_lifts_no_later_halt() {
    let fell_back = failures("FellBack");
    let at_once = said(NOW);
    // In the very second that was acknowledged, by a clock that went back, and long after.
    for (now, counted_at) in [
        (NOW, "2026-11-21T04:00:01Z"),
        ("2026-11-21T03:59:00Z", "2026-11-21T04:00:01Z"),
        ("2026-11-21T09:00:00Z", "2026-11-21T09:00:00Z"),
    ] {
        let mut gone_on = failed(&["a"]);
        gone_on.acknowledged_at = Some(NOW.to_owned());
        let fleet = FleetFacts { acknowledged: &at_once, now, ..fleet() };
        let again = record(&fleet, Some(gone_on), &[over(Some(&fell_back))]).unwrap();
        assert_eq!(halt_of(&again), (counted_at, "it failed on n (FellBack)"), "{now}");
        assert_eq!(again.acknowledged_at.as_deref(), Some(NOW));
        let left = FleetFacts { slots: &NO_SLOTS, ..fleet };
        assert_eq!(record(&left, Some(again.clone()), &[]), None, "{now}: it stands");
        let said = acknowledged(&again);
        let lifted = record(&FleetFacts { acknowledged: &said, ..left }, Some(again), &[]).unwrap();
        assert!(lifted.halted.is_none(), "{now}");
    }
    // Nor that of a version whose record was forgotten meanwhile.
    let fleet = FleetFacts { acknowledged: &at_once, ..fleet() };
    let first = record(&fleet, None, &[over(Some(&fell_back))]).unwrap();
    assert_eq!(halt_of(&first), ("2026-11-21T04:00:01Z", "it failed on n (FellBack)"));
    assert_eq!(record(&FleetFacts { slots: &NO_SLOTS, ..fleet }, Some(first), &[]), None);
}

#[test]
fn a_failure_under_halt_must_be_acknowledged() {
    let fell_back = failures("FellBack");
    let seen = halted(failed(&["a"]));
    let further = record(&fleet(), Some(seen.clone()), &[over(Some(&fell_back))]).unwrap();
    assert_eq!(halt_of(&further), (NOW, "it failed on n (FellBack), a (FellBack)"));
    let known = BTreeMap::from([(NEW.to_owned(), seen.clone())]);
    let passed = slots(&FleetFacts { versions: &known, ..fleet() }, &[over(Some(&fell_back))]);
    assert_eq!(passed.halted, [], "no new halt is told of");
    let too_early = acknowledged(&seen);
    let left = FleetFacts { acknowledged: &too_early, slots: &NO_SLOTS, ..fleet() };
    assert_eq!(record(&left, Some(further.clone()), &[]), None);
    let said = acknowledged(&further);
    let lifted = record(&FleetFacts { acknowledged: &said, ..left }, Some(further.clone()), &[]).unwrap();
    assert!(lifted.halted.is_none());
    // Another in the same second makes it a later one as well.
    let mut view = over(Some(&fell_back));
    view.shadow_name = "brs-o";
    node(&mut view, |node| node.name = "o");
    shadow(&mut view, |shadow| shadow.name = "brs-o");
    let held = slot("brs-o", UID, 1);
    let third = record(&FleetFacts { slots: &held, ..fleet() }, Some(further), &[view]).unwrap();
    assert_eq!(halt_of(&third).0, "2026-11-21T04:00:01Z");
    // In one pass: what was acknowledged goes, what nobody has seen halts.
    let both = FleetFacts { acknowledged: &too_early, ..fleet() };
    let both = record(&both, Some(seen), &[over(Some(&fell_back))]).unwrap();
    assert_eq!(
        (halt_of(&both), both.acknowledged_at.as_deref()),
        ((NOW, "it failed on n (FellBack)"), Some("2026-11-21T02:00:00Z"))
    );
}

#[test]
fn a_slot_taken_late_counts_nothing_anew() {
    let fell_back = failures("FellBack");
    let halted = record(&fleet(), None, &[over(Some(&fell_back))]).unwrap();
    let later = FleetFacts { now: "2026-11-21T05:00:00Z", ..fleet() };
    assert_eq!(record(&later, Some(halted.clone()), &[over(Some(&fell_back))]), None);
    let said = acknowledged(&halted);
    let left = FleetFacts { acknowledged: &said, slots: &NO_SLOTS, ..later };
    let lifted = record(&left, Some(halted), &[]).unwrap();
    assert_eq!(record(&later, Some(lifted.clone()), &[over(Some(&fell_back))]), None);
    let again = Failures { at: "2026-11-21T04:30:00Z".to_owned(), ..fell_back.clone() };
    let again = record(&later, Some(lifted.clone()), &[over(Some(&again))]).unwrap();
    assert_eq!(halt_of(&again), (later.now, "it failed on n (FellBack)"));
    // By a clock that was ahead: nobody knows.
    let behind = FleetFacts { now: "2026-11-21T03:30:00Z", ..fleet() };
    let again = record(&behind, Some(lifted), &[over(Some(&fell_back))]).unwrap();
    assert_eq!(halt_of(&again), ("2026-11-21T04:00:01Z", "it failed on n (FellBack)"));
}

#[test]
fn two_halted_versions_have_their_own_words() {
    let other = "1.21.0";
    let versions: BTreeMap<String, VersionRecord> =
        [NEW, other].map(|version| (version.to_owned(), halted(failed(&["a"])))).into();
    let lifted = |said: &[AcknowledgedHalt]| -> Vec<String> {
        let fleet = FleetFacts { acknowledged: said, slots: &NO_SLOTS, versions: &versions, ..fleet() };
        let sets = slots(&fleet, &[]).write.map_or_else(Vec::new, |write| write.sets);
        let lifts = sets.iter().filter_map(|(field, value)| match (field, value) {
            (Field::VersionRecord(version), Value::VersionRecord(it)) if it.halted.is_none() => {
                Some((*version).to_owned())
            }
            _ => None,
        });
        lifts.collect()
    };
    let [one] = said(NOW);
    let another = AcknowledgedHalt { version: other.to_owned(), ..one.clone() };
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
            let mut view = over(Some(&fell_back));
            view.shadow_name = name;
            node(&mut view, |node| node.name = &name[4..]);
            shadow(&mut view, |shadow| shadow.name = name);
            let (mut held, mut views) = (BTreeMap::new(), vec![]);
            match (event, &known) {
                (Event::Fails, _) => {
                    held = slot(name, UID, 1);
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
