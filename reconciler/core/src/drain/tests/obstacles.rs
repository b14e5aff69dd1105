//! An obstacle to a drain.

use super::super::*;
use crate::objects::{Allowed, matters, relaxed};
use crate::tests::world::{self, rows};
use brupop_api::item::Unreadable;
use kube::core::Selector;
use serde_json::json;
use std::sync::Arc;

fn budget(namespace: &str, name: &str, allowed: i32) -> Item<Budget> {
    let metadata = json!({"namespace": namespace});
    world::budget(
        name,
        json!({"metadata": metadata, "status": {"disruptionsAllowed": allowed}}),
    )
}

fn pod(name: &str, owner: Option<&str>, ready: &str) -> PodItem {
    let owners = owner.map(|kind| world::controlled_by(kind, "cart"));
    let conditions = json!([{"type": "Ready", "status": ready}]);
    world::pod(
        name,
        json!({"metadata": {"ownerReferences": owners}, "status": {"conditions": conditions}}),
    )
}

fn over(name: &str, app: &str, expected: i32, desired: i32) -> Arc<Item<Budget>> {
    let change = json!({
        "metadata": {"generation": 2}, "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"observedGeneration": 2, "currentHealthy": expected, "desiredHealthy": desired,
            "expectedPods": expected},
    });
    world::budget(name, change).into()
}

#[test]
fn what_can_never_be_evicted_is_named() {
    let of = |kind| pod("cart-0", Some(kind), "True");
    let cart = of("ReplicaSet");
    let unready = pod("cart-0", Some("ReplicaSet"), "False");
    let mut pending = unready.clone();
    pending.body.as_mut().unwrap().pending = true;
    let but = |name, app, (expected, desired), change: &dyn Fn(&mut Budget)| {
        let mut budget = over(name, app, expected, desired);
        change(Arc::make_mut(&mut budget).body.as_mut().unwrap());
        vec![budget]
    };
    let (all, most) = (
        || vec![over("all", "cart", 2, 2)],
        || vec![over("most", "cart", 2, 1)],
    );
    let two = || vec![over("a", "cart", 9, 1), over("b", "cart", 9, 1)];
    let everything = || {
        but("everything", "cart", (2, 2), &|it| {
            it.selector = Some(Selector::default());
        })
    };
    let nothing = || but("nothing", "cart", (2, 2), &|it| it.selector = None);
    let unread = |namespace| {
        let mut budget = over("bad", "mail", 9, 1);
        let item = Arc::make_mut(&mut budget);
        item.body = Err(Unreadable::TooLong("selector"));
        item.metadata.namespace = Some(String::from(namespace));
        vec![budget]
    };
    for (says, pod, budgets, word) in rows! {
        "no budget", &cart, vec![] => None;
        "one that allows a disruption", &cart, most() => None;
        "one that allows none", &cart, all() => None;
        "of no pods", &cart, nothing() => None;
        "of all pods, beside another", &cart, [everything(), most()].concat()
            => Some("shop/everything and most select");
        "two", &cart, two() => Some("shop/a and b select");
        "two, not Ready", &unready, two() => Some("shop/a and b select");
        "two, not begun", &pending, two() => None;
        "unreadable", &cart, unread("shop") => Some("shop/bad cannot be read (its selector is");
        "unreadable, of another namespace", &cart, unread("bank") => None;
        "of a DaemonSet", &of("DaemonSet"), all() => None;
        "unmanaged", &pod("debug", None, "True"), vec![] => Some("shop/debug has no controller");
    } {
        let here = by_namespace([pod], &budgets);
        let now = Timestamp::UNIX_EPOCH;
        let found = undrainable([pod], &here, now);
        let is_named = found
            .as_deref()
            .map(|why| word.is_some_and(|word| why.contains(word)));
        assert_eq!(is_named, word.map(|_| true), "{says}: {found:?}");
        let of_ours = obstacle(|| [pod].into_iter(), &budgets, |_| true, false, now);
        assert_eq!(of_ours, None, "{says}, but ours");
    }
}

