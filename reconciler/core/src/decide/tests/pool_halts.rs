//! Which failures count in a pool, whom that halts, and how it is lifted.

use brupop_api::crds::POOL_RECORDS_MAX;
use jiff::Timestamp;

use super::versions::{acknowledged, failures, halted, names, over};
use super::world::*;
use crate::rules::Rules;
use crate::tests::world::{NOW, read, with};

const WORKLOADS: &str = "WorkloadsUnavailable";

pub(super) fn rules(spec: &serde_json::Value) -> Rules {
    Rules::of(&read(with(json!({"nodeSelector": {}}), spec))).unwrap()
}

pub(super) fn pool<'a>(name: &'a str, rules: &'a Rules) -> PoolFacts<'a> {
    PoolFacts { name, nodes: 4, limit: 4, rules: Some(rules), ..PoolFacts::DEFAULT }
}

/// A slot of the node, taken in this pool.
fn held_in(pool: Option<&str>) -> BTreeMap<String, Slot> {
    let (version, pool) = (Some(NEW.to_owned()), pool.map(str::to_owned));
    let slot = Slot { version, pool, ..SLOT[SHADOW].clone() };
    BTreeMap::from([(SHADOW.to_owned(), slot)])
}

type Records = BTreeMap<String, VersionRecord>;
static NONE: Records = BTreeMap::new();

fn proven() -> Records {
    BTreeMap::from([(NEW.to_owned(), VersionRecord { succeeded: 1, ..VersionRecord::default() })])
}

/// What a pass notes of the new version, and who begins.
struct Passed {
    /// Of the pools `db` and `web`.
    in_pools: [Option<VersionRecord>; 2],
    in_fleet: Option<VersionRecord>,
    /// How many records of pools are removed.
    removed: usize,
    halted: Vec<String>,
    taken: Vec<usize>,
}

