//! Which workloads are available.

use super::*;
use serde_json::{Value, json};

#[test]
fn a_workload_is_read_as_it_is_written() {
    let workload = Workload::parse("apps/v1/ReplicaSet/shop/cart-5d8").unwrap();
    assert_eq!(workload.to_string(), "ReplicaSet shop/cart-5d8");
    let old = Workload::parse("v1/ReplicationController/shop/cart").unwrap();
    assert_eq!(old.kind, WorkloadKind::ReplicationController);
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

/// What is found of a workload with this spec, status and annotation.
fn found(kind: WorkloadKind, generation: i64, mut object: Value) -> FoundWorkload {
    object["metadata"] = json!({"name": "cart", "namespace": "shop", "generation": generation,
        "annotations": object["annotations"]});
    object["apiVersion"] = json!("apps/v1");
    object["kind"] = json!("ReplicaSet");
    FoundWorkload::of(kind, Some(&serde_json::from_value(object).unwrap()))
}

#[track_caller]
fn scale_of(found: FoundWorkload) -> Scale {
    let FoundWorkload::There(scale) = found else { panic!("{found:?}") };
    scale
}

fn scale(wanted: i64, available: i64, revision: Option<&str>) -> Value {
    json!({"spec": {"replicas": wanted},
        "status": {"observedGeneration": 2, "availableReplicas": available, "updateRevision": revision}})
}

fn noted(available: u32, revision: Option<&str>) -> Before {
    Before { available, revision: revision.and_then(Revision::of) }
}

#[test]
fn the_first_workload_that_is_not_back_is_missing() {
    let owners = ["a", "b", "c"].map(|owner| (owner.to_owned(), Some(noted(1, Some("web-1")))));
    let of =
        |available, revision| Some(found(WorkloadKind::StatefulSet, 2, scale(1, available, Some(revision))));
    let (back, lost, changed) = (|| of(1, "web-1"), || of(0, "web-1"), || of(0, "web-2"));
    let missing = |owner, changed| Evicted::Missing { owner, changed };
    for (what, found, expected) in [
        ("all are back", [back(), Some(FoundWorkload::Gone), Some(FoundWorkload::Unknown)], Evicted::Back),
        ("two are not", [back(), lost(), lost()], missing("b", false)),
        ("one is not known yet", [lost(), None, back()], Evicted::Unknown),
        ("two were changed", [back(), changed(), changed()], missing("b", true)),
        ("one of them nobody has changed", [changed(), back(), lost()], missing("c", false)),
        ("another was changed, too", [lost(), changed(), changed()], missing("a", false)),
    ] {
        let of = |owner: &str| found[owners.iter().position(|(one, _)| one == owner).unwrap()].clone();
        assert_eq!(evicted(&owners, of), expected, "{what}");
    }
    assert_eq!(evicted(&[], |_| None), Evicted::Back, "nobody was evicted");
}

/// Which of a workload's pods are missed after the update, by what was noted of it before.
#[test]
fn a_workload_is_back_if_as_many_are_available_as_before_or_as_it_wants() {
    let (back, missing, changed) = (None, Some(false), Some(true));
    let one = || Some(noted(1, None));
    let three = || Some(noted(3, None));
    let old = || Some(noted(3, Some("web-1")));
    let replaced = |wanted: i64, available: i64, of_deployment: &str| {
        let mut object = scale(wanted, available, None);
        object["annotations"] =
            json!({"deployment.kubernetes.io/desired-replicas": of_deployment, "other": "x"});
        object
    };
    for (what, before, object, expected) in [
        ("all", three(), scale(3, 3, None), back),
        ("one is missing", three(), scale(3, 2, None), missing),
        ("scaled up, without room for more", one(), scale(3, 1, None), back),
        ("scaled up, and none is there", one(), scale(3, 0, None), missing),
        ("scaled down", three(), scale(1, 1, None), back),
        ("scaled down, and none is there", three(), scale(1, 0, None), missing),
        ("scaled to none", three(), scale(0, 0, None), back),
        ("more than it wanted", Some(noted(4, None)), scale(3, 3, None), back),
        ("nobody noted anything", None, scale(3, 2, None), missing),
        ("nobody noted anything, and all are there", None, scale(3, 3, None), back),
        ("of the same revision", old(), scale(3, 2, Some("web-1")), missing),
        ("of another revision", old(), scale(3, 2, Some("web-2")), changed),
        ("of another revision, and all are there", old(), scale(3, 3, Some("web-2")), back),
        ("without a revision any more", old(), scale(3, 2, None), changed),
        ("with a revision that nobody noted", three(), scale(3, 2, Some("web-1")), missing),
        ("its Deployment has others, too", three(), replaced(3, 2, "4"), changed),
        ("its Deployment has others, and all are there", three(), replaced(2, 2, "3"), back),
        ("its Deployment has no others", three(), replaced(3, 2, "3"), missing),
        ("its Deployment says nothing", three(), replaced(3, 2, "?"), missing),
        ("its Deployment took all of them", three(), replaced(0, 0, "3"), back),
    ] {
        let owners = [("a".to_owned(), before)];
        let found = |_: &str| Some(found(WorkloadKind::StatefulSet, 2, object.clone()));
        let of_owner = |changed| Evicted::Missing { owner: "a", changed };
        assert_eq!(evicted(&owners, found), expected.map_or(Evicted::Back, of_owner), "{what}");
    }
}

#[test]
fn available_means_all_wanted_replicas() {
    let status = |seen: i64, available: i64| json!({"spec": {"replicas": 3}, "status": {"observedGeneration": seen, "availableReplicas": available}});
    let by_default = json!({"spec": {}, "status": {"observedGeneration": 1, "availableReplicas": 1}});
    for (what, generation, object, before) in [
        ("all", 2, status(2, 3), Some(3)),
        ("more, in the midst of a change of its own", 2, status(2, 4), Some(4)),
        ("one is missing", 2, status(2, 2), None),
        ("not looked at since it was scaled", 3, status(2, 3), None),
        ("never looked at", 1, json!({"spec": {"replicas": 1}}), None),
        ("one, by default", 1, by_default, Some(1)),
        ("scaled to none", 1, json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 1}}), Some(0)),
    ] {
        for kind in [WorkloadKind::ReplicaSet, WorkloadKind::StatefulSet, WorkloadKind::ReplicationController]
        {
            let scale = scale_of(found(kind, generation, object.clone()));
            assert_eq!(scale.before().map(|before| before.available), before, "{what}, {kind:?}");
            // Without a note, as after an update of the operator itself, it has to be so again.
            let owners = [("a".to_owned(), None)];
            let is_back = evicted(&owners, |_| Some(FoundWorkload::There(scale.clone()))) == Evicted::Back;
            assert_eq!(is_back, before.is_some(), "{what}, {kind:?}");
        }
    }
    let daemon = scale_of(found(WorkloadKind::DaemonSet, 1, json!({})));
    assert_eq!(daemon.before(), Some(noted(0, None)));
    assert_eq!(FoundWorkload::of(WorkloadKind::DaemonSet, None), FoundWorkload::Gone);
}

