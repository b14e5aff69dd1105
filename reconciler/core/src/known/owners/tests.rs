//! Whose a node is, in every order of pools.

use super::*;
use crate::cluster::Watched;
use crate::facts::PoolFacts;
use crate::observe::pools_at;
use crate::policy::{Durations, USUAL};
use crate::pool::Pool;
use crate::rules::{Limit, StepDurations};
use crate::tests::world::{NOW, at, known, labels, node as a_node, pool as a_pool, put_ledger, read};
use crate::window::{self, Until};
use brupop_api::Item;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Value, json};

fn pool(name: &str, priority: u64, selector: &Value) -> Item<Pool> {
    a_pool(name, json!({"nodeSelector": selector, "priority": priority, "maxUnavailable": "50%"}))
}

fn node(name: &str, of: &Value) -> WatchedNode {
    a_node(name, labels(of.clone()))
}

/// What selects nodes with this label.
fn tier(value: &str) -> Value {
    json!({"matchLabels": {"tier": value}})
}

fn owner_of(labels: &Value, pools: Vec<Item<Pool>>) -> Option<Owner> {
    let mut cluster = Cluster::default();
    node("n", labels).put(&mut cluster);
    cluster.replace(pools);
    owner_in(&cluster)
}

fn owner_in(cluster: &Cluster) -> Option<Owner> {
    known(cluster).owner("brs-n").cloned()
}

#[test]
fn the_highest_priority_owns_a_node() {
    let (all, web) = (json!({}), tier("web"));
    let requires = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
    let unreadable =
        || -> Item<Pool> { read(json!({"metadata": {"name": "z"}, "spec": {"nodeSelector": 3}})) };
    let three = |highest| vec![pool("a", 1, &all), pool("b", 1, &web), pool("c", highest, &web)];
    for (what, pools, owner) in [
        ("no pool", vec![], Owner::Nobody),
        ("one that selects all", vec![pool("a", 0, &all)], Owner::Pool(0)),
        ("one that selects others", vec![pool("a", 9, &tier("db"))], Owner::Nobody),
        ("a higher one", vec![pool("a", 0, &all), pool("b", 1, &web)], Owner::Pool(1)),
        ("a higher one comes first", vec![pool("a", 2, &web), pool("b", 1, &all)], Owner::Pool(0)),
        ("a tie", three(0), Owner::Conflict("a and b".to_owned())),
        ("a tie below the highest", three(2), Owner::Pool(2)),
        ("In", vec![pool("a", 0, &requires("In", &["db", "web"]))], Owner::Pool(0)),
        ("NotIn", vec![pool("a", 0, &requires("NotIn", &["web"]))], Owner::Nobody),
        ("Exists", vec![pool("a", 0, &requires("Exists", &[]))], Owner::Pool(0)),
        ("DoesNotExist", vec![pool("a", 0, &requires("DoesNotExist", &[]))], Owner::Nobody),
        // Nobody knows which nodes it was meant for.
        ("one that cannot be read", vec![pool("a", 1000, &web), unreadable()], Owner::Pool(1)),
    ] {
        assert_eq!(owner_of(&json!({"tier": "web"}), pools), Some(owner), "{what}");
    }
}

#[test]
fn owners_follow_labels_and_pools() {
    let mut cluster = Cluster::default();
    let of = |tier: &str| node("n", &json!({"tier": tier}));
    of("web").put(&mut cluster);
    pool("web", 1, &tier("web")).put(&mut cluster);
    let mut known = Known::default();
    let mut owner = |change: &dyn Fn(&mut Cluster)| {
        change(&mut cluster);
        known.prepare_pools(&cluster, Timestamp::UNIX_EPOCH, &Policy::default());
        known.owner("brs-n").cloned().unwrap()
    };
    assert_eq!(owner(&|_| ()), Owner::Pool(0));
    assert_eq!(owner(&|cluster| assert!(of("db").put(cluster))), Owner::Nobody);
    assert_eq!(owner(&|cluster| assert!(pool("all", 0, &json!({})).put(cluster))), Owner::Pool(0), "all");
    assert_eq!(owner(&|cluster| assert!(of("web").put(cluster))), Owner::Pool(1));
    assert_eq!(owner(&|cluster| <Item<Pool> as Watched>::remove("web", cluster)), Owner::Pool(0), "all");
    assert_eq!(owner(&|cluster| cluster.replace(Vec::<Item<Pool>>::new())), Owner::Nobody);
}