#[test]
fn a_shut_budget_is_waited_for() {
    let of = |kind, ready| pod("cart-0", Some(kind), ready);
    let (ready, unready) = (of("ReplicaSet", "True"), of("ReplicaSet", "False"));
    let allowing = |allowed| {
        let mut budget = over("some", "cart", 3, 2);
        Arc::make_mut(&mut budget).body.as_mut().unwrap().allowed = allowed;
        vec![budget]
    };
    let too_few = |change: fn(&mut Budget)| {
        let mut budgets = allowing(0);
        let budget = Arc::make_mut(&mut budgets[0]).body.as_mut().unwrap();
        budget.enough_healthy = false;
        change(budget);
        budgets
    };
    let spares_ready: fn(&mut Budget) = |budget| budget.spares_ready_only = true;
    let mut pending = unready.clone();
    pending.body.as_mut().unwrap().pending = true;
    for (says, pods, budgets, waits) in rows! {
        "one that allows none", vec![&ready], allowing(0) => true;
        "one that allows one", vec![&ready], allowing(1) => false;
        "of a DaemonSet", vec![&of("DaemonSet", "True")], allowing(0) => false;
        "only a pod that is not Ready", vec![&unready], allowing(0) => false;
        "a pod of the node that is not Ready may be the cause", vec![&ready, &unready], allowing(0) => false;
        "of other pods", vec![&ready], vec![over("most", "mail", 3, 2)] => false;
        "too few are healthy, so those that are not stay, too", vec![&unready], too_few(|_| ()) => true;
        "and are not the cause", vec![&ready, &unready], too_few(|_| ()) => true;
        "they may go always", vec![&unready], too_few(spares_ready) => false;
        "and may be well elsewhere", vec![&ready, &unready], too_few(spares_ready) => false;
        "one that has not begun goes", vec![&pending], too_few(|_| ()) => false;
        "and has not been seen by its controller", vec![&unready], too_few(|it| it.observed = false) => false;
    } {
        let here = by_namespace(pods.iter().copied(), &budgets);
        let why = blocked(pods, &here);
        let why = why
            .map(|why| why.starts_with("the PodDisruptionBudget shop/some allows no disruption"));
        assert_eq!(why, waits.then_some(true), "{says}");
    }
    let (ready, now) = (|| [&ready].into_iter(), Timestamp::UNIX_EPOCH);
    let of_ours = obstacle(ready, &allowing(0), |_| true, false, now);
    assert_eq!(of_ours, None);
}

/// By the status that the disruption controller writes, as the API server's eviction reads it.
#[test]
fn pods_that_are_not_ready_go_while_enough_others_are_healthy() {
    let read = |current: i32, desired: i32| {
        world::budget(
            "cart",
            json!({"status": {"currentHealthy": current, "desiredHealthy": desired}}),
        )
    };
    for (current, desired, enough) in [
        (1, 2, false),
        (2, 2, true),
        (3, 2, true),
        (0, 0, false),
        (1, 0, false),
    ] {
        assert_eq!(
            read(current, desired).ok().unwrap().enough_healthy,
            enough,
            "{current} of {desired}"
        );
    }
    assert!(matters(&read(1, 2), &read(2, 2)), "those not Ready may go");
    assert!(!matters(&read(2, 2), &read(3, 2)), "as before");
}

