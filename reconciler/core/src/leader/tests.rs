//! Tests of the owner of a node, in every order of pools.

mod default_pool;
mod misplaced;

use super::*;
use crate::cluster::Watched;
use crate::objects::NodeFacts;
use crate::observe::pools_at;
use crate::pool::POOLS_MAX;
use crate::rules::{StepDurations, USUAL};
use crate::tests::world::{at, known, labels, node as a_node, pool as a_pool, prepare, read, rows};
use brupop_api::Item;
use brupop_api::pool::Limit;
use proptest::prelude::*;
use serde_json::{Value, json};

fn pool(name: &str, priority: u64, selector: &Value) -> Item<Pool> {
    a_pool(
        name,
        json!({"nodeSelector": selector, "priority": priority, "maxUnavailable": "50%"}),
    )
}

fn node(name: &str, of: &Value) -> Item<NodeFacts> {
    a_node(name, labels(of.clone()))
}

/// Returns what selects nodes with this label.
fn tier(value: &str) -> Value {
    json!({"matchLabels": {"tier": value}})
}

fn owner_of(labels: &Value, pools: Vec<Item<Pool>>) -> Option<Owner> {
    let mut cluster = Cluster::default();
    node("n", labels).put(&mut cluster);
    cluster.replace(pools);
    owner_in(&mut cluster)
}

fn owner_in(cluster: &mut Cluster) -> Option<Owner> {
    prepare(cluster);
    cluster.owner("brs-n")
}

#[test]
fn the_highest_priority_owns_a_node() {
    let (all, web) = (json!({}), tier("web"));
    let requires = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
    let unreadable =
        || -> Item<Pool> { read(json!({"metadata": {"name": "z"}, "spec": {"nodeSelector": 3}})) };
    let three = |highest| {
        vec![
            pool("a", 1, &all),
            pool("b", 1, &web),
            pool("c", highest, &web),
        ]
    };
    for (what, pools, owner) in rows! {
        "no pool", vec![] => Owner::DefaultPool;
        "one that selects all", vec![pool("a", 0, &all)] => Owner::Pool(0);
        "one that selects others", vec![pool("a", 9, &tier("db"))] => Owner::DefaultPool;
        "a higher one", vec![pool("a", 0, &all), pool("b", 1, &web)] => Owner::Pool(1);
        "a higher one comes first", vec![pool("a", 2, &web), pool("b", 1, &all)] => Owner::Pool(0);
        "a tie", three(0) => Owner::Conflict(0, 1);
        "a tie below the highest", three(2) => Owner::Pool(2);
        "In", vec![pool("a", 0, &requires("In", &["db", "web"]))] => Owner::Pool(0);
        "NotIn", vec![pool("a", 0, &requires("NotIn", &["web"]))] => Owner::DefaultPool;
        "Exists", vec![pool("a", 0, &requires("Exists", &[]))] => Owner::Pool(0);
        "DoesNotExist", vec![pool("a", 0, &requires("DoesNotExist", &[]))] => Owner::DefaultPool;
        // Nobody knows which nodes it was meant for.
        "one that cannot be read", vec![pool("a", 1000, &web), unreadable()] => Owner::Pool(1);
    } {
        assert_eq!(
            owner_of(&json!({"tier": "web"}), pools),
            Some(owner),
            "{what}"
        );
    }
}

#[test]
fn owners_follow_labels_and_pools() {
    let mut cluster = Cluster::default();
    let of = |tier: &str| node("n", &json!({"tier": tier}));
    of("web").put(&mut cluster);
    pool("web", 1, &tier("web")).put(&mut cluster);
    let mut known = LeaderState::default();
    let mut owner = |change: &dyn Fn(&mut Cluster)| {
        change(&mut cluster);
        known.prepare(&mut cluster, Timestamp::UNIX_EPOCH, &Policy::default());
        cluster.owner("brs-n").unwrap()
    };
    assert_eq!(owner(&|_| ()), Owner::Pool(0));
    assert_eq!(
        owner(&|cluster| assert!(of("db").put(cluster))),
        Owner::DefaultPool
    );
    assert_eq!(
        owner(&|cluster| assert!(pool("all", 0, &json!({})).put(cluster))),
        Owner::Pool(0),
        "all"
    );
    assert_eq!(
        owner(&|cluster| assert!(of("web").put(cluster))),
        Owner::Pool(1)
    );
    assert_eq!(
        owner(&|cluster| <Item<Pool> as Watched>::remove("web", cluster)),
        Owner::Pool(0),
        "all"
    );
    assert_eq!(
        owner(&|cluster| cluster.replace(Vec::<Item<Pool>>::new())),
        Owner::DefaultPool
    );
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
    let known = prepare(&mut cluster);
    let pools = pools_at(&cluster, &known, &USUAL, Timestamp::UNIX_EPOCH);
    let seen: Vec<_> = pools
        .all
        .iter()
        .map(|pool| (pool.name, pool.nodes, pool.limit))
        .collect();
    assert_eq!(seen, [("all", 7, 3), ("db", 3, 1)]);
}

