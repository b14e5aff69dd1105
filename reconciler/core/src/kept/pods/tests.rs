use super::*;
use proptest::prelude::*;
use serde_json::json;

use crate::kept::budgets::tests::budget;
use crate::tests::world;

fn pod(namespace: &str, name: &str, labels: &[&str]) -> PodItem {
    let labels: BTreeMap<_, _> = labels.iter().map(|key| (*key, "v")).collect();
    let labels = world::with(json!({"app": null}), &json!(labels));
    world::pod(
        name,
        json!({"metadata": {"namespace": namespace, "labels": labels}}),
    )
}

/// This many pods of a tenant, of usual size, are listed on this node.
fn list(pods: &mut KeptPods, node: &str, count: usize) {
    let (budgets, one) = (KeptBudgets::default(), pod("tenant", "p", &[]));
    pods.list_begins(node, &budgets);
    for number in 0..count {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        another.metadata.uid = Some(format!("uid-p-{number}"));
        pods.listed(node, another, &budgets);
    }
    pods.list_ends(node);
}

fn names(pods: &KeptPods, node: &str) -> Vec<String> {
    pods.of(node)
        .iter()
        .map(|pod| pod.name().to_owned())
        .collect()
}

/// A tenant may put 12,000 pods with all the labels that there can be on any node.
#[test]
fn the_pods_of_a_node_are_bounded() {
    let mut pods = KeptPods::default();
    pods.want([("next", false), ("other", false)]);
    list(&mut pods, "other", 110);
    let (none, labels) = (
        KeptBudgets::default(),
        (0..128)
            .map(|nth| format!("label-{nth:050}"))
            .collect::<Vec<_>>(),
    );
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    pods.list_begins("next", &none);
    let (one, mut most) = (pod("tenant", "p", &labels), 0);
    for number in 0..12_000 {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        pods.listed("next", another, &none);
        most = most.max(pods.bytes);
    }
    assert!(most < OF_NODE_MAX + OF_NODE_MAX / 4, "{most}");
    pods.list_ends("next");
    pods.put("next", pod("tenant", "later", &[]), &none);
    assert!(pods.has_dropped() && pods.of("next").is_empty() && pods.revision("next").is_none());
    assert_eq!(
        pods.take_dropped(),
        BTreeMap::from([("next".to_owned(), Dropped::TooMany)])
    );
    assert!(!pods.has_dropped());
    assert_eq!(pods.of("other").len(), 110, "nobody else's are dropped");
    // Most tenants do not; and a kubelet may run more than 110 of them.
    list(&mut pods, "other", 1_500);
    assert_eq!(pods.of("other").len(), 1_500);
}

#[test]
fn who_is_passed_over_makes_room_and_the_largest_first() {
    let mut pods = KeptPods::default();
    let hog = |number: usize| format!("hog-{number:03}");
    let hogs: Vec<String> = (0..40).map(hog).collect();
    let wanted = |spare: bool| hogs.iter().map(move |name| (name.as_str(), spare));
    pods.want(wanted(true).chain([("small", true), ("drained", false)]));
    list(&mut pods, "drained", 1_900);
    list(&mut pods, "small", 110);
    hogs.iter()
        .enumerate()
        .for_each(|(number, name)| list(&mut pods, name, 1_500 + number));
    assert!(pods.bytes <= OF_ALL_MAX);
    let dropped = pods.take_dropped();
    assert!(
        !dropped.is_empty() && dropped.values().all(|why| *why == Dropped::MadeRoom),
        "{dropped:?}"
    );
    assert!(
        dropped.keys().all(|name| name.starts_with("hog")),
        "{dropped:?}"
    );
    assert_eq!(
        (pods.of("drained").len(), pods.of("small").len()),
        (1_900, 110)
    );
    // If none of them is passed over, the largest has too many.
    pods.want(wanted(false).chain([("small", false), ("drained", false)]));
    for name in &hogs {
        list(&mut pods, name, 1_500);
    }
    let dropped = pods.take_dropped();
    assert_eq!(dropped["drained"], Dropped::TooMany);
    assert_eq!(pods.of("small").len(), 110, "each has its share");
}

