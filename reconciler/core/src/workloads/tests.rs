//! Facts about the availability of workloads.

use super::*;
use crate::tests::world::{rows, with};
use serde_json::{Value, json};

#[test]
fn a_workload_is_read_as_it_is_written() {
    let workload = Workload::parse("apps/v1/ReplicaSet/shop/cart-5d8").unwrap();
    assert_eq!(
        (
            workload.resource.plural.as_str(),
            &*workload.namespace,
            &*workload.name
        ),
        ("replicasets", "shop", "cart-5d8")
    );
    let old = Workload::parse("v1/ReplicationController/shop/cart").unwrap();
    assert_eq!(old.resource.api_version, "v1");
    for owner in [
        "batch/v1/Job/shop/tidy",
        "example.com/v1/ReplicaSet/shop/cart",
        "ReplicaSet/shop/cart",
        "",
        "apps/v1/ReplicaSet/shop/cart=x",
        "apps/v1/ReplicaSet/shop/..",
        "apps/v1/ReplicaSet/../cart",
    ] {
        assert_eq!(Workload::parse(owner), None, "{owner}");
    }
}

/// Returns what is found of a workload with this metadata, spec and status.
fn found(object: &Value) -> Option<Scale> {
    let object = with(
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "cart"}}),
        object,
    );
    Scale::of(Some(&serde_json::from_value(object).unwrap()))
}

fn scale(wanted: i64, available: i64) -> Value {
    json!({"spec": {"replicas": wanted}, "status": {"availableReplicas": available}})
}

const OWNERS: [&str; 3] = [
    "apps/v1/ReplicaSet/shop/a",
    "apps/v1/ReplicaSet/shop/b",
    "apps/v1/StatefulSet/shop/c",
];

#[test]
fn the_first_workload_that_is_not_back_is_missing() {
    let owners = OWNERS.map(|owner| (owner.to_owned(), 1)).into();
    let (back, short) = (Some(found(&scale(1, 1))), Some(found(&scale(1, 0))));
    let none = Some(None);
    for (what, read, expected) in rows! {
        "all are back", [back, none, none] => Evicted::Back;
        "two are not", [back, short, short] => Evicted::Missing(OWNERS[1]);
        "one is not known yet", [short, None, back] => Evicted::Unknown;
    } {
        let read = OWNERS.iter().zip(read);
        let scales = read.filter_map(|(owner, read)| Some(((*owner).to_owned(), read?)));
        assert_eq!(evicted(&owners, &scales.collect()), expected, "{what}");
    }
    let others = BTreeMap::from([("batch/v1/Job/shop/tidy".to_owned(), 1)]);
    for nobody in [BTreeMap::new(), others] {
        assert_eq!(evicted(&nobody, &Scales::new()), Evicted::Back);
    }
}

#[test]
fn a_workload_is_back_if_as_many_are_available_as_before_or_as_it_wants() {
    for (what, before, object, is_back) in rows! {
        "all", 3, scale(3, 3) => true;
        "one is missing", 3, scale(3, 2) => false;
        "it was short before", 2, scale(3, 2) => true;
        "it was short before, and more is missing", 2, scale(3, 1) => false;
        "none was available", 0, scale(3, 0) => true;
        "scaled up, without room for more", 1, scale(3, 1) => true;
        "scaled up, and none is there", 1, scale(3, 0) => false;
        "scaled down", 3, scale(1, 1) => true;
        "scaled down, and none is there", 3, scale(1, 0) => false;
        "scaled to none, as by a roll-out", 3, scale(0, 0) => true;
        "more than it wanted", 4, scale(3, 3) => true;
        "one, by default", 2, json!({"status": {"availableReplicas": 1}}) => true;
        "one, by default, and none is there", 2, json!({}) => false;
        "numbers that make no sense", 3, scale(-1, -1) => true;
    } {
        let owners = BTreeMap::from([(OWNERS[0].to_owned(), before)]);
        let scales = Scales::from([(OWNERS[0].to_owned(), found(&object))]);
        let expected = if is_back {
            Evicted::Back
        } else {
            Evicted::Missing(OWNERS[0])
        };
        assert_eq!(evicted(&owners, &scales), expected, "{what}");
    }
}

#[test]
fn a_workload_that_is_deleted_is_not_waited_for() {
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-11-21T04:00:00Z"}});
    assert_eq!(found(&leaving), None);
    assert_eq!(Scale::of(None), None);
}
