//! Answers and watches that overtake each other.

use super::super::*;
use crate::objects::NodeFacts;
use crate::tests::world;
use brupop_api::Item;
use serde_json::json;

const AT: Duration = Duration::from_secs(7);

fn node(version: u64, cordoned: bool) -> Item<NodeFacts> {
    let metadata = json!({"resourceVersion": version.to_string()});
    world::node(
        "n",
        json!({"metadata": metadata, "spec": {"unschedulable": cordoned}}),
    )
}

fn cluster(version: u64) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.watched(node(version, false));
    cluster
}

fn state(cluster: &Cluster) -> Option<(u64, bool)> {
    let record = cluster.records.get("brs-n")?;
    Some((record.node_version?, record.node.as_ref()?.unschedulable))
}

#[test]
fn newer_of_answer_and_watch_wins() {
    let mut cluster = cluster(5);
    cluster.answered("n", Some(node(8, true)), Some(5), AT);
    assert_eq!(state(&cluster), Some((8, true)), "at once");
    for (version, matters) in [(7, false), (8, false), (9, true)] {
        assert_eq!(cluster.watched(node(version, false)), matters, "{version}");
    }
    cluster.answered("n", Some(node(8, true)), Some(5), AT);
    assert_eq!(state(&cluster), Some((9, false)), "a late answer");
    assert_eq!(cluster.overdue(AT * 9), (vec![], None));
}

#[test]
fn what_the_watch_deleted_stays_deleted() {
    let mut cluster = cluster(5);
    assert!(cluster.deleted(&node(9, false)));
    cluster.answered("n", Some(node(8, true)), Some(5), AT);
    assert_eq!(state(&cluster), None);
}

#[test]
fn what_was_removed_does_not_come_back_but_is_made_again() {
    let mut cluster = cluster(5);
    cluster.answered::<Item<NodeFacts>>("n", None, Some(5), AT);
    assert!(!cluster.watched(node(5, false)));
    assert_eq!(state(&cluster), None);
    cluster.answered("n", Some(node(8, true)), None, AT);
    assert!(!cluster.deleted(&node(7, false)), "the one before");
    cluster.replace::<Item<NodeFacts>>([]);
    assert_eq!(state(&cluster), Some((8, true)), "a list of before");
    assert!(cluster.deleted(&node(9, true)));
    assert_eq!(state(&cluster), None);
}

/// After a restore from a snapshot etcd gives old versions.
#[test]
fn a_watch_that_stays_behind_is_believed_after_five_seconds() {
    let mut cluster = cluster(5);
    cluster.answered("n", Some(node(8, true)), Some(5), AT);
    assert!(!cluster.watched(node(6, false)));
    let due = AT + READ_AGAIN;
    assert_eq!(cluster.overdue(AT), (vec![], Some(due)));
    let object = Object::Node("n".to_owned());
    assert_eq!(cluster.overdue(due), (vec![object], None));
    cluster.answered("n", Some(node(6, false)), Some(8), due);
    assert_eq!(state(&cluster), Some((6, false)));
    assert!(cluster.watched(node(6, true)));
}