/// The worst that the schema takes: selectors that differ in the last requirement, windows, pools that go first.
fn worst(nth: usize) -> Item<Pool> {
    let labels: serde_json::Map<String, Value> =
        (0..16).map(|key| (format!("key-{key:02}"), json!("value"))).collect();
    let values: Vec<String> = (0..32).map(|value| format!("value-{value}")).collect();
    let not_in = |key: usize| json!({"key": format!("key-{key:02}"), "operator": "NotIn", "values": values});
    let mut expressions: Vec<Value> = (0..15).map(not_in).collect();
    expressions.push(json!({"key": "key-15", "operator": "In", "values": values}));
    let window = |minute: usize| json!({"schedule": format!("{minute}-59/2 * * * *"), "duration": "1m", "timeZone": "Europe/Berlin"});
    let after: Vec<Value> =
        (1..9).map(|next| json!({"pool": format!("p{:04}", nth + next), "soak": "1h"})).collect();
    let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
    let windows: Vec<Value> = (0..16).map(|minute| window(minute % 2)).collect();
    a_pool(
        &format!("p{nth:04}"),
        json!({"nodeSelector": selector, "after": after, "versions": {"minAge": "72h"}, "windows": windows}),
    )
}

/// A pass holds the reconciler's thread.
#[test]
#[allow(clippy::disallowed_methods, reason = "it is about how long a pass takes")]
fn no_pass_is_held_up_by_many_pools() {
    let mut cluster = Cluster::default();
    let labels: serde_json::Map<String, Value> =
        (0..16).map(|key| (format!("key-{key:02}"), json!("value"))).collect();
    for number in 0..100 {
        node(&format!("n{number}"), &json!(labels)).put(&mut cluster);
    }
    cluster.replace((0..600).map(worst));
    let now = at(NOW);
    let mut known = Known::default();
    let (mut longest, mut parts) = (std::time::Duration::ZERO, 0);
    let mut take = |part: &mut dyn FnMut() -> bool| {
        let began = std::time::Instant::now();
        let done = part();
        longest = longest.max(began.elapsed());
        done
    };
    while !take(&mut || known.prepare_pools(&cluster, now, &Policy::default())) {
        parts += 1;
        assert!(parts < 1000, "it comes to an end");
    }
    take(&mut || pools_at(&cluster, &known, &USUAL, now).next.is_some());
    // Far more than it takes: tests are not optimised, and share the machine. `make bench` has the time itself.
    assert!(longest.as_secs() < 2, "{longest:?} of {parts} parts");
    assert!(parts > POOLS_MAX / LOOKS_AT_ONCE, "{parts}");
    let pools = pools_at(&cluster, &known, &USUAL, now);
    let too_many = Starts::Invalid(crate::observe::TOO_MANY);
    assert_eq!(pools.all[POOLS_MAX].starts, too_many);
    assert!(pools.all[POOLS_MAX - 1].starts != too_many && pools.all.len() == 600);
    assert!(crate::observe::TOO_MANY.contains(&format!(" {POOLS_MAX} ")));
    assert_eq!(known.owners.len(), 100);
    assert!(known.owners.values().all(|known| known.owner == Owner::Nobody));
}

/// It holds the reconciler's thread, and its cluster is locked.
#[test]
#[allow(clippy::disallowed_methods, reason = "it is about how long it takes")]
fn a_list_of_many_pools_is_taken_in_in_less_time_than_it_is_read() {
    let mut cluster = Cluster::default();
    for number in 0..5_000 {
        node(&format!("n{number}"), &json!({})).put(&mut cluster);
    }
    let read = |priority: u64| -> Vec<Item<Pool>> {
        let selector = |nth: usize| tier(&nth.to_string());
        (0..4_000).map(|nth| pool(&format!("p{nth:04}"), priority, &selector(nth))).collect()
    };
    for (what, priority) in [("new", 0), ("the same", 0), ("changed", 1)] {
        let began = std::time::Instant::now();
        let listed = read(priority);
        let reading = began.elapsed();
        let began = std::time::Instant::now();
        cluster.replace(listed);
        assert!(began.elapsed() < reading, "{what}: {:?} after {reading:?}", began.elapsed());
    }
}

