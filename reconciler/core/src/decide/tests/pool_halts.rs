//! Which failures count in a pool, whom that halts, and how it is lifted.

use std::collections::BTreeMap;

use brupop_api::Write;
use brupop_api::crds::POOL_RECORDS_MAX;
use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::shadow::Failures;
use jiff::Timestamp;
use serde_json::json;

use super::versions::{acknowledged, failures, halted, names, over};
use super::world::*;
use super::*;
use crate::decide::{Abort, Reason, Slots, node as decide, slots};
use crate::facts::{FleetFacts, NodeView, PoolFacts, Steering};
use crate::rules::Rules;

const WORKLOADS: &str = "WorkloadsUnavailable";

pub(super) fn rules(spec: &serde_json::Value) -> Rules {
    let mut all = json!({"nodeSelector": {}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    Rules::of(&serde_json::from_value(all).unwrap()).unwrap()
}

pub(super) fn pool<'a>(name: &'a str, rules: &'a Rules) -> PoolFacts<'a> {
    PoolFacts { name, nodes: 4, limit: 4, rules: Some(rules), ..PoolFacts::DEFAULT }
}

/// A slot of the node, taken in this pool.
fn slot_of(pool: Option<&str>) -> BTreeMap<String, Slot> {
    let slot = Slot {
        version: Some(NEW.to_owned()),
        pool: pool.map(str::to_owned),
        ..slot(SHADOW, UID, 1)[SHADOW].clone()
    };
    BTreeMap::from([(SHADOW.to_owned(), slot)])
}

type Records = BTreeMap<String, VersionRecord>;

/// What a pass makes of these views, which are of nodes of the pool `web`.
fn pass<T>(
    spec: &serde_json::Value,
    (slots_in_use, pool_versions, versions): (&BTreeMap<String, Slot>, &Records, &Records),
    views: &[NodeView<'_>],
    see: impl FnOnce(Slots<'_>) -> T,
) -> T {
    let (db, web) = (rules(&json!({})), rules(spec));
    let pools = [pool("db", &db), pool("web", &web)];
    let fleet =
        FleetFacts { slots: slots_in_use, pool_versions, versions, pools: &pools, ceiling: 9, ..fleet() };
    let of_web = views.iter().map(|view| NodeView { steering: Steering::Pool(1), ..*view });
    see(slots(&fleet, &of_web.collect::<Vec<_>>()))
}

fn record_of(write: Option<&Write<'_>>, pool: &str) -> Option<VersionRecord> {
    match sets(write?, Field::PoolRecord { pool, version: NEW }) {
        Some(Value::VersionRecord(record)) => Some(record),
        _ => None,
    }
}

#[test]
fn workloads_count_in_their_pool_and_hosts_in_the_fleet() {
    let none = Records::new();
    for (reason, taken_in, counts_in_pool) in [
        (WORKLOADS, Some("web"), true),
        ("FellBack", Some("web"), false),
        ("NotReady", Some("web"), false),
        (WORKLOADS, None, false),
        (WORKLOADS, Some("gone"), false),
    ] {
        let failure = failures(reason);
        let slots = slot_of(taken_in);
        let (in_pool, in_fleet) =
            pass(&json!({}), (&slots, &none, &none), &[over(Some(&failure))], |slots| {
                let write = slots.write.as_ref();
                let in_fleet = write.and_then(|write| sets(write, Field::VersionRecord(NEW))).is_some();
                (record_of(slots.write.as_ref(), "web"), in_fleet)
            });
        assert_eq!(
            in_pool.as_ref().map(names),
            counts_in_pool.then(|| vec!["n"]),
            "{reason} in {taken_in:?}"
        );
        assert_eq!(in_fleet, !counts_in_pool, "{reason} in {taken_in:?}");
        assert_eq!(in_pool.is_some_and(|record| record.halted.is_some()), counts_in_pool);
    }
    // The slot says in which pool the update began, wherever its node has gone since.
    let (failure, slots) = (failures(WORKLOADS), slot_of(Some("db")));
    let record = pass(&json!({}), (&slots, &none, &none), &[over(Some(&failure))], |slots| {
        record_of(slots.write.as_ref(), "db")
    });
    assert!(record.is_some());
}

#[test]
fn the_pool_says_how_many_may_fail() {
    let proven =
        Records::from([(NEW.to_owned(), VersionRecord { succeeded: 1, ..VersionRecord::default() })]);
    let none = Records::new();
    let failure = failures(WORKLOADS);
    for (what, spec, versions, halts) in [
        ("a new version", json!({}), &none, true),
        ("a proven one", json!({}), &proven, false),
        ("a new one, where two may", json!({"failureThreshold": {"unproven": 2}}), &none, false),
        ("a proven one, where none may", json!({"failureThreshold": {"proven": 1}}), &proven, true),
    ] {
        let slots = slot_of(Some("web"));
        let halted = pass(&spec, (&slots, &none, versions), &[over(Some(&failure))], |slots| {
            let why: Vec<String> = slots.halted.iter().map(|halted| halted.why.clone()).collect();
            (record_of(slots.write.as_ref(), "web").unwrap().halted.is_some(), why)
        });
        assert_eq!(halted.0, halts, "{what}");
        assert_eq!(
            halted.1,
            if halts { vec!["in the pool web, it failed on n (WorkloadsUnavailable)"] } else { vec![] },
            "{what}"
        );
    }
}

/// The halt of a record, as the ledger has it.
fn of_web() -> Records {
    let failure = failures(WORKLOADS);
    let slots = slot_of(Some("web"));
    let none = Records::new();
    let record = pass(&json!({}), (&slots, &none, &none), &[over(Some(&failure))], |slots| {
        record_of(slots.write.as_ref(), "web").unwrap()
    });
    Records::from([(format!("web/{NEW}"), record)])
}

#[test]
fn a_halt_holds_its_pool_and_no_other() {
    let (records, none) = (of_web(), Records::new());
    let (db, web) = (rules(&json!({})), rules(&json!({})));
    let pools = [pool("db", &db), pool("web", &web)];
    let fleet =
        FleetFacts { slots: &NO_SLOTS, pool_versions: &records, pools: &pools, ceiling: 9, ..fleet() };
    let in_pool = |index| NodeView { steering: Steering::Pool(index), ..idle() };
    assert_eq!(decide(&fleet, &in_pool(1)).reason, Reason::VersionHaltedInPool(NEW));
    assert_eq!(slots(&fleet, &[in_pool(1)]).taken, [0_usize; 0]);
    assert_eq!(slots(&fleet, &[in_pool(0)]).taken, [0]);
    // An update that has not come to its reboot is given up.
    let view = NodeView {
        steering: Steering::Pool(1),
        ..updating(State::StagedAndPerformedUpdate, State::StagedAndPerformedUpdate)
    };
    assert_eq!(decide(&fleet, &view).reason, Reason::Aborting(Abort::VersionHalted));
    // Nobody begins in the breath in which it is halted.
    let failure = failures(WORKLOADS);
    let mut next = idle();
    next.shadow_name = "brs-o";
    node(&mut next, |node| node.name = "o");
    shadow(&mut next, |shadow| (shadow.name, shadow.uid) = ("brs-o", "o-uid"));
    let taken =
        pass(&json!({}), (&slot_of(Some("web")), &none, &none), &[over(Some(&failure)), next], |slots| {
            slots.taken
        });
    assert_eq!(taken, [0_usize; 0]);
}

#[test]
fn the_pool_lifts_its_halt() {
    let (records, none) = (of_web(), Records::new());
    let said = acknowledged(&records[&format!("web/{NEW}")]);
    let spec = json!({"acknowledgedHalts": said});
    let lifted =
        pass(&spec, (&NO_SLOTS, &records, &none), &[], |slots| record_of(slots.write.as_ref(), "web"));
    let lifted = lifted.unwrap();
    assert_eq!(
        (lifted.halted.is_some(), lifted.acknowledged_at.as_deref()),
        (false, Some(said[0].halted_at.as_str()))
    );
    // What fails later is halted again, although the acknowledgement still stands there.
    let failed = Failures { at: "2026-11-21T04:00:00.500Z".to_owned(), ..failures(WORKLOADS) };
    let lifted = Records::from([(format!("web/{NEW}"), lifted)]);
    let slots = slot_of(Some("web"));
    let again = pass(&spec, (&slots, &lifted, &none), &[over(Some(&failed))], |slots| {
        record_of(slots.write.as_ref(), "web")
    });
    let halt = again.unwrap().halted.unwrap();
    assert!(halt.at.parse::<Timestamp>().unwrap() > said[0].halted_at.parse().unwrap(), "{halt:?}");
    // Another pool's acknowledgement, or the fleet's, lifts nothing.
    let fleet_says = FleetFacts { acknowledged: &said, slots: &NO_SLOTS, pool_versions: &records, ..fleet() };
    assert_eq!(slots_write(&fleet_says), None);
}

fn slots_write<'a>(fleet: &FleetFacts<'a>) -> Option<Write<'a>> {
    slots(fleet, &[]).write
}

#[test]
fn what_finds_no_room_counts_in_the_fleet() {
    let failure = failures(WORKLOADS);
    let (slots, none) = (slot_of(Some("web")), Records::new());
    let full = |pool: &str, record: VersionRecord| -> Records {
        (0..POOL_RECORDS_MAX).map(|nth| (format!("{pool}/1.0.{nth}"), record.clone())).collect()
    };
    for (what, records, in_pool, gone) in [
        ("halts of pools that are there", full("db", halted(VersionRecord::default())), false, false),
        ("halts of pools that are gone", full("gone", halted(VersionRecord::default())), true, true),
        ("halts that were lifted", full("db", VersionRecord::default()), true, true),
    ] {
        let (record, in_fleet, removed) =
            pass(&json!({}), (&slots, &records, &none), &[over(Some(&failure))], |slots| {
                let write = slots.write.unwrap();
                let removed = write.sets.iter().filter(|(field, value)| {
                    matches!(field, Field::PoolRecord { .. }) && *value == Value::Absent
                });
                (
                    record_of(Some(&write), "web").is_some(),
                    sets(&write, Field::VersionRecord(NEW)).is_some(),
                    removed.count(),
                )
            });
        assert_eq!((record, in_fleet, removed == 1), (in_pool, !in_pool, gone), "{what}");
    }
}

#[test]
fn a_canary_that_is_halted_in_its_pool_is_not_done() {
    let after = rules(&json!({"after": [{"pool": "canary"}]}));
    let canary = rules(&json!({}));
    let pools = [pool("canary", &canary), pool("web", &after)];
    let runs = {
        let mut view = idle();
        view.steering = Steering::Pool(0);
        node(&mut view, |node| node.version = Some(NEW));
        shadow(&mut view, |shadow| shadow.status.current_version = Some(NEW));
        view
    };
    let done = |records: &Records| {
        let known =
            Records::from([(NEW.to_owned(), VersionRecord { succeeded: 1, ..VersionRecord::default() })]);
        let fleet = FleetFacts {
            slots: &NO_SLOTS,
            versions: &known,
            pool_versions: records,
            pools: &pools,
            ..fleet()
        };
        let write = slots(&fleet, &[runs]).write;
        match write.and_then(|write| sets(&write, Field::VersionRecord(NEW))) {
            Some(Value::VersionRecord(record)) => record.done_pools.contains_key("canary"),
            _ => false,
        }
    };
    assert!(done(&Records::new()));
    let halt = halted(VersionRecord::default());
    assert!(!done(&Records::from([(format!("canary/{NEW}"), halt.clone())])));
    assert!(done(&Records::from([(format!("web/{NEW}"), halt)])), "another pool's halt does not matter");
}

/// A node that has this name, in this pool, of a variant.
pub(super) fn placed(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    let mut view = NodeView { steering: Steering::Pool(pool), shadow_name: name, ..idle() };
    node(&mut view, |node| (node.name, node.variant) = (&name[4..], variant));
    shadow(&mut view, |shadow| (shadow.name, shadow.uid) = (name, name));
    view
}

/// The same, in service with the new version.
pub(super) fn updated(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    let mut view = placed(name, pool, variant);
    node(&mut view, |node| node.version = Some(NEW));
    shadow(&mut view, |shadow| shadow.status.current_version = Some(NEW));
    view
}

/// The record of a version with which the canaries have been done for hours.
fn done(halted_for: Option<&[&str]>) -> VersionRecord {
    let halted =
        halted_for.map(|variants| json!({"at": "2026-11-21T02:00:00Z", "reason": "", "variants": variants}));
    serde_json::from_value(json!({
        "succeeded": 1, "halted": halted,
        "provenVariants": ["aws-k8s-1.36", "aws-k8s-1.36-nvidia"],
        "donePools": {"canary": {"since": "2026-11-21T00:00:00Z", "longestSeconds": 0}},
    }))
    .unwrap()
}

#[test]
fn a_halt_in_the_pool_that_goes_first_reaches_the_next_at_once() {
    let first = rules(&json!({"failureThreshold": {"proven": 1}}));
    let follows = rules(&json!({"after": [{"pool": "canary"}]}));
    let failure = failures(WORKLOADS);
    let failing = NodeView { steering: Steering::Pool(0), ..over(Some(&failure)) };
    for (what, failing_in, rules, begins, stays_done) in [
        ("the pool comes after the one that is halted", "canary", &follows, false, false),
        ("the pool comes after none", "canary", &first, true, false),
        ("another one is halted", "other", &follows, true, true),
    ] {
        let mut pools = [pool("canary", &first), pool("other", &first), pool("web", rules)];
        pools[2].waits_for.insert(NEW, None);
        let (held, versions) = (slot_of(Some(failing_in)), Records::from([(NEW.to_owned(), done(None))]));
        let fleet = FleetFacts { slots: &held, versions: &versions, pools: &pools, ceiling: 9, ..fleet() };
        let slots = slots(&fleet, &[updated("brs-a", 0, None), failing, placed("brs-web", 2, None)]);
        assert_eq!(slots.halted.len(), 1, "{what}");
        assert_eq!(slots.taken == [2], begins, "{what}");
        let Some(Value::VersionRecord(record)) = sets(&slots.write.unwrap(), Field::VersionRecord(NEW))
        else {
            panic!("{what}: nothing is noted of the canaries");
        };
        assert_eq!(record.done_pools.contains_key("canary"), stays_done, "{what}");
    }
}

#[test]
fn a_halt_of_one_variant_holds_no_other_behind_a_pool() {
    const AWS: Option<&str> = Some("aws-k8s-1.36");
    const NVIDIA: Option<&str> = Some("aws-k8s-1.36-nvidia");
    let (canary, follows) = (rules(&json!({})), rules(&json!({"after": [{"pool": "canary"}]})));
    let pools = [pool("canary", &canary), pool("web", &follows)];
    let nvidia: &[&str] = &["aws-k8s-1.36-nvidia"];
    let (mixed, of_aws) =
        (vec![updated("brs-a", 0, AWS), placed("brs-b", 0, NVIDIA)], vec![updated("brs-a", 0, AWS)]);
    let since = |views: &[NodeView<'_>], record: &VersionRecord, lifts: bool| {
        let known = Records::from([(NEW.to_owned(), record.clone())]);
        let said = if lifts { acknowledged(record).to_vec() } else { vec![] };
        // Nobody begins: only what is noted matters here.
        let pools = [PoolFacts { limit: 0, ..pools[0].clone() }, pools[1].clone()];
        let fleet =
            FleetFacts { slots: &NO_SLOTS, versions: &known, acknowledged: &said, pools: &pools, ..fleet() };
        let write = slots(&fleet, views).write;
        let record = match write.and_then(|write| sets(&write, Field::VersionRecord(NEW))) {
            Some(Value::VersionRecord(record)) => record,
            _ => record.clone(),
        };
        record.done_pools.get("canary").and_then(|done| done.since.clone())
    };
    let undone = |record: VersionRecord| VersionRecord { done_pools: BTreeMap::new(), ..record };
    let (before, now) = (Some("2026-11-21T00:00:00Z".to_owned()), Some(fleet().now.to_owned()));
    for (what, views, record, lifts, expected) in [
        ("one without nodes of the variant stays done", &of_aws, done(Some(nvidia)), false, before.clone()),
        ("so does one with such nodes", &mixed, done(Some(nvidia)), false, before.clone()),
        ("one becomes done without them", &mixed, undone(done(Some(nvidia))), false, now.clone()),
        ("they count if nothing is halted", &mixed, undone(done(None)), false, None),
        ("a halt of all is another matter", &of_aws, done(Some(&[])), false, None),
        ("once it is lifted, they have to be done, too", &mixed, done(Some(nvidia)), true, None),
        ("and pools of others go on", &of_aws, done(Some(nvidia)), true, before),
        (
            "once that of their own is lifted, they begin again",
            &of_aws,
            done(Some(&["aws-k8s-1.36"])),
            true,
            now,
        ),
    ] {
        assert_eq!(since(views, &record, lifts), expected, "{what}");
    }
}

#[test]
fn who_comes_back_after_all_is_no_failure_any_more() {
    let known = Records::from([(
        format!("web/{NEW}"),
        VersionRecord { halted: None, ..of_web()[&format!("web/{NEW}")].clone() },
    )]);
    let mut view = over(None);
    node(&mut view, |node| node.version = Some(NEW));
    let slots = slot_of(Some("web"));
    let none = Records::new();
    let record =
        pass(&json!({}), (&slots, &known, &none), &[view], |slots| record_of(slots.write.as_ref(), "web"));
    assert_eq!(names(&record.unwrap()), [""; 0]);
}
