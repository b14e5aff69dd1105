//! Properties of watch events, in any order.

mod answered;

use super::*;
use crate::drain::PodKey;
use crate::objects::PodItem;
use crate::tests::world;
use brupop_api::BottlerocketShadow;
use proptest::prelude::*;
use serde_json::json;

fn node(name: &str, is_ready: bool) -> Item<NodeFacts> {
    world::node(
        name,
        world::ready(if is_ready { "True" } else { "False" }, None),
    )
}

fn shadow(name: &str, state: &str) -> Item<BottlerocketShadow> {
    world::shadow(&shadow_name(name), json!({"state": state}), json!({}))
}

/// An agent's pod; without a node it cannot be read.
fn agent(name: &str, node: Option<&str>, ready: bool) -> PodItem {
    let status = if ready { "True" } else { "False" };
    let condition =
        json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-11-21T04:00:00Z"});
    let spec = node.map_or_else(|| json!("?"), |node| json!({"nodeName": node}));
    world::pod(
        name,
        json!({"spec": spec, "status": {"conditions": [condition]}}),
    )
}

/// One event of a watch.
#[derive(Clone, Debug)]
enum Event {
    Node(u8, bool),
    NodeGone(u8),
    Shadow(u8, bool),
    ShadowGone(u8),
    Agent(u8, Option<u8>, bool),
    AgentGone(u8),
}

impl Event {
    fn happen(&self, cluster: &mut Cluster) {
        let name = |number: &u8| format!("n{number}");
        match self {
            Self::Node(of, ready) => {
                node(&name(of), *ready).put(cluster);
            }
            Self::NodeGone(of) => Item::<NodeFacts>::remove(&name(of), cluster),
            Self::Shadow(of, known) => {
                shadow(&name(of), if *known { "Idle" } else { "Dreaming" }).put(cluster);
            }
            Self::ShadowGone(of) => {
                Item::<BottlerocketShadow>::remove(&shadow_name(&name(of)), cluster);
            }
            Self::Agent(of, on, ready) => {
                let on = on.as_ref().map(name);
                agent(&format!("agent-{of}"), on.as_deref(), *ready).put(cluster);
            }
            Self::AgentGone(of) => PodItem::remove(&format!("agent-{of}"), cluster),
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    (0..6_u8, 0..3_u8, 0..6_u8, any::<bool>()).prop_map(|(kind, of, on, is)| match kind {
        0 => Event::Node(of, is),
        1 => Event::NodeGone(of),
        2 => Event::Shadow(of, is),
        3 => Event::ShadowGone(of),
        4 => Event::Agent(of, Some(on).filter(|on| *on < 3), is),
        _ => Event::AgentGone(of),
    })
}

/// Returns what there is after these events, object by object.
fn objects(
    events: &[Event],
) -> (
    Vec<Item<NodeFacts>>,
    Vec<Item<BottlerocketShadow>>,
    Vec<PodItem>,
) {
    let (mut nodes, mut shadows, mut agents) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::Node(of, ready) => drop(nodes.insert(*of, node(&format!("n{of}"), *ready))),
            Event::NodeGone(of) => drop(nodes.remove(of)),
            Event::Shadow(of, known) => {
                let state = if *known { "Idle" } else { "Dreaming" };
                drop(shadows.insert(*of, shadow(&format!("n{of}"), state)));
            }
            Event::ShadowGone(of) => drop(shadows.remove(of)),
            Event::Agent(of, on, ready) => {
                let on = on.map(|on| format!("n{on}"));
                drop(agents.insert(*of, agent(&format!("agent-{of}"), on.as_deref(), *ready)));
            }
            Event::AgentGone(of) => drop(agents.remove(of)),
        }
    }
    (
        nodes.into_values().collect(),
        shadows.into_values().collect(),
        agents.into_values().collect(),
    )
}

proptest! {
    /// However it came about: the cluster is what a list of all objects would make of it, and a list brings it there.
    #[test]
    fn events_and_lists_lead_to_the_same(
        events in prop::collection::vec(event(), 0..40),
        before in prop::collection::vec(event(), 0..10),
    ) {
        let mut one = Cluster::default();
        for event in &events {
            event.happen(&mut one);
        }
        let mut other = Cluster::default();
        for event in &before {
            event.happen(&mut other);
        }
        let (nodes, shadows, agents) = objects(&events);
        other.replace(nodes);
        other.replace(shadows);
        other.replace(agents);
        prop_assert_eq!(format!("{:?}", one), format!("{:?}", other));
        prop_assert!(one.records.values().all(|record| !record.is_empty()));
    }
}

#[test]
fn of_two_agents_the_ready_one_counts() {
    let mut cluster = Cluster::default();
    agent("a", Some("n"), true).put(&mut cluster);
    agent("b", Some("n"), false).put(&mut cluster);
    let ready = |cluster: &Cluster| cluster.records["brs-n"].agent().unwrap().is_ready();
    assert!(ready(&cluster));
    PodItem::remove("a", &mut cluster);
    assert!(!ready(&cluster));
}

#[test]
fn a_readable_agents_pod_is_not_counted() {
    let mut cluster = Cluster::default();
    assert!(agent("a", None, true).put(&mut cluster));
    assert!(!agent("a", None, false).put(&mut cluster), "unreadable");
    assert_eq!(cluster.unreadable_agents(), 1);
    assert!(world::pod("a", json!({"spec": {"nodeName": null}})).put(&mut cluster));
    assert_eq!(cluster.unreadable_agents(), 0);
}

#[test]
fn an_empty_node_knows_since_when_no_volume_went() {
    let full = DrainPlan {
        evict: vec![PodKey {
            namespace: "shop".into(),
            name: "a".into(),
            uid: "u".into(),
        }],
        ..DrainPlan::default()
    };
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut record = NodeRecord::default();
    let empty = || Some(DrainPlan::default());
    for (second, plan, volumes, since) in [
        (1, Some(full.clone()), 3, None),
        (2, empty(), 3, Some(2)),
        (3, empty(), 3, Some(2)),
        (4, Some(full), 3, None),
        (5, empty(), 3, Some(5)),
        (6, empty(), 2, Some(6)),
        (7, empty(), 2, Some(6)),
        (8, empty(), 3, Some(6)),
        (9, empty(), 2, Some(6)),
        (10, empty(), 0, Some(10)),
        (11, None, 0, None),
    ] {
        record.node = Some(Arc::new(NodeFacts {
            volumes_in_use: volumes,
            ..NodeFacts::default()
        }));
        record.record_drain(plan.map(|plan| (Arc::new(plan), None)), at(second));
        let empty = record.led.empty;
        assert_eq!(empty.map(|empty| empty.since), since.map(at), "at {second}");
    }
}