#[test]
fn a_percentage_is_of_the_nodes_it_owns() {
    let mut cluster = Cluster::default();
    for number in 0..10 {
        let tier = if number < 3 { "db" } else { "web" };
        node(&format!("n{number}"), &json!({"tier": tier})).put(&mut cluster);
    }
    pool("all", 0, &json!({})).put(&mut cluster);
    pool("db", 1, &tier("db")).put(&mut cluster);
    let known = known(&cluster);
    let pools = pools_at(&cluster, &known, &USUAL, Timestamp::UNIX_EPOCH);
    let seen: Vec<_> = pools.all.iter().map(|pool| (pool.name, pool.nodes, pool.limit)).collect();
    assert_eq!(seen, [("all", 7, 3), ("db", 3, 1)]);
}

/// The reconciler writes statuses all the time.
#[test]
fn only_another_spec_is_looked_at_anew() {
    // Once etcd was restored, one generation may come with two specs.
    let of = |nodes: u64, hour: u64| -> Item<Pool> {
        let window = json!({"schedule": format!("0 {hour} * * *"), "duration": "1h"});
        read(json!({"metadata": {"name": "a", "uid": "u", "generation": 1},
            "spec": {"nodeSelector": {}, "windows": [window]}, "status": {"nodes": nodes}}))
    };
    let mut cluster = Cluster::default();
    node("n", &json!({})).put(&mut cluster);
    of(0, 2).put(&mut cluster);
    let mut known = Known::default();
    assert!(matches!(
        pools_at(&cluster, &known, &USUAL, at("2026-11-21T02:30:00Z")).all[0].starts,
        Starts::Invalid(_)
    ));
    let mut starts = |pool: Option<Item<Pool>>, now: &str| {
        let owner_is_kept = pool.is_none_or(|pool| {
            pool.put(&mut cluster);
            known.is_of(&cluster)
        });
        known.prepare_pools(&cluster, at(now), &Policy::default());
        let pools = pools_at(&cluster, &known, &USUAL, at(now));
        (owner_is_kept, pools.all[0].starts == Starts::Open, pools.next.map(|next| next.to_string()))
    };
    let next = |text: &str| Some(text.to_owned());
    assert_eq!(starts(None, "2026-11-21T02:30:00Z"), (true, true, next("2026-11-21T03:00:00Z")));
    assert_eq!(starts(Some(of(1, 2)), "2026-11-21T02:31:00Z"), (true, true, next("2026-11-21T03:00:00Z")));
    assert_eq!(starts(None, "2026-11-21T03:00:00Z"), (true, false, next("2026-11-22T02:00:00Z")));
    assert_eq!(
        starts(None, "2026-11-21T02:59:59Z"),
        (true, true, next("2026-11-21T03:00:00Z")),
        "a clock went back"
    );
    assert_eq!(starts(Some(of(1, 4)), "2026-11-21T02:59:59Z"), (false, false, next("2026-11-21T04:00:00Z")));
}

#[test]
fn a_pool_whose_windows_are_all_too_short_says_so() {
    let starts = |windows: Value, remaining: SignedDuration| {
        let mut cluster = Cluster::default();
        a_pool("a", json!({"windows": windows})).put(&mut cluster);
        let now = at("2026-11-21T02:00:00Z");
        let durations = Durations { min_remaining: remaining, ..Durations::default() };
        let policy = Policy { durations, ..Policy::default() };
        let known = Known::of(&cluster, now, &policy);
        let pools = pools_at(&cluster, &known, &policy, now);
        match pools.all[0].starts {
            Starts::Invalid(why) => Err(why.to_owned()),
            starts => Ok(starts == Starts::Open),
        }
    };
    let window = |schedule: &str| json!({"schedule": schedule, "duration": "1h"});
    let nightly = || json!([window("0 2 * * *")]);
    let hour = SignedDuration::from_hours(1);
    let more = hour + SignedDuration::from_secs(1);
    assert_eq!(starts(nightly(), hour), Ok(true));
    let why = starts(nightly(), more).unwrap_err();
    assert!(why.contains("SCHEDULER_MIN_REMAINING_SECONDS") && why.contains("3601"), "{why}");
    assert_eq!(starts(json!([window("0 2,3 * * *")]), more), Ok(true), "together they last for two hours");
    let saturdays = json!([window("0 4 * * *"), window("0 5 * * SAT")]);
    assert_eq!(starts(saturdays, more), Ok(false), "the one of Saturday does, at four");
    assert_eq!(starts(json!([]), more), Ok(true));
}

