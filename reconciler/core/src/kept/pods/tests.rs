use super::*;
use proptest::prelude::*;
use serde_json::json;

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
    let one = pod("tenant", "p", &[]);
    pods.list_begins(node);
    for number in 0..count {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        another.metadata.uid = Some(format!("uid-p-{number}"));
        pods.listed(node, another);
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
    pods.want(["next", "other"]);
    list(&mut pods, "other", 110);
    let labels: Vec<_> = (0..128).map(|nth| format!("label-{nth:050}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    pods.list_begins("next");
    let (one, mut most) = (pod("tenant", "p", &labels), 0);
    for number in 0..12_000 {
        let mut another = one.clone();
        another.metadata.name = Some(format!("p-{number}"));
        pods.listed("next", another);
        most = most.max(pods.bytes());
    }
    assert!(most < OF_NODE_MAX + OF_NODE_MAX / 4, "{most}");
    pods.list_ends("next");
    pods.put("next", pod("tenant", "later", &[]));
    assert!(pods.has_dropped() && pods.of("next").is_empty() && pods.revision("next").is_none());
    assert_eq!(pods.take_dropped(), BTreeSet::from(["next".to_owned()]));
    assert!(!pods.has_dropped());
    assert_eq!(pods.of("other").len(), 110, "nobody else's are dropped");
    // Most tenants do not; and a kubelet may run more than 110 of them.
    list(&mut pods, "other", 1_500);
    assert_eq!(pods.of("other").len(), 1_500);
}

#[test]
fn node_with_most_pods_gives_way() {
    let mut pods = KeptPods::default();
    let hogs: Vec<String> = (0..80).map(|number| format!("hog-{number:03}")).collect();
    pods.want(hogs.iter().map(String::as_str).chain(["small", "largest"]));
    list(&mut pods, "small", 110);
    list(&mut pods, "largest", 1_600);
    for name in &hogs {
        list(&mut pods, name, 1_400);
    }
    assert!(pods.bytes() <= OF_ALL_MAX);
    let dropped = pods.take_dropped();
    assert!(dropped.contains("largest") && dropped.len() < 80);
    assert_eq!(pods.of("small").len(), 110, "each has its share");
}

#[test]
fn labels_are_kept_whole_and_weighed() {
    let mut pods = KeptPods::default();
    pods.want(["a"]);
    pods.put("a", pod("shop", "p", &[]));
    let without = pods.bytes();
    pods.put("a", pod("shop", "p", &["app", "tier"]));
    let kept = pods.of("a");
    assert!(kept[0].ok().unwrap().labels.keys().eq(["app", "tier"]));
    assert_eq!(pods.bytes() - without, weight(["app", "v", "tier", "v"]));
    assert!(kept[0].metadata.resource_version.is_none());
}

#[derive(Clone, Debug)]
enum Told {
    Want(Vec<u8>),
    Begins(u8),
    Listed(u8, u8, u8),
    Ends(u8),
    Put(u8, u8, u8),
    Removed(u8, u8),
}

fn told() -> impl Strategy<Value = Told> {
    let (node, name, labels) = (0..3_u8, 0..4_u8, 0..3_u8);
    prop_oneof![
        prop::collection::vec(node.clone(), 0..4).prop_map(Told::Want),
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
        let mut pods = KeptPods::default();
        let named = |name: u8, labels: u8| pod("shop", &format!("p-{name}"), &["a", "b"][..labels.into()]);
        let node = |number: u8| format!("n-{number}");
        for told in all {
            match told {
                Told::Want(nodes) => {
                    let nodes: Vec<_> = nodes.into_iter().map(node).collect();
                    pods.want(nodes.iter().map(String::as_str));
                }
                Told::Begins(number) => pods.list_begins(&node(number)),
                Told::Listed(number, name, labels) => pods.listed(&node(number), named(name, labels)),
                Told::Ends(number) => pods.list_ends(&node(number)),
                Told::Put(number, name, labels) => pods.put(&node(number), named(name, labels)),
                Told::Removed(number, name) => pods.remove(&node(number), &named(name, 0)),
            }
            let kept = pods.nodes.values().flat_map(|it| it.now.all.values().chain(it.listed.all.values()));
            prop_assert_eq!(pods.bytes(), kept.map(|pod| bytes(pod)).sum::<usize>());
        }
        prop_assert!((0..3).all(|number| names(&pods, &node(number)).len() <= 4));
    }
}