/// The reconciler writes statuses all the time.
#[test]
fn only_another_spec_is_looked_at_anew() {
    // Once etcd was restored, one generation may come with two specs.
    let of = |nodes: u64, hour: u64| -> Item<Pool> {
        let window = json!({"schedule": format!("0 {hour} * * *"), "duration": "1h"});
        read(
            json!({"metadata": {"name": "a", "uid": "u", "generation": 1},
            "spec": {"nodeSelector": {}, "windows": [window]}, "status": {"nodes": nodes}}),
        )
    };
    let mut cluster = Cluster::default();
    node("n", &json!({})).put(&mut cluster);
    of(0, 2).put(&mut cluster);
    let mut known = LeaderState::default();
    assert!(matches!(
        pools_at(&cluster, &known, &USUAL, at("2026-11-21T02:30:00Z")).all[0].starts,
        Starts::Invalid(_)
    ));
    let mut starts = |pool: Option<Item<Pool>>, now: &str| {
        let owner_is_kept = pool.is_none_or(|pool| {
            pool.put(&mut cluster);
            known.is_of(&cluster)
        });
        known.prepare(&mut cluster, at(now), &Policy::default());
        let pools = pools_at(&cluster, &known, &USUAL, at(now));
        (
            owner_is_kept,
            pools.all[0].starts == Starts::Open,
            pools.clock.next.map(|next| next.to_string()),
        )
    };
    let next = |text: &str| Some(text.to_owned());
    assert_eq!(
        starts(None, "2026-11-21T02:30:00Z"),
        (true, true, next("2026-11-21T03:00:00Z"))
    );
    assert_eq!(
        starts(Some(of(1, 2)), "2026-11-21T02:31:00Z"),
        (true, true, next("2026-11-21T03:00:00Z"))
    );
    assert_eq!(
        starts(None, "2026-11-21T03:00:00Z"),
        (true, false, next("2026-11-22T02:00:00Z"))
    );
    assert_eq!(
        starts(None, "2026-11-21T02:59:59Z"),
        (true, true, next("2026-11-21T03:00:00Z")),
        "a clock went back"
    );
    assert_eq!(
        starts(Some(of(1, 4)), "2026-11-21T02:59:59Z"),
        (false, false, next("2026-11-21T04:00:00Z"))
    );
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
        let (mut cluster, mut known) = (Cluster::default(), LeaderState::default());
        if !late {
            node("n", &labels).put(&mut cluster);
        }
        for pool in turned {
            pool.put(&mut cluster);
            known.prepare(&mut cluster, Timestamp::UNIX_EPOCH, &Policy::default());
        }
        if late {
            node("n", &labels).put(&mut cluster);
        }
        known.prepare(&mut cluster, Timestamp::UNIX_EPOCH, &Policy::default());
        let owner = cluster.owner("brs-n").unwrap();
        prop_assert_eq!(&owner, &expected);
        let selecting = made.iter().enumerate().filter(|(_, (_, selector))| *selector != 2);
        let highest = selecting.clone().map(|(_, (priority, _))| *priority).max();
        let at_the_top: Vec<usize> =
            selecting.filter(|(_, (priority, _))| Some(*priority) == highest).map(|(nth, _)| nth).collect();
        match (owner, at_the_top.as_slice()) {
            (Owner::DefaultPool, []) | (Owner::Conflict(..), [_, _, ..]) => {}
            (Owner::Pool(index), [only]) => prop_assert_eq!(index, *only),
            (owner, top) => prop_assert!(false, "{:?} of {:?}", owner, top),
        }
    }
}

#[test]
fn pools_beyond_the_first_128_are_left_out_until_a_list_has_fewer() {
    let named = |nth: usize| pool(&format!("p{nth:03}"), 1, &tier(&nth.to_string()));
    let mut cluster = Cluster::default();
    let mut listed: Vec<_> = (0..200).rev().map(named).collect();
    Item::<Pool>::bound(&mut listed);
    assert_eq!(listed.len(), POOLS_MAX + 1);
    cluster.replace(listed);
    let ends = |cluster: &Cluster| {
        let (first, last) = (cluster.pools.keys().next(), cluster.pools.keys().last());
        let name = |name: Option<&String>| name.cloned().unwrap_or_default();
        (name(first), name(last), cluster.pools.len())
    };
    assert_eq!(ends(&cluster), ("p000".into(), "p127".into(), POOLS_MAX));
    assert_eq!(cluster.pool_left_out.as_deref(), Some("p128"));
    // The status of a pool that is left out changes, then one begins in another place.
    let known = known(&cluster);
    named(150).put(&mut cluster);
    assert!(known.is_of(&cluster));
    pool("a", 1, &tier("a")).put(&mut cluster);
    assert!(!known.is_of(&cluster));
    assert_eq!(ends(&cluster), ("a".into(), "p126".into(), POOLS_MAX));
    assert_eq!(cluster.pool_left_out.as_deref(), Some("p127"));
    // Only a list tells whether there are more.
    <Item<Pool> as Watched>::remove("a", &mut cluster);
    assert_eq!(cluster.pool_left_out.as_deref(), Some("p127"));
    cluster.replace((50..50 + POOLS_MAX).map(named));
    assert_eq!(ends(&cluster), ("p050".into(), "p177".into(), POOLS_MAX));
    assert_eq!(cluster.pool_left_out, None);
}

#[test]
fn a_pool_says_whether_pods_that_ask_for_it_are_respected() {
    let drain = |respects: Option<bool>| {
        let drain = respects.map(|respects| json!({"respectDoNotDisrupt": respects}));
        vec![a_pool("a", json!({"drain": drain}))]
    };
    for (pools, respects) in [
        (vec![], false),
        (drain(None), false),
        (drain(Some(false)), false),
        (drain(Some(true)), true),
    ] {
        let mut cluster = Cluster::default();
        node("n", &json!({})).put(&mut cluster);
        cluster.replace(drain(Some(true)));
        let mut known = known(&cluster);
        cluster.replace(pools);
        let policy = Policy::default();
        known.prepare(&mut cluster, Timestamp::UNIX_EPOCH, &policy);
        let rules = cluster.rules(cluster.owner("brs-n"), &policy);
        assert_eq!(rules.respect_do_not_disrupt, respects);
    }
}