#[test]
fn a_pool_says_the_same_whatever_its_status_and_generation() {
    let read = |path: &str, value: Value| -> Item<Pool> {
        let mut pool = json!({"metadata": {"name": "a", "uid": "u", "generation": 1},
            "spec": {"nodeSelector": {"matchLabels": {"tier": "db"}}}});
        let (parent, member) = path.rsplit_once('/').unwrap();
        if let Some(parent) = pool.pointer_mut(parent) {
            parent[member] = value;
        }
        serde_json::from_value(pool).unwrap()
    };
    let first = read("/metadata/generation", json!(1));
    let same = |path, value| read(path, value).ok().unwrap().says_the_same(first.ok().unwrap());
    assert!(same("/metadata/generation", json!(2)));
    assert!(same("/status", json!({"nodes": 3})));
    for (path, value) in [
        ("/metadata/uid", json!("v")),
        ("/spec/priority", json!(1)),
        ("/spec/nodeSelector", json!({})),
        ("/spec/paused", json!(true)),
        ("/spec/windows", json!([{"schedule": "0 2 * * *", "duration": "1h"}])),
        ("/spec/maxUnavailable", json!("no number")),
    ] {
        assert!(!same(path, value.clone()), "{path} is {value}");
    }
}

proptest! {
    /// Whatever the order in which pools and nodes come, the owner is the same, and no lower pool owns what a higher one
    /// selects.
    #[test]
    fn the_order_of_events_does_not_matter(
        made in prop::collection::vec((0..4_u64, 0..4_usize), 0..6),
        turn in 0..6_usize,
        late in any::<bool>(),
    ) {
        let selectors = [json!({}), tier("web"), tier("db"),
            json!({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]})];
        let pools: Vec<Item<Pool>> = made
            .iter()
            .enumerate()
            .map(|(nth, (priority, selector))| pool(&format!("p{nth}"), *priority, &selectors[*selector]))
            .collect();
        let labels = json!({"tier": "web"});
        let expected = owner_of(&labels, pools.clone()).unwrap();
        let mut turned = pools.clone();
        turned.rotate_left(turn.min(pools.len().saturating_sub(1)));
        let (mut cluster, mut known) = (Cluster::default(), Known::default());
        if !late {
            node("n", &labels).put(&mut cluster);
        }
        for pool in turned {
            pool.put(&mut cluster);
            known.prepare_pools(&cluster, Timestamp::UNIX_EPOCH, &Policy::default());
        }
        if late {
            node("n", &labels).put(&mut cluster);
        }
        while !known.prepare_pools(&cluster, Timestamp::UNIX_EPOCH, &Policy::default()) {}
        let owner = known.owner("brs-n").cloned().unwrap();
        prop_assert_eq!(&owner, &expected);
        let selecting = made.iter().enumerate().filter(|(_, (_, selector))| *selector != 2);
        let highest = selecting.clone().map(|(_, (priority, _))| *priority).max();
        let at_the_top: Vec<usize> =
            selecting.filter(|(_, (priority, _))| Some(*priority) == highest).map(|(nth, _)| nth).collect();
        match (owner, at_the_top.as_slice()) {
            (Owner::Nobody, []) | (Owner::Conflict(_), [_, _, ..]) => {}
            (Owner::Pool(index), [only]) => prop_assert_eq!(index, *only),
            (owner, top) => prop_assert!(false, "{:?} of {:?}", owner, top),
        }
    }
}

#[test]
fn a_pool_says_whether_pods_that_ask_for_it_are_respected() {
    let drain = |respects: Option<bool>| {
        let drain = respects.map(|respects| json!({"respectDoNotDisrupt": respects}));
        vec![a_pool("a", json!({"drain": drain}))]
    };
    for (pools, respects) in
        [(vec![], true), (drain(None), false), (drain(Some(false)), false), (drain(Some(true)), true)]
    {
        let mut cluster = Cluster::default();
        node("n", &json!({})).put(&mut cluster);
        cluster.replace(drain(Some(true)));
        let mut known = known(&cluster);
        cluster.replace(pools);
        let respecting = Rules::of_settings(Limit::default(), vec![], StepDurations::default(), true);
        let policy = Policy { default_pool: respecting, ..Policy::default() };
        known.prepare_pools(&cluster, Timestamp::UNIX_EPOCH, &policy);
        let rules = RulesByOwner::new(&cluster, &policy).of(known.owner("brs-n"));
        assert_eq!(rules.respect_do_not_disrupt, respects);
    }
}