/// A pass over these nodes of the pool `web`, which has this spec, with records of pools and of the fleet.
fn pass(
    spec: &serde_json::Value,
    held: &BTreeMap<String, Slot>,
    (pool_versions, versions): (&Records, &Records),
    views: &[NodeView<'_>],
) -> Passed {
    let (db, web) = (rules(&json!({})), rules(spec));
    let pools = [pool("db", &db), pool("web", &web)];
    let fleet = FleetFacts { slots: held, pool_versions, versions, pools: &pools, ceiling: 9, ..fleet() };
    let passed = slots(&fleet, &views.iter().map(|view| view.in_pool(1)).collect::<Vec<_>>());
    let noted = |field| passed.write.as_ref().and_then(|write| record_of(write, field));
    let is_removed = |(field, value): &&(Field<'_>, Value<'_>)| {
        matches!(field, Field::PoolRecord { .. }) && *value == Value::Absent
    };
    Passed {
        in_pools: ["db", "web"].map(|pool| noted(Field::PoolRecord { pool, version: NEW })),
        in_fleet: noted(Field::VersionRecord(NEW)),
        removed: passed.write.iter().flat_map(|write| &write.sets).filter(is_removed).count(),
        halted: passed.halted.iter().map(|halted| halted.why.clone()).collect(),
        taken: passed.taken,
    }
}

#[test]
fn workloads_count_in_their_pool_and_hosts_in_the_fleet() {
    for (reason, taken_in, counts_in) in [
        (WORKLOADS, Some("web"), Some("web")),
        // The slot says in which pool the update began, wherever its node has gone since.
        (WORKLOADS, Some("db"), Some("db")),
        ("FellBack", Some("web"), None),
        ("NotReady", Some("web"), None),
        (WORKLOADS, None, None),
        (WORKLOADS, Some("gone"), None),
    ] {
        let failure = failures(reason);
        let passed = pass(&json!({}), &held_in(taken_in), (&NONE, &NONE), &[over(Some(&failure))]);
        for (pool, record) in ["db", "web"].into_iter().zip(&passed.in_pools) {
            let counts = counts_in == Some(pool);
            let noted = record.as_ref().map(|record| (names(record), record.halted.is_some()));
            assert_eq!(noted, counts.then(|| (vec!["n"], true)), "{reason} in {taken_in:?}: {pool}");
        }
        assert_eq!(passed.in_fleet.is_some(), counts_in.is_none(), "{reason} in {taken_in:?}");
    }
}

#[test]
fn the_pool_says_how_many_may_fail() {
    let (proven, failure) = (proven(), failures(WORKLOADS));
    for (what, spec, versions, halts) in [
        ("a new version", json!({}), &NONE, true),
        ("a proven one", json!({}), &proven, false),
        ("a new one, where two may", json!({"failureThreshold": {"unproven": 2}}), &NONE, false),
        ("a proven one, where none may", json!({"failureThreshold": {"proven": 1}}), &proven, true),
    ] {
        let passed = pass(&spec, &held_in(Some("web")), (&NONE, versions), &[over(Some(&failure))]);
        assert_eq!(passed.in_pools[1].as_ref().unwrap().halted.is_some(), halts, "{what}");
        let why = halts.then_some("in the pool web, it failed on n (WorkloadsUnavailable)");
        assert_eq!(passed.halted, why.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

/// The halt of a record, as the ledger has it.
fn of_web() -> VersionRecord {
    let failure = failures(WORKLOADS);
    let [_, web] = pass(&json!({}), &held_in(Some("web")), (&NONE, &NONE), &[over(Some(&failure))]).in_pools;
    web.unwrap()
}

/// This record of the new version in the pool `web`.
fn in_web(record: VersionRecord) -> Records {
    BTreeMap::from([(format!("web/{NEW}"), record)])
}

#[test]
fn a_halt_holds_its_pool_and_no_other() {
    let records = in_web(of_web());
    let (db, web) = (rules(&json!({})), rules(&json!({})));
    let pools = [pool("db", &db), pool("web", &web)];
    let fleet =
        FleetFacts { slots: &NO_SLOTS, pool_versions: &records, pools: &pools, ceiling: 9, ..fleet() };
    assert_eq!(decide(&fleet, &idle().in_pool(1)).reason, Reason::VersionHaltedInPool(NEW));
    assert_eq!(slots(&fleet, &[idle().in_pool(1)]).taken, [0_usize; 0]);
    assert_eq!(slots(&fleet, &[idle().in_pool(0)]).taken, [0]);
    // An update that has not come to its reboot is given up.
    assert_eq!(decide(&fleet, &staged().in_pool(1)).reason, Reason::Aborting(Abort::VersionHalted));
    // Nobody begins in the breath in which it is halted.
    let failure = failures(WORKLOADS);
    let views = [over(Some(&failure)), idle().named("brs-o")];
    assert_eq!(pass(&json!({}), &held_in(Some("web")), (&NONE, &NONE), &views).taken, [0_usize; 0]);
}

#[test]
fn the_pool_lifts_its_halt() {
    let halted = in_web(of_web());
    let said = acknowledged(&halted[&format!("web/{NEW}")]);
    let spec = json!({"acknowledgedHalts": said});
    let [_, lifted] = pass(&spec, &NO_SLOTS, (&halted, &NONE), &[]).in_pools;
    let lifted = lifted.unwrap();
    assert_eq!((&lifted.halted, lifted.acknowledged_at.as_ref()), (&None, Some(&said[0].halted_at)));
    // What fails later is halted again, although the acknowledgement still stands there.
    let failed = Failures { at: "2026-11-21T04:00:00.500Z".to_owned(), ..failures(WORKLOADS) };
    let [_, again] =
        pass(&spec, &held_in(Some("web")), (&in_web(lifted), &NONE), &[over(Some(&failed))]).in_pools;
    let halt = again.unwrap().halted.unwrap();
    assert!(halt.at.parse::<Timestamp>().unwrap() > said[0].halted_at.parse().unwrap(), "{halt:?}");
    // Another pool's acknowledgement, or the fleet's, lifts nothing.
    let fleet_says = FleetFacts { acknowledged: &said, pool_versions: &halted, ..without_slots() };
    assert_eq!(slots(&fleet_says, &[]).write, None);
    // One without a readable time gets one, so that it can be lifted.
    let mut timeless = of_web();
    "9999-99-99T00:00:00Z".clone_into(&mut timeless.halted.as_mut().unwrap().at);
    let [_, mended] = pass(&json!({}), &NO_SLOTS, (&in_web(timeless), &NONE), &[]).in_pools;
    assert_eq!(mended.unwrap().halted.unwrap().at, NOW);
}

#[test]
fn what_finds_no_room_counts_in_the_fleet() {
    let failure = failures(WORKLOADS);
    let full = |pool: &str, record: VersionRecord| -> Records {
        (0..POOL_RECORDS_MAX).map(|nth| (format!("{pool}/1.0.{nth}"), record.clone())).collect()
    };
    for (what, records, in_pool) in [
        ("halts of pools that are there", full("db", halted(VersionRecord::default())), false),
        ("halts of pools that are gone", full("gone", halted(VersionRecord::default())), true),
        ("halts that were lifted", full("db", VersionRecord::default()), true),
    ] {
        let passed = pass(&json!({}), &held_in(Some("web")), (&records, &NONE), &[over(Some(&failure))]);
        assert_eq!((passed.in_pools[1].is_some(), passed.in_fleet.is_none()), (in_pool, in_pool), "{what}");
        assert_eq!(passed.removed, usize::from(in_pool), "{what}");
    }
}

/// Does this write note that the pool `canary` is done with the new version?
pub(super) fn canaries_are_done(write: Option<&Write<'_>>) -> bool {
    let record = write.and_then(|write| record_of(write, Field::VersionRecord(NEW)));
    record.is_some_and(|record| record.done_pools.contains_key("canary"))
}

#[test]
fn a_canary_that_is_halted_in_its_pool_is_not_done() {
    let (canary, after) = (rules(&json!({})), rules(&json!({"after": [{"pool": "canary"}]})));
    let (pools, known) = ([pool("canary", &canary), pool("web", &after)], proven());
    let done = |pool_versions: &Records| {
        let fleet = FleetFacts { versions: &known, pool_versions, pools: &pools, ..without_slots() };
        canaries_are_done(slots(&fleet, &[updated("brs-a", 0, None)]).write.as_ref())
    };
    assert!(done(&NONE));
    let halt = halted(VersionRecord::default());
    assert!(!done(&Records::from([(format!("canary/{NEW}"), halt.clone())])));
    assert!(done(&in_web(halt)), "another pool's halt does not matter");
}

/// A node that has this name, in this pool, of a variant.
pub(super) fn placed(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    idle().named(name).in_pool(pool).with_node(|node| node.variant = variant)
}

/// The same, in service with the new version.
pub(super) fn updated(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    placed(name, pool, variant)
        .with_node(|node| node.version = Some(NEW))
        .with_shadow(|shadow| shadow.status.current_version = Some(NEW))
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
    let failing = over(Some(&failure)).in_pool(0);
    for (what, failing_in, rules, begins, stays_done) in [
        ("the pool comes after the one that is halted", "canary", &follows, false, false),
        ("the pool comes after none", "canary", &first, true, false),
        ("another one is halted", "other", &follows, true, true),
    ] {
        let mut pools = [pool("canary", &first), pool("other", &first), pool("web", rules)];
        pools[2].waits_for.insert(NEW, None);
        let (held, versions) = (held_in(Some(failing_in)), Records::from([(NEW.to_owned(), done(None))]));
        let fleet = FleetFacts { slots: &held, versions: &versions, pools: &pools, ceiling: 9, ..fleet() };
        let slots = slots(&fleet, &[updated("brs-a", 0, None), failing, placed("brs-web", 2, None)]);
        assert_eq!(slots.halted.len(), 1, "{what}");
        assert_eq!(slots.taken == [2], begins, "{what}");
        assert!(record_of(slots.write.as_ref().unwrap(), Field::VersionRecord(NEW)).is_some(), "{what}");
        assert_eq!(canaries_are_done(slots.write.as_ref()), stays_done, "{what}");
    }
}

#[test]
fn a_halt_of_one_variant_holds_no_other_behind_a_pool() {
    const AWS: Option<&str> = Some("aws-k8s-1.36");
    const NVIDIA: Option<&str> = Some("aws-k8s-1.36-nvidia");
    let (canary, follows) = (rules(&json!({})), rules(&json!({"after": [{"pool": "canary"}]})));
    let pools = [pool("canary", &canary), pool("web", &follows)];
    let (nvidia, aws): (&[&str], &[&str]) = (&["aws-k8s-1.36-nvidia"], &["aws-k8s-1.36"]);
    let (mixed, of_aws) =
        (vec![updated("brs-a", 0, AWS), placed("brs-b", 0, NVIDIA)], vec![updated("brs-a", 0, AWS)]);
    let since = |views: &[NodeView<'_>], record: &VersionRecord, lifts: bool| {
        let known = Records::from([(NEW.to_owned(), record.clone())]);
        let said = if lifts { acknowledged(record).to_vec() } else { vec![] };
        // Nobody begins: only what is noted matters here.
        let pools = [PoolFacts { limit: 0, ..pools[0].clone() }, pools[1].clone()];
        let fleet = FleetFacts { versions: &known, acknowledged: &said, pools: &pools, ..without_slots() };
        let noted = slots(&fleet, views).write.and_then(|it| record_of(&it, Field::VersionRecord(NEW)));
        let done_pools = noted.unwrap_or_else(|| record.clone()).done_pools;
        done_pools.get("canary").and_then(|done| done.since.clone())
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
        ("once that of their own is lifted, they begin again", &of_aws, done(Some(aws)), true, now),
    ] {
        assert_eq!(since(views, &record, lifts), expected, "{what}");
    }
}

#[test]
fn who_comes_back_after_all_is_no_failure_any_more() {
    let known = in_web(VersionRecord { halted: None, ..of_web() });
    let view = over(None).with_node(|node| node.version = Some(NEW));
    let [_, record] = pass(&json!({}), &held_in(Some("web")), (&known, &NONE), &[view]).in_pools;
    assert_eq!(names(&record.unwrap()), [""; 0]);
}
