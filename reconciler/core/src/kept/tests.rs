use super::*;
use crate::decide::MAX_SUCCESSORS;
use crate::objects::PodItem;
use crate::tests::world;
use brupop_api::crds::SLOTS_MAX;
use proptest::prelude::*;
use serde_json::json;

fn pod(namespace: &str, name: &str, labels: &[&str]) -> PodItem {
    let labels: BTreeMap<_, _> = labels.iter().map(|key| (*key, "v")).collect();
    let labels = world::with(json!({"app": null}), &json!(labels));
    world::pod(
        name,
        json!({"metadata": {"namespace": namespace, "labels": labels}}),
    )
}

/// This many pods of a tenant, of usual size, are listed on this node.
fn list(pods: &mut Kept<Pod>, node: &str, count: usize) {
    let one = pod("tenant", "p", &[]);
    pods.begin_list(Some(node));
    for number in 0..count {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        another.metadata.uid = Some(format!("uid-p-{number}"));
        pods.put(node, another);
    }
    pods.end_list(Some(node));
}

/// A budget that asks for a label of this key.
fn budget(namespace: &str, name: &str, key: &str) -> Item<Budget> {
    let labels = world::with(json!({"app": null}), &json!({key: "v"}));
    let metadata = json!({"namespace": namespace});
    let spec = json!({"selector": {"matchLabels": labels}});
    world::budget(name, json!({"metadata": metadata, "spec": spec}))
}

fn put(budgets: &mut Kept<Budget>, budget: Item<Budget>) {
    let namespace = budget.namespace().to_owned();
    budgets.put(&namespace, budget);
}