/// Anyone who may edit pools can make hundreds of the largest that the schema takes.
#[test]
fn pools_are_bounded_in_sum() {
    let value = |number: usize| format!("{number:x>63}");
    let values: Vec<String> = (0..32).map(value).collect();
    let large = |nth: usize| {
        let expressions: Vec<Value> = (0..16)
            .map(|number| json!({"key": format!("k-{number}"), "operator": "In", "values": values}))
            .collect();
        pool(&format!("large-{nth}"), 9, &json!({"matchExpressions": expressions}))
    };
    let small = || pool("small", 3, &tier("web"));
    let given_up = |cluster: &Cluster| {
        let all = cluster.pools.values().filter(|pool| pool.item.ok().unwrap().is_given_up());
        all.map(|pool| (pool.item.name().to_owned(), pool.invalid().unwrap())).collect::<Vec<_>>()
    };
    let one = large(0);
    let named = |nth: usize| renamed(&one, format!("large-{nth:03}"));
    let mut listed: Vec<_> = std::iter::once(small()).chain((0..900).map(named)).collect();
    Item::<Pool>::bound(&mut listed);
    let kept = |item: &Item<Pool>| !item.ok().unwrap().is_given_up();
    assert!(listed.iter().filter(|item| kept(item)).count() < 700 && kept(&listed[0]));
    let mut cluster = Cluster::default();
    cluster.replace(listed);
    assert!(cluster.has_given_pools_up());
    node("n", &json!({})).put(&mut cluster);
    assert_eq!(owner_in(&cluster), Some(Owner::Nobody), "they hold up no other node");
    let first = given_up(&cluster);
    assert!(first[0].1.contains("delete pools"), "{first:?}");
    // Each comes back whole whenever its status is written.
    for nth in 890..900 {
        named(nth).put(&mut cluster);
    }
    assert_eq!(given_up(&cluster), first, "the same ones");
    cluster.replace([small(), named(1)]);
    assert!(!cluster.has_given_pools_up() && given_up(&cluster).is_empty());
}

fn renamed(item: &Item<Pool>, name: String) -> Item<Pool> {
    let mut another = item.clone();
    another.metadata.name = Some(name);
    another.body.as_mut().unwrap().metadata.name = another.metadata.name.clone();
    another
}

#[test]
fn what_is_left_of_pools_that_are_given_up_is_bounded_too() {
    let text = |length: usize, number: usize| format!("{number:x>length$}");
    let values: Vec<String> = (0..32).map(|number| text(63, number)).collect();
    let expressions: Value =
        (0..16).map(|nth| json!({"key": text(317, nth), "operator": "NotIn", "values": values})).collect();
    // No schema bounds keys.
    let labels: serde_json::Map<String, Value> = (0..16).map(|nth| (text(10_000, nth), json!("v"))).collect();
    for selector in [json!({"matchExpressions": expressions}), json!({"matchLabels": labels})] {
        let bytes = |item: &Item<Pool>| {
            let requirements = item.ok().unwrap().selector.clone().into_iter().flatten();
            requirements.map(|it| it.to_string().len()).sum::<usize>()
        };
        let one = pool("one", 9, &selector);
        let number = (96 << 20) / bytes(&one);
        let mut listed: Vec<_> = (0..number).map(|nth| renamed(&one, format!("p{nth:04}"))).collect();
        listed.push(pool("small", 3, &tier("web")));
        Item::<Pool>::bound(&mut listed);
        let kept: usize = listed.iter().map(bytes).sum();
        assert!((24 << 20..48 << 20).contains(&kept), "{kept} bytes of {number} selectors");
        let mut cluster = Cluster::default();
        node("n", &json!({})).put(&mut cluster);
        cluster.replace(listed);
        let all: Vec<&Pool> = cluster.pools.values().filter_map(|pool| pool.item.ok()).collect();
        let [without, with] =
            [all.iter().find(|pool| pool.selector.is_none()), all.last()].map(Option::unwrap);
        let why = without.rules.as_ref().unwrap_err().to_string();
        assert!(why.contains("It holds all nodes") && with.rules.is_ok(), "{why}");
        assert!(matches!(owner_in(&cluster), Some(Owner::Conflict(_))), "they hold all nodes");
    }
}

