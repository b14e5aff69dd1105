//! Tests of the pods that are evicted, and of their order.

mod obstacles;

use super::*;
use crate::objects::Budget;
use crate::tests::world::{self, rows};
use brupop_api::Item;
use brupop_api::names::{DO_NOT_DISRUPT_ANNOTATION, SAFE_TO_EVICT_ANNOTATION};
use serde_json::{Value, json};

const NO_BUDGETS: [std::sync::Arc<Item<Budget>>; 0] = [];

fn pod(name: &str, owner: Option<&str>, phase: &str, more: &Value) -> PodItem {
    let owners = json!({"ownerReferences": owner.map(|kind| world::controlled_by(kind, "cart"))});
    world::pod(
        name,
        json!({"metadata": world::with(owners, more), "status": {"phase": phase}}),
    )
}

fn of<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
    listed: &[&str],
) -> DrainPlan {
    let operator_pods = listed.iter().map(|name| format!("uid-{name}")).collect();
    let marker = Marker {
        operator_pods,
        ..Marker::default()
    };
    DrainPlan::of(pods, is_operator_pod, Some(&marker), None)
}

pub(super) fn names(pods: &[PodKey]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

#[test]
fn the_table() {
    let none = json!({});
    let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    let owned = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o"}]});
    let safe = json!({"annotations": {SAFE_TO_EVICT_ANNOTATION: "true"}});
    let (replica_set, daemon_set) = (Some("ReplicaSet"), Some("DaemonSet"));
    for (what, owner, phase, more, expected) in rows! {
        "of a ReplicaSet", replica_set, "Running", &none => DrainAction::Evicted;
        "of a ReplicaSet, pending", replica_set, "Pending", &none => DrainAction::Evicted;
        "of a Job, finished", Some("Job"), "Succeeded", &none => DrainAction::Evicted;
        "of a DaemonSet", daemon_set, "Running", &none => DrainAction::Stays;
        "of a DaemonSet, leaving", daemon_set, "Running", &leaving => DrainAction::Stays;
        "of a DaemonSet, failed", daemon_set, "Failed", &none => DrainAction::Evicted;
        "mirror", Some("Node"), "Running", &mirror => DrainAction::Stays;
        "leaving", replica_set, "Running", &leaving => DrainAction::Leaving;
        "finished, but held by a finalizer", Some("Job"), "Succeeded", &leaving => DrainAction::Stays;
        "failed, but held by a finalizer", None, "Failed", &leaving => DrainAction::Stays;
        "unmanaged", None, "Running", &none => DrainAction::Stuck(Stuck::Unmanaged);
        "unmanaged, finished", None, "Failed", &none => DrainAction::Evicted;
        "unmanaged, but safe to evict", None, "Running", &safe => DrainAction::Evicted;
        "unmanaged, leaving", None, "Running", &leaving => DrainAction::Leaving;
        "owned, but not controlled", None, "Running", &owned => DrainAction::Stuck(Stuck::Unmanaged);
    } {
        assert_eq!(
            drain_action(&pod("a", owner, phase, more)),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_plan_names_each_workload_once() {
    let pods = [
        pod("b", Some("ReplicaSet"), "Running", &json!({})),
        pod("a", Some("ReplicaSet"), "Running", &json!({})),
        pod("c", Some("DaemonSet"), "Running", &json!({})),
        pod("d", None, "Running", &json!({})),
        pod(
            "e",
            Some("StatefulSet"),
            "Running",
            &json!({"deletionTimestamp": "2026-11-21T04:00:00Z"}),
        ),
    ];
    let plan = of(&pods, |_| false, &[]);
    assert_eq!(names(&plan.evict), ["a", "b"]);
    let leaving: Vec<_> = plan
        .leaving
        .iter()
        .map(|(by, pod)| (by.to_string(), &*pod.name))
        .collect();
    assert_eq!(leaving, [("2026-11-21T04:00:00Z".to_owned(), "e")]);
    let stuck: Vec<_> = plan
        .stuck
        .iter()
        .map(|(pod, why)| (&*pod.name, *why))
        .collect();
    assert_eq!(stuck, [("d", Stuck::Unmanaged)]);
    assert!(plan.owners.iter().eq([
        "apps/v1/ReplicaSet/shop/cart",
        "apps/v1/StatefulSet/shop/cart"
    ]));
    assert!(!plan.is_done());
    let forced = plan.clone().forced();
    assert_eq!(names(&forced.evict), ["a", "b", "d"]);
    assert!(of(&pods[2..3], |_| false, &[]).is_done());
}

#[test]
fn an_unreadable_pod_holds_its_drain_up() {
    let pods = [
        pod("a", Some("ReplicaSet"), "Running", &json!({})),
        pod(
            "bad",
            Some("ReplicaSet"),
            "Running",
            &json!({"labels": {"size": 3}}),
        ),
    ];
    let plan = of(&pods, |_| false, &[]);
    assert_eq!(
        (plan.evict.len(), plan.unreadable_pods(), plan.is_done()),
        (1, 1, false)
    );
    let none = of(&pods[..1], |_| false, &[]);
    assert_eq!(none.unreadable_pods(), 0);
    assert!(!of(&pods[1..], |_| false, &[]).is_done());
    let unmanaged = ["z", "y"].map(|name| pod(name, None, "Running", &json!({})));
    let plan_of_all = of(unmanaged.iter().chain(&pods), |_| false, &[]);
    let told = plan_of_all.for_people().map(|says| says[13..14].to_owned());
    assert_eq!(told.collect::<Vec<_>>(), ["y", "z", "b"], "unmanaged first");
    let says: Vec<_> = plan.for_people().collect();
    assert!(
        matches!(&says[..], [one] if one.starts_with("the pod shop/bad cannot be read")),
        "{says:?}"
    );
    assert_eq!(plan.forced().evict.len(), 2);
}

#[test]
fn only_our_listed_pods_go_last() {
    let cart = |more: &Value| pod("cart-0", Some("ReplicaSet"), "Running", more);
    let [webhook, remade] = ["brupop-webhook-0", "brupop-webhook-1"]
        .map(|it| pod(it, Some("ReplicaSet"), "Running", &json!({})));
    let ours = |pod: &PodItem| pod.name().starts_with("brupop");
    let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
    let (others, listed) = (cart(&json!({})), &["brupop-webhook-0"][..]);
    for (says, pods, listed, evicts, lists, done) in rows! {
        "others go first", vec![&webhook, &others], &[][..], &["cart-0"][..], false => false;
        "and are waited for", vec![&webhook, &cart(&leaving)], &[], &[], false => false;
        "then ours are listed", vec![&webhook], &[], &[], true => false;
        "and evicted", vec![&webhook, &remade], listed, listed, false => false;
        "but not what comes back", vec![&remade], listed, &[], false => true;
        "which waits its turn", vec![&webhook, &others], listed, &["cart-0"], false => false;
    } {
        let plan = of(pods, ours, listed);
        assert_eq!(names(&plan.evict), evicts, "{says}");
        assert_eq!(
            (plan.operator_pods.len() == 1, plan.is_done()),
            (lists, done),
            "{says}"
        );
        assert_eq!(
            plan.evict_operator_pods,
            done || evicts == ["brupop-webhook-0"],
            "{says}"
        );
    }
    let lingering = pod("brupop-webhook-0", Some("ReplicaSet"), "Running", &leaving);
    assert!(of(&[lingering], ours, &[]).is_done(), "is not waited for");
    let many: Vec<_> = (0..20)
        .map(|it| {
            pod(
                &format!("brupop-{it}"),
                Some("ReplicaSet"),
                "Running",
                &json!({}),
            )
        })
        .collect();
    let listed = of(many.iter().rev(), ours, &[]).operator_pods;
    assert_eq!(listed.len(), OPERATOR_PODS_MAX);
    assert!(listed.is_sorted());
}

/// One that asks not to be disrupted.
fn asking(name: &str, phase: &str, annotation: &str, more: &Value) -> PodItem {
    let mut metadata = more.clone();
    metadata["annotations"] =
        json!({annotation: if annotation == SAFE_TO_EVICT_ANNOTATION { "false" } else { "true" }});
    pod(name, Some("ReplicaSet"), phase, &metadata)
}

#[test]
fn pods_that_ask_for_it_are_waited_for() {
    let none = json!({});
    let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
    let pods = [
        pod("a", Some("ReplicaSet"), "Running", &none),
        asking("b", "Running", DO_NOT_DISRUPT_ANNOTATION, &none),
        asking("c", "Running", SAFE_TO_EVICT_ANNOTATION, &none),
        asking("d", "Pending", DO_NOT_DISRUPT_ANNOTATION, &none),
        asking("e", "Succeeded", DO_NOT_DISRUPT_ANNOTATION, &none),
        asking("f", "Running", DO_NOT_DISRUPT_ANNOTATION, &leaving),
    ];
    let all = of(&pods, |_| false, &[]);
    let mut plan = all.clone();
    plan.respect(&pods);
    assert_eq!(
        names(&plan.evict),
        ["a", "d", "e"],
        "those that do not ask, have not begun, or have ended"
    );
    let undisturbed: Vec<_> = plan
        .stuck
        .iter()
        .map(|(pod, why)| (&*pod.name, *why))
        .collect();
    assert_eq!(
        undisturbed,
        [
            ("b", Stuck::Undisturbed(DO_NOT_DISRUPT_ANNOTATION)),
            ("c", Stuck::Undisturbed(SAFE_TO_EVICT_ANNOTATION))
        ]
    );
    let says = plan.for_people().next().unwrap();
    for word in ["shop/b", DO_NOT_DISRUPT_ANNOTATION, "the drain waits"] {
        assert!(says.contains(word), "{says}");
    }
    assert_eq!(plan.forced().evict, all.forced().evict, "force evicts them");

    let mut last = of(&pods[1..2], |_| false, &[]);
    last.respect(&pods[1..2]);
    assert!(last.evict.is_empty() && !last.is_done(), "{last:?}");
    let mut ours = of(&pods[1..2], |_| true, &["b"]);
    ours.respect(&pods[1..2]);
    assert_eq!(ours.evict.len(), 1, "the operator's own are not spared");
}

#[test]
fn a_pod_that_asks_for_it_holds_its_node_as_long_as_it_runs() {
    let none = json!({});
    let running = asking("a", "Running", SAFE_TO_EVICT_ANNOTATION, &none);
    let found = |pod: &PodItem, ours: bool, respects: bool| {
        obstacle(
            || std::iter::once(pod),
            &NO_BUDGETS,
            |_| ours,
            respects,
            Timestamp::UNIX_EPOCH,
        )
    };
    let Some(Obstacle::Never(why)) = found(&running, false, true) else {
        panic!("{:?}", found(&running, false, true))
    };
    let asks =
        format!("the annotation {SAFE_TO_EVICT_ANNOTATION} of the pod shop/a allows no disruption");
    assert!(why.starts_with(&asks), "{why}");
    assert_eq!(
        found(&running, false, false),
        None,
        "not respected, as by kubectl drain"
    );
    assert_eq!(found(&running, true, true), None, "ours");
    for phase in ["Pending", "Succeeded", "Failed"] {
        let pod = asking("a", phase, DO_NOT_DISRUPT_ANNOTATION, &none);
        assert_eq!(found(&pod, false, true), None, "{phase}");
    }
}

#[test]
fn pods_that_should_have_ended_are_told_and_at_last_overlooked() {
    let ends = |time: Timestamp| json!({"deletionTimestamp": time.to_string()});
    let of_kind = |name, more: &Value| pod(name, Some("ReplicaSet"), "Running", more);
    let [start, late] = ["2026-11-21T04:00:00Z", "2026-11-21T04:00:30Z"].map(world::at);
    let last = late + LATE;
    let [b, a, c] = [("b", ends(start)), ("a", ends(late)), ("c", json!({}))]
        .map(|(name, more)| of_kind(name, &more));
    let pods = || [&a, &c, &b].into_iter();
    for (time, next, told) in rows! {
        start, Some(late) => None;
        late, Some(last) => Some(overdue("shop", "b", start));
        last, None => Some(overdue("shop", "a", late));
    } {
        assert_eq!(next_overdue(pods(), time), next, "{time}");
        let found = obstacle(pods, &NO_BUDGETS, |_| false, false, time);
        assert_eq!(found, told.map(Obstacle::Never), "{time}");
    }
    assert!(overdue("shop", "b", start).starts_with("the pod shop/b should have ended"));
    for (overlooked, left) in [(None, &["b", "a"][..]), (Some(start), &["a"])] {
        let leaving = DrainPlan::of(pods(), |_| false, None, overlooked).leaving;
        assert!(
            leaving
                .iter()
                .map(|(_, pod)| &*pod.name)
                .eq(left.iter().copied())
        );
    }
}

#[test]
fn pods_that_take_longer_to_end_than_their_drain_are_slow() {
    let slow = |of: &str, grace: i64, more: Value| {
        let spec = json!({"metadata": {"ownerReferences": world::controlled_by(of, "cart")},
            "spec": {"terminationGracePeriodSeconds": grace}});
        let pod = world::pod("a", world::with(spec, &json!({"metadata": more})));
        !slow_pods([&pod].into_iter(), 600).is_empty()
    };
    let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
    assert!(slow("ReplicaSet", 601, json!({})) && slow("ReplicaSet", 601, leaving));
    assert!(!slow("ReplicaSet", 600, json!({})) && !slow("DaemonSet", 601, json!({})));
}

#[test]
fn pods_that_a_budget_blocks_are_evicted_alone_at_first() {
    let none = json!({});
    let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
    let of_kind = |name, more| pod(name, Some("ReplicaSet"), "Running", more);
    let (a, b, c) = (
        of_kind("a", &none),
        of_kind("b", &none),
        of_kind("c", &leaving),
    );
    let first = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("uid-{name}"))
            .collect::<BTreeSet<_>>()
    };
    for (says, pods, first, evicts) in rows! {
        "no budget blocks one", vec![&a, &b], first(&[]) => vec!["a", "b"];
        "one is blocked", vec![&a, &b], first(&["b"]) => vec!["b"];
        "it terminates", vec![&a, &c], first(&["c"]) => vec![];
        "it has gone", vec![&a], first(&["b"]) => vec!["a"];
    } {
        let mut plan = of(pods, |_| false, &[]);
        plan.put_first(&first);
        assert_eq!(names(&plan.evict), evicts, "{says}");
        assert!(!plan.is_done(), "{says}: those that wait are waited for");
    }
}

#[test]
fn late_pods_that_tolerate_the_cordon_are_left() {
    let tolerant = |name: &str| {
        world::pod(
            name,
            json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        )
    };
    let (first, early, late) = (tolerant("first"), tolerant("early"), tolerant("late"));
    let (plain, all) = (
        world::pod("plain", json!({})),
        [Duration::ZERO, SCHEDULER_LAG, SCHEDULER_LAG + ARRIVAL_PAUSE],
    );
    let [listed, lag, later] = all.map(|after| Duration::from_secs(7) + after);
    let arrivals = Arrivals::record(None, [&first], listed);
    assert_eq!(arrivals.recent(listed).len(), 0, "all are of the list");
    let arrivals = Arrivals::record(Some(&arrivals), [&first, &early], lag);
    assert_eq!(
        arrivals.recent(lag),
        BTreeMap::from([(early.uid(), lag + ARRIVAL_PAUSE)])
    );
    let pods = [&first, &early, &late, &plain];
    let arrivals = Arrivals::record(Some(&arrivals), pods, later);
    assert!(arrivals.recent(later).keys().eq(&[late.uid(), plain.uid()]));
    assert_eq!(
        pods.map(|pod| arrivals.is_left(pod)),
        [false, false, true, false]
    );
    // The next leader, or the next cordon, has a list of its own.
    assert!(!Arrivals::record(None, pods, later).is_left(&late));
}
