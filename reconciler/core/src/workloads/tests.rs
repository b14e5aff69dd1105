//! Which workloads are available.

mod returns;

use super::*;
use serde_json::{Value, json};

#[test]
fn a_workload_is_read_as_it_is_written() {
    let workload = Workload::parse("apps/v1/ReplicaSet/shop/cart-5d8").unwrap();
    assert_eq!(workload.to_string(), "ReplicaSet shop/cart-5d8");
    let old = Workload::parse("v1/ReplicationController/shop/cart").unwrap();
    assert_eq!(old.kind, Kind::ReplicationController);
    for owner in ["batch/v1/Job/shop/tidy", "example.com/v1/ReplicaSet/shop/cart", "ReplicaSet/shop/cart", ""]
    {
        assert_eq!(Workload::parse(owner), None, "{owner}");
    }
}

#[test]
fn the_first_unavailable_workload_is_missing() {
    let owners = ["a", "b", "c"].map(str::to_owned);
    for (what, found, expected) in [
        ("all are back", [Some(Found::Available), Some(Found::Gone), Some(Found::Unknown)], Evicted::Back),
        (
            "two are not",
            [Some(Found::Available), Some(Found::Unavailable), Some(Found::Unavailable)],
            Evicted::Missing("b"),
        ),
        ("one is not known yet", [Some(Found::Unavailable), None, Some(Found::Available)], Evicted::Unknown),
    ] {
        let of = |owner: &str| found[owners.iter().position(|one| one == owner).unwrap()];
        assert_eq!(evicted(&owners, of), expected, "{what}");
    }
    assert_eq!(evicted(&[], |_| None), Evicted::Back, "nobody was evicted");
}

#[test]
fn available_means_all_wanted_replicas() {
    let found = |kind, generation: i64, object: Value| {
        let mut object = object;
        object["metadata"] = json!({"name": "cart", "namespace": "shop", "generation": generation});
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("ReplicaSet");
        Found::of(kind, Some(&serde_json::from_value(object).unwrap()))
    };
    let status = |seen: i64, available: i64| json!({"spec": {"replicas": 3}, "status": {"observedGeneration": seen, "availableReplicas": available}});
    for (what, generation, object, expected) in [
        ("all", 2, status(2, 3), Found::Available),
        ("more, in the midst of a change of its own", 2, status(2, 4), Found::Available),
        ("one is missing", 2, status(2, 2), Found::Unavailable),
        ("not looked at since it was scaled", 3, status(2, 3), Found::Unavailable),
        ("never looked at", 1, json!({"spec": {"replicas": 1}}), Found::Unavailable),
        (
            "one, by default",
            1,
            json!({"spec": {}, "status": {"observedGeneration": 1, "availableReplicas": 1}}),
            Found::Available,
        ),
        (
            "scaled to none",
            1,
            json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 1}}),
            Found::Available,
        ),
    ] {
        for kind in [Kind::ReplicaSet, Kind::StatefulSet, Kind::ReplicationController] {
            assert_eq!(found(kind, generation, object.clone()), expected, "{what}, {kind:?}");
        }
    }
    assert_eq!(found(Kind::DaemonSet, 1, json!({})), Found::Available);
    assert_eq!(Found::of(Kind::DaemonSet, None), Found::Gone);
}