#[test]
fn only_larger_allowances_are_asked_again() {
    let mut budgets = Allowed::new();
    let mut look = |found: &[Item<Budget>]| {
        relaxed(&mut budgets, found.iter())
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert!(
        look(&[budget("a", "x", 1), budget("b", "x", 0)]).is_empty(),
        "the first look"
    );
    assert_eq!(look(&[budget("a", "x", 1), budget("b", "x", 1)]), ["b"]);
    assert_eq!(look(&[budget("a", "x", 0), budget("b", "x", 1)]), [""; 0]);
    assert_eq!(look(&[budget("b", "x", 1)]), ["a"], "it is gone");
    assert_eq!(look(&[budget("b", "x", 1)]), [""; 0]);
}

/// A budget of a namespace, with this number of requirements. Each of them is compared with each pod.
fn long(namespace: &str, name: &str, requirements: usize) -> Arc<Item<Budget>> {
    let expressions: Vec<_> = (0..requirements)
        .map(|key| json!({"key": format!("{name}-{key}"), "operator": "DoesNotExist"}))
        .collect();
    let selector = json!({"matchLabels": null, "matchExpressions": expressions});
    let change = json!({"metadata": {"namespace": namespace}, "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 1}});
    world::budget(name, change).into()
}

/// However many pods and budgets there are, only so much is compared for a node without a pause.
#[test]
fn what_is_compared_for_a_node_is_bounded() {
    let pods_of_node: Vec<_> = (0..750)
        .map(|nth| pod(&format!("cart-{nth}"), Some("ReplicaSet"), "True"))
        .collect();
    let of = |namespace: &'static str| {
        let each = (0..63).map(move |nth| long(namespace, &format!("b{nth:02}"), 64));
        each.chain([long(namespace, "last", 0)])
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) = (of("shop").collect(), of("mail").collect());
    let look = |pods: usize, budgets: &[Arc<Item<Budget>>]| {
        let pods = || pods_of_node[..pods].iter();
        obstacle(pods, budgets, |_| false, false, Timestamp::UNIX_EPOCH)
    };
    let why = incomparable("shop");
    assert!(why.contains("namespace shop have too many selectors"));
    let too_many = Obstacle::Never(why);
    assert_ne!(look(110, &here), Some(too_many.clone()));
    // A pod more, and nothing is compared.
    for pods in [111, 750] {
        assert_eq!(look(pods, &here), Some(too_many.clone()));
    }
    assert_eq!(look(750, &elsewhere), None);
}

#[test]
fn advice_follows_the_kind_of_budget() {
    let cart = pod("cart-0", Some("ReplicaSet"), "True");
    let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
        "lastTransitionTime": "2026-11-21T04:00:00Z"}]);
    for (spec, status, advice) in rows! {
        json!({"maxUnavailable": 0}), json!({"expectedPods": 12, "desiredHealthy": 12}) => "so change the budget";
        json!({"maxUnavailable": "0%"}), json!({}) => "so change the budget";
        json!({"minAvailable": "100%"}), json!({}) => "so change the budget";
        json!({"minAvailable": 2}), json!({"expectedPods": 2, "desiredHealthy": 2}) => "so add a pod or";
        json!({"minAvailable": "90%"}), json!({"expectedPods": 3, "desiredHealthy": 3}) => "so add a pod or";
        json!({"maxUnavailable": 1}), json!({"expectedPods": 3, "desiredHealthy": 2}) => "more of its pods";
        json!({"minAvailable": 1}), json!({"conditions": failed}) => "kubectl describe pdb";
    } {
        let spec = world::with(json!({"selector": {"matchLabels": {"app": "cart"}}}), &spec);
        let budgets = [Arc::new(world::budget(
            "cart",
            json!({"spec": spec, "status": status}),
        ))];
        let found = obstacle(
            || std::iter::once(&cart),
            &budgets,
            |_| false,
            false,
            Timestamp::UNIX_EPOCH,
        );
        let Some(Obstacle::Budget { why, waited: false }) = found else {
            panic!("{spec}: {found:?}")
        };
        assert!(
            why.contains("shop/cart allows no disruption") && why.contains(advice),
            "{spec}: {why}"
        );
        assert_eq!(
            blocked_pods(|| std::iter::once(&cart), &budgets, |_| false).len(),
            1
        );
        assert!(
            blocked_pods(|| std::iter::once(&cart), &budgets, |_| true).is_empty(),
            "ours"
        );
    }
}

#[test]
fn budget_that_its_controller_has_not_seen_blocks_too() {
    let cart = pod("cart-0", Some("ReplicaSet"), "True");
    for (allowed, observed, blocks) in [
        (0, true, true),
        (0, false, true),
        (1, true, false),
        (1, false, true),
    ] {
        let mut budget = over("some", "cart", 3, 2);
        let body = Arc::make_mut(&mut budget).body.as_mut().unwrap();
        (body.allowed, body.observed) = (allowed, observed);
        let blocked = blocked_pods(|| std::iter::once(&cart), &[budget], |_| false);
        assert_eq!(!blocked.is_empty(), blocks, "{allowed}, {observed}");
    }
}