#[test]
fn labels_are_kept_if_a_budget_of_their_namespace_asks_for_them() {
    let mut budgets = KeptBudgets::default();
    budgets.put(budget("shop", "a", "app", 1));
    let mut pods = KeptPods::default();
    pods.want([("a", false), ("b", false)]);
    for (node, namespace) in [("a", "shop"), ("b", "bank")] {
        pods.list_begins(node, &budgets);
        pods.listed(
            node,
            pod(namespace, "p", &["app", "tier", names::COMPONENT_LABEL]),
            &budgets,
        );
        pods.list_ends(node);
    }
    let kept = |pods: &KeptPods, node: &str| {
        pods.of(node)[0]
            .ok()
            .unwrap()
            .labels
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&pods, "a"), ["app", names::COMPONENT_LABEL]);
    assert_eq!(kept(&pods, "b"), [names::COMPONENT_LABEL]);
    assert_eq!(pods.take_outdated(&budgets), Vec::<String>::new());
    // What is asked for later is on no pod that is kept; so those pods are listed again, and no others.
    budgets.put(budget("shop", "b", "tier", 1));
    assert_eq!(pods.take_outdated(&budgets), ["a"]);
    assert_eq!(pods.take_outdated(&budgets), Vec::<String>::new(), "once");
    budgets.put(budget("shop", "c", "app", 1));
    budgets.put(budget("park", "a", "tree", 1));
    assert_eq!(
        pods.take_outdated(&budgets),
        Vec::<String>::new(),
        "nobody asks for more of their pods"
    );
    // Of a list that is not complete, too.
    pods.list_begins("b", &budgets);
    pods.listed("b", pod("mall", "p", &["app"]), &budgets);
    budgets.put(budget("mall", "a", "app", 1));
    assert_eq!(pods.take_outdated(&budgets), ["b"]);
    assert!(pods.of("b")[0].metadata.resource_version.is_none());
}

#[derive(Clone, Debug)]
enum Told {
    Want(Vec<(u8, bool)>),
    Begins(u8),
    Listed(u8, u8, u8),
    Ends(u8),
    Put(u8, u8, u8),
    Removed(u8, u8),
}

fn told() -> impl Strategy<Value = Told> {
    let (node, name, labels) = (0..3_u8, 0..4_u8, 0..3_u8);
    prop_oneof![
        prop::collection::vec((node.clone(), any::<bool>()), 0..4).prop_map(Told::Want),
        node.clone().prop_map(Told::Begins),
        (node.clone(), name.clone(), labels.clone())
            .prop_map(|(node, name, it)| Told::Listed(node, name, it)),
        node.clone().prop_map(Told::Ends),
        (node.clone(), name.clone(), labels).prop_map(|(node, name, it)| Told::Put(node, name, it)),
        (node, name).prop_map(|(node, name)| Told::Removed(node, name)),
    ]
}

proptest! {
    #[test]
    fn what_is_kept_is_what_is_counted(all in prop::collection::vec(told(), 0..60)) {
        let mut budgets = KeptBudgets::default();
        budgets.put(budget("shop", "a", "a", 1));
        budgets.put(budget("shop", "b", "b", 1));
        let mut pods = KeptPods::default();
        let named = |name: u8, labels: u8| pod("shop", &format!("p-{name}"), &["a", "b"][..labels.into()]);
        let node = |number: u8| format!("n-{number}");
        for told in all {
            match told {
                Told::Want(nodes) => {
                    let nodes: Vec<_> = nodes.into_iter().map(|(number, spare)| (node(number), spare)).collect();
                    pods.want(nodes.iter().map(|(name, spare)| (name.as_str(), *spare)));
                }
                Told::Begins(number) => pods.list_begins(&node(number), &budgets),
                Told::Listed(number, name, labels) => pods.listed(&node(number), named(name, labels), &budgets),
                Told::Ends(number) => pods.list_ends(&node(number)),
                Told::Put(number, name, labels) => pods.put(&node(number), named(name, labels), &budgets),
                Told::Removed(number, name) => pods.remove(&node(number), &named(name, 0)),
            }
            let kept = pods.nodes.values().flat_map(|it| it.now.all.values().chain(it.listed.all.values()));
            prop_assert_eq!(pods.bytes, kept.map(|pod| bytes(pod)).sum::<usize>());
        }
        prop_assert!((0..3).all(|number| names(&pods, &node(number)).len() <= 4));
    }
}