/// A tenant may put 12,000 pods with all the labels that there can be on any node.
#[test]
fn the_pods_of_a_node_are_bounded() {
    let mut pods = Kept::default();
    pods.retain(["next", "other"]);
    list(&mut pods, "other", 110);
    let labels: Vec<_> = (0..128).map(|nth| format!("label-{nth:050}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    pods.begin_list(Some("next"));
    let (one, mut most) = (pod("tenant", "p", &labels), 0);
    for number in 0..12_000 {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        pods.put("next", another);
        most = most.max(pods.bytes);
    }
    let bound = Pod::OF_GROUP_MAX;
    assert!(most < bound + bound / 4, "{most}");
    pods.end_list(Some("next"));
    pods.put("next", pod("tenant", "later", &[]));
    assert!(pods.too_many().eq(["next"]));
    assert_eq!((pods.of("next").len(), pods.revision_of("next")), (1, None));
    assert_eq!(pods.of("other").len(), 110, "nobody else's are dropped");
    // Most tenants do not; and a kubelet may run more than 110 of them.
    list(&mut pods, "other", 1_500);
    assert_eq!(pods.of("other").len(), 1_500);
}

#[test]
fn node_with_most_pods_gives_way() {
    let mut pods = Kept::default();
    let hogs: Vec<String> = (0..110).map(|number| format!("hog-{number:03}")).collect();
    list(&mut pods, "small", 110);
    list(&mut pods, "largest", 1_600);
    for name in &hogs {
        list(&mut pods, name, 1_400);
    }
    assert!(pods.bytes <= Pod::OF_ALL_MAX);
    let dropped: Vec<_> = pods.too_many().collect();
    assert!(dropped.contains(&"largest") && dropped.len() < 110);
    assert_eq!(pods.of("small").len(), 110, "each has its share");
}

#[test]
fn nodes_that_are_updated_or_next_have_room_for_all_their_pods() {
    let labels: Vec<_> = (0..5)
        .map(|nth| format!("example.com/label-{nth}"))
        .collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let one = pod("shop", "cart-7d9c5b6f4-x2x9p", &labels);
    let mut pods = Kept::default();
    for node in 0..SLOTS_MAX + MAX_SUCCESSORS as u64 {
        for number in 0..110 {
            let mut another = one.clone();
            another.metadata.name = Some(format!("cart-7d9c5b6f4-{number:05}"));
            pods.put(
                &format!("ip-10-0-12-{node}.eu-central-1.compute.internal"),
                another,
            );
        }
    }
    assert_eq!(pods.too_many().count(), 0, "{} bytes", pods.bytes);
}

#[test]
fn labels_are_kept_whole_and_weighed() {
    let mut pods = Kept::default();
    pods.put("a", pod("shop", "p", &[]));
    let without = pods.bytes;
    pods.put("a", pod("shop", "p", &["app", "tier"]));
    let kept = pods.of("a");
    assert!(kept[0].ok().unwrap().labels.keys().eq(["app", "tier"]));
    assert_eq!(pods.bytes - without, weight(["app", "v", "tier", "v"]));
    assert!(kept[0].metadata.resource_version.is_none());
}

/// A tenant may make any number of budgets, and larger ones.
#[test]
fn the_budgets_of_a_namespace_are_bounded() {
    let mut budgets = Kept::default();
    let long = "k".repeat(300);
    budgets.begin_list(None);
    put(&mut budgets, budget("shop", "cart", "app"));
    for number in 0..5_000 {
        put(
            &mut budgets,
            budget("hoarder", &format!("b-{number}"), &long),
        );
    }
    assert!(budgets.bytes < Budget::OF_GROUP_MAX, "{}", budgets.bytes);
    budgets.end_list(None);
    let bodies = |group| {
        let all = budgets.of(group).into_iter();
        all.map(|budget| budget.body.clone().map(drop))
            .collect::<Vec<_>>()
    };
    assert_eq!(bodies("shop"), [Ok(())]);
    assert_eq!(bodies("hoarder"), [Err(Unreadable::TooMany)], "one for all");
    // Nobody knows whether that is the last one.
    budgets.remove("hoarder", &budget("hoarder", "b-0", &long));
    put(&mut budgets, budget("hoarder", "b-1", &long));
    assert!(budgets.too_many().eq(["hoarder"]));
    budgets.begin_list(None);
    put(&mut budgets, budget("hoarder", "b-0", "app"));
    let is_complete = budgets.too_many().next().is_none();
    assert!(!is_complete && budgets.of("hoarder").len() == 2);
    budgets.end_list(None);
    assert!(budgets.too_many().next().is_none() && budgets.all().len() == 1);
}

#[derive(Default)]
struct Large;

impl Foreign for Large {
    const OF_GROUP_MAX: usize = 0;
    const OF_ALL_MAX: usize = 0;
    fn weight(&self) -> usize {
        1
    }
}

#[test]
fn a_group_that_is_empty_does_not_give_way() {
    let mut kept = Kept::default();
    kept.retain(["empty"]);
    let (metadata, body) = (budget("b", "b", "app").metadata, Ok(Large));
    kept.put("b", Item { metadata, body });
    assert!(kept.has("empty") && !kept.has("b"));
}

#[derive(Clone, Debug)]
enum Told {
    Retain(Vec<u8>),
    Begins(u8),
    Ends(u8),
    Put(u8, u8, u8),
    Removed(u8, u8),
}

fn told() -> impl Strategy<Value = Told> {
    let (node, name, labels) = (0..3_u8, 0..4_u8, 0..3_u8);
    prop_oneof![
        prop::collection::vec(node.clone(), 0..4).prop_map(Told::Retain),
        node.clone().prop_map(Told::Begins),
        node.clone().prop_map(Told::Ends),
        (node.clone(), name.clone(), labels).prop_map(|(node, name, it)| Told::Put(node, name, it)),
        (node, name).prop_map(|(node, name)| Told::Removed(node, name)),
    ]
}

proptest! {
    #[test]
    fn what_is_kept_is_what_is_counted(all in prop::collection::vec(told(), 0..60)) {
        let mut pods = Kept::default();
        let named = |name: u8, labels: u8| pod("shop", &format!("p-{name}"), &["a", "b"][..labels.into()]);
        let node = |number: u8| format!("n-{number}");
        for told in all {
            let before = pods.revision();
            match told {
                Told::Retain(nodes) => {
                    let nodes: Vec<_> = nodes.into_iter().map(node).collect();
                    pods.retain(nodes.iter().map(String::as_str));
                }
                Told::Begins(number) => pods.begin_list(Some(&node(number))),
                Told::Ends(number) => pods.end_list(Some(&node(number))),
                Told::Put(number, name, labels) => {
                    pods.put(&node(number), named(name, labels));
                    prop_assert!(pods.revision_of(&node(number)) > Some(before));
                }
                Told::Removed(number, name) => pods.remove(&node(number), &named(name, 0)),
            }
            let kept = pods.groups.values().flat_map(|it| it.items.values());
            prop_assert_eq!(pods.bytes, kept.map(|pod| bytes(pod)).sum::<usize>());
        }
    }
}