#[test]
fn nothing_is_kept_of_the_owners_of_pools() {
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c"});
    let read = |owners: usize| -> Item<Pool> {
        read(json!({"metadata": {"name": "a", "uid": "u", "ownerReferences": vec![owner.clone(); owners]},
            "spec": {"nodeSelector": {}}}))
    };
    let [with, without] = [read(20_000), read(0)];
    assert_eq!(with.body.unwrap().metadata, without.body.unwrap().metadata);
}

/// Each of them fires 1,440 times a day, of which one is kept for each.
#[test]
fn windows_weigh_what_they_are_in_memory() {
    let window = json!({"schedule": "* * * * *", "duration": "1s"});
    let one = a_pool("a", json!({"windows": vec![window; 16]}));
    let mut listed: Vec<_> = (0..400).map(|nth| renamed(&one, format!("p{nth}"))).collect();
    Item::<Pool>::bound(&mut listed);
    let kept = listed.iter().filter(|item| !item.ok().unwrap().is_given_up()).count();
    let of_one = 16 * (24 * 60 * 8 + 5_000);
    assert!((1..(32 << 20) / of_one).contains(&kept), "{kept} pools of {of_one} bytes are kept");
}

/// The default pool owns the opted-in nodes that no pool selects, by the settings' window and limit, and by the fleet's.
#[test]
fn the_settings_make_the_default_pool() {
    let windows =
        window::windows("0 0 2 * * SAT *", TimeZone::UTC, Some(SignedDuration::from_hours(2))).unwrap();
    let default_pool = Rules::of_settings(Limit::Percent(50), windows, StepDurations::default(), false);
    let min_remaining = SignedDuration::from_mins(30);
    let policy = Policy {
        default_pool,
        durations: Durations { min_remaining, ..Durations::default() },
        ..Policy::default()
    };
    let (open, closes) = (Starts::Open, "2026-11-21T04:00:00Z");
    let outside = |opens| Starts::OutsideWindow(Until::At(at(opens)));
    let before = outside("2026-11-21T02:00:00Z");
    let late = "2026-11-21T03:30:00.000000001Z";
    let unlimited = u64::MAX;
    let hold = json!({"unpooledNodes": "Hold"});
    let quarter = json!({"maxUnavailable": "25%"});
    for (fleet, now, nodes, limit, ceiling, starts, goes_on, next) in [
        (json!({}), "2026-11-21T01:00:00Z", 6, 3, unlimited, before, before, "2026-11-21T02:00:00Z"),
        (json!({}), "2026-11-21T03:30:00Z", 6, 3, unlimited, open, open, late),
        (json!({}), "2026-11-21T03:30:01Z", 6, 3, unlimited, outside("2026-11-28T02:00:00Z"), open, closes),
        (hold, "2026-11-21T03:00:00Z", 0, 1, unlimited, open, open, late),
        (quarter, "2026-11-21T03:00:00Z", 6, 2, 2, open, open, late),
    ] {
        let mut cluster = Cluster::default();
        for name in 0..8 {
            let labels = if name < 2 { json!({"tier": "web"}) } else { json!({}) };
            node(&format!("n{name}"), &labels).put(&mut cluster);
        }
        a_pool("web", json!({"nodeSelector": tier("web")})).put(&mut cluster);
        put_ledger(&mut cluster, fleet.clone(), json!({}));
        let known = Known::of(&cluster, at(now), &policy);
        let pools = pools_at(&cluster, &known, &policy, at(now));
        let PoolFacts { name, nodes: owns, limit: is, starts: may_start, goes_on: may_go_on, .. } =
            pools.default;
        assert_eq!((name, owns, is, pools.ceiling), ("default", nodes, limit, ceiling), "{fleet} {now}");
        assert_eq!((may_start, may_go_on), (starts, goes_on), "{fleet} {now}");
        assert_eq!(pools.next.map(|next| next.to_string()).as_deref(), Some(next), "{fleet} {now}");
    }
}
