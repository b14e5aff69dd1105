//! Tests of the halts that a person ends.

use proptest::prelude::*;

use super::versions::{failed, failures, halted, known, over, record, resuming};
use super::world::*;
use crate::tests::world::NOW;

/// A person resumes the new version, for the variant of most nodes, from a halt of this time.
fn said(halted_at: &str) -> [ResumedVersion; 1] {
    resuming(&VersionRecord {
        halted_at: Some(halted_at.to_owned()),
        ..known()
    })
}

/// The record after a pass in which no node has anything to tell; `None` = it stays as it is.
fn in_time(now: &str, resumed: &[ResumedVersion], known: VersionRecord) -> Option<VersionRecord> {
    let fleet = FleetFacts {
        now,
        resumed,
        ..without_slots()
    };
    record(&fleet, Some(known), &[])
}

/// The record after a pass in which the failure of the node `n` is told.
fn after_failure(
    now: &str,
    resumed: &[ResumedVersion],
    known: Option<VersionRecord>,
) -> Option<VersionRecord> {
    let fell_back = failures("FellBack");
    let fleet = FleetFacts {
        now,
        resumed,
        ..fleet()
    };
    record(&fleet, known, &[over(Some(&fell_back))])
}

#[test]
fn a_version_is_resumed_by_the_exact_time_of_its_halt() {
    let halt = halted(failed(&["a"]));
    let after = in_time(NOW, &resuming(&halt), halt.clone()).unwrap();
    assert_eq!(after, known(), "its failures are cleared");
    assert_eq!(in_time(NOW, &resuming(&halt), after), None, "once");
    let [mut of_another, mut of_variant] = [0, 1].map(|_| resuming(&halt));
    OLD.clone_into(&mut of_another[0].version);
    "metal-k8s-1.36".clone_into(&mut of_variant[0].variant);
    let others = ["2026-11-21T01:59:59Z", "2026-11-21T02:00:01Z", NOW, ""].map(said);
    for other in others.iter().chain([&of_another, &of_variant]) {
        assert_eq!(in_time(NOW, other, halt.clone()), None, "{other:?}");
    }
}

/// Once the entry is taken out, a patch that lingers must not end a later halt.
#[test]
fn what_resumes_tests_the_spec() {
    let halts = [halted(failed(&["a"]))];
    let resumed = resuming(&halts[0]);
    let fleet = FleetFacts {
        versions: &halts,
        resumed: &resumed,
        ..without_slots()
    };
    let write = allocate(&fleet, &[]).write.unwrap();
    let mut tests = write.tests.iter();
    assert!(tests.any(|(field, _)| *field == Field::Generation));
}

#[test]
fn a_later_halt_is_later_than_what_the_spec_names() {
    for (what, now, at) in [
        ("in the very second", NOW, "2026-11-21T04:00:01Z"),
        (
            "by a clock that went back",
            "2026-11-21T03:59:00Z",
            "2026-11-21T04:00:01Z",
        ),
        ("long after", "2026-11-21T09:00:00Z", "2026-11-21T09:00:00Z"),
    ] {
        let again = after_failure(now, &said(NOW), None).unwrap();
        assert_eq!(again.halted_at.as_deref(), Some(at), "{what}");
        assert_eq!(in_time(now, &said(NOW), again), None, "{what}: it stands");
    }
    let never = "9999-12-31T23:59:59Z";
    let again = after_failure(NOW, &said(never), None).unwrap();
    assert_eq!(
        again.halted_at.as_deref(),
        Some(NOW),
        "no later one is left"
    );
}

#[test]
fn a_failure_under_halt_must_be_seen() {
    let seen = halted(failed(&["a"]));
    let further = after_failure(NOW, &[], Some(seen.clone())).unwrap();
    assert_eq!(further.halted_at.as_deref(), Some(NOW));
    let fell_back = failures("FellBack");
    let versions = [seen.clone()];
    let told = FleetFacts {
        versions: &versions,
        ..fleet()
    };
    let told = allocate(&told, &[over(Some(&fell_back))]).halted;
    assert_eq!(told, [], "no new halt is told of");
    let too_early = resuming(&seen);
    assert_eq!(in_time(NOW, &too_early, further.clone()), None);
    assert!(in_time(NOW, &resuming(&further), further).is_some());
    // In one pass: what was seen ends, what nobody has seen halts.
    let both = after_failure(NOW, &too_early, Some(seen)).unwrap();
    assert_eq!(both.halted_at.as_deref(), Some(NOW));
    assert_eq!(both.failures.len(), 1);
}

#[test]
fn a_slot_taken_late_counts_nothing_anew() {
    let halted = after_failure(NOW, &[], None).unwrap();
    let later = "2026-11-21T05:00:00Z";
    assert_eq!(after_failure(later, &[], Some(halted.clone())), None);
    let resumed = after_failure(later, &resuming(&halted), Some(halted));
    assert_eq!(resumed.unwrap(), known(), "nor as a person resumes it");
}

/// The history of one version.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fails,
    /// A person resumes the version from the halt that they see.
    Says,
    /// The person takes that out again.
    TakesOut,
    /// A pass is made, and that is all.
    Nothing,
}

proptest! {
    /// Whatever the clocks of the leaders say: a halt ends if a person has seen all that was counted by then, and once.
    #[test]
    fn who_resumes_a_version_has_seen_its_halt(
        events in prop::collection::vec(
            (prop::sample::select(&[Event::Fails, Event::Says, Event::TakesOut, Event::Nothing][..]), -2..3_i64),
            0..24,
        ),
        budget in 1..3_u64,
    ) {
        let fell_back = failures("FellBack");
        let names: Vec<String> = (0..events.len()).map(|nth| format!("brs-n{nth}")).collect();
        let (mut known, mut resumed, mut second) = (None::<VersionRecord>, vec![], 1_800_000_000);
        // Numbers of failures: in all, when the person resumed, and when a halt last ended.
        let (mut counted, mut seen, mut ended, mut is_halted) = (0_u64, None, 0_u64, false);
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
                    resumed = resuming(record).to_vec();
                    seen = Some(counted);
                }
                (Event::TakesOut, _) => {
                    resumed.clear();
                    seen = None;
                }
                _ => {}
            }
            let fleet = FleetFacts {
                resumed: &resumed,
                slots: &held,
                now: &now,
                threshold: FailureThreshold { unproven: budget, proven: budget },
                ..fleet()
            };
            if is_halted && seen == Some(counted) {
                (is_halted, ended) = (false, counted);
            }
            counted += u64::from(matches!(event, Event::Fails));
            is_halted |= counted - ended >= budget;
            known = record(&fleet, known.clone(), &views).or(known);
            prop_assert_eq!(known.as_ref().is_some_and(|it| it.halted_at.is_some()), is_halted, "{:?}", known);
            prop_assert_eq!(record(&FleetFacts { slots: &NO_SLOTS, ..fleet }, known.clone(), &[]).is_some(),
                is_halted && seen == Some(counted), "what stands is not written again");
        }
    }
}