#[test]
fn a_revision_is_noted() {
    let scale = scale_of(found(WorkloadKind::StatefulSet, 2, scale(3, 3, Some("web-6596ffb49b"))));
    assert_eq!(scale.before(), Some(noted(3, Some("6596ffb49b"))));
}

/// A `StatefulSet` of three: its revisions, how many of its pods have the new one, and how many are available.
fn rolled_out(current: Option<&str>, update: &str, updated: Option<i64>, available: i64) -> FoundWorkload {
    let status = json!({"observedGeneration": 2, "replicas": 3, "availableReplicas": available,
        "updatedReplicas": updated, "currentRevision": current, "updateRevision": update});
    found(WorkloadKind::StatefulSet, 2, json!({"spec": {"replicas": 3}, "status": status}))
}

/// Its template was changed before the cordon; a partition, or `OnDelete`, keeps its pods as they are. The drain evicts one of
/// them, and it is made again from the other template.
#[test]
fn a_pod_made_again_in_the_middle_of_a_roll_out_is_no_fault_of_the_release() {
    for (what, current, updated, changed) in [
        ("none has the new revision", Some("db-old"), None, true),
        ("one is left without it", Some("db-old"), Some(2), true),
        ("OnDelete, and all have it", Some("db-old"), Some(3), false),
        ("no roll-out", Some("db-new"), Some(3), false),
        ("no roll-out, while a pod is made", Some("db-new"), Some(2), false),
        ("its current revision is not known", None, Some(2), false),
    ] {
        let before = scale_of(rolled_out(current, "db-new", updated, 3));
        let owners = [("a".to_owned(), Some(before.before().unwrap()))];
        let after = rolled_out(current, "db-new", updated, 2);
        let seen = evicted(&owners, |_| Some(after.clone()));
        assert_eq!(seen, Evicted::Missing { owner: "a", changed }, "{what}");
    }
}
