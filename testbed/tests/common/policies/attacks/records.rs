//! The reconciler and what else it writes.

use super::*;

/// The reconciler and what else it writes.
pub fn records(bed: &Bed) -> Vec<Row> {
    let by = |says, method, path: String, body, verdict| (says, Reconciler, method, path, body, verdict);
    let leases = bed.ours("coordination.k8s.io/v1", "leases");
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let fleets = bed.ours("brupop.bottlerocket.aws/v1alpha1", "bottlerocketfleets");
    let events = "/apis/events.k8s.io/v1/namespaces/default/events".to_owned();
    let core_events = "/api/v1/namespaces/default/events".to_owned();
    let core_event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "in"}, "reportingComponent": "kubelet"});
    let (of_lease, of_fleet, of_event) = ("reconciler-lease", "reconciler-fleet", "reconciler-events");
    let ours = "brupop-reconciler";
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases".to_owned();
    let generated = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": "brupop-reconciler"}});
    let named = |name: &str| format!("{fleets}/{name}");
    vec![
        by("its Lease", Method::POST, leases.clone(), lease(names::LEASE), Allowed),
        by("another's Lease", Method::POST, leases.clone(), lease("other"), Policy(of_lease)),
        by("a Lease of any name", Method::POST, leases.clone(), generated, Policy(of_lease)),
        by("a Lease of its name elsewhere", Method::POST, elsewhere, lease(names::LEASE), Rbac(of_lease)),
        by("all Leases' end", Method::DELETE, leases, Json::Null, Rbac("")),
        by("another fleet", Method::POST, fleets.clone(), fleet("other", &json!({})), Policy(of_fleet)),
        by(
            "a fleet on hold",
            Method::POST,
            fleets.clone(),
            fleet("fleet", &json!({"paused": true})),
            Policy(of_fleet),
        ),
        by(
            "the fleet let go",
            Method::PATCH,
            named("fleet"),
            json!({"spec": {"paused": false}}),
            Rbac(of_fleet),
        ),
        by(
            "a halt lifted",
            Method::PATCH,
            named("fleet"),
            json!({"spec": {"resumeVersions": ["1.0.0"]}}),
            Rbac(of_fleet),
        ),
        by("the fleet's end", Method::DELETE, named("fleet"), Json::Null, Rbac(of_fleet)),
        by("an Event", Method::POST, events.clone(), event("e", ours, "Node"), Allowed),
        by(
            "an Event in another's name",
            Method::POST,
            events.clone(),
            event("e", "kubelet", "Node"),
            Policy(of_event),
        ),
        by("an Event about a pod", Method::POST, events.clone(), event("e", ours, "Pod"), Policy(of_event)),
        by(
            "another's Event",
            Method::PATCH,
            format!("{events}/theirs"),
            json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}),
            Policy(of_event),
        ),
        by(
            "another's Event, made ours",
            Method::PATCH,
            format!("{events}/theirs"),
            json!({"reportingController": ours}),
            Invalid,
        ),
        by("another's Event's end", Method::DELETE, format!("{events}/theirs"), Json::Null, Rbac(of_event)),
        by("an Event by the older API", Method::POST, core_events, core_event, Rbac(of_event)),
    ]
}

/// The reconciler and evictions. `uid` is the pod's.
pub fn evictions(uid: &str) -> Vec<Row> {
    let evict = |says, options: Json, verdict| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "pod", "namespace": "default"}, "deleteOptions": options});
        let path = "/api/v1/namespaces/default/pods/pod/eviction".to_owned();
        (says, Reconciler, Method::POST, path, body, verdict)
    };
    let uid = json!({"uid": uid});
    let delete = |says, mut options: Json, verdict| {
        options["dryRun"] = json!(["All"]);
        let path = "/api/v1/namespaces/default/pods/pod".to_owned();
        (says, Reconciler, Method::DELETE, path, options, verdict)
    };
    let rule = Policy("reconciler-eviction");
    let dry = json!(["All"]);
    vec![
        evict("this very pod", json!({"dryRun": dry, "preconditions": uid}), Allowed),
        evict("whoever has the name", json!({"dryRun": dry}), rule),
        evict("without options", Json::Null, rule),
        evict("at once", json!({"dryRun": dry, "preconditions": uid, "gracePeriodSeconds": 0}), rule),
        evict(
            "its dependents orphaned",
            json!({"dryRun": dry, "preconditions": uid, "propagationPolicy": "Orphan"}),
            rule,
        ),
        evict(
            "the same, as of old",
            json!({"dryRun": dry, "preconditions": uid, "orphanDependents": true}),
            rule,
        ),
        delete("a pod deleted", json!({}), Rbac("reconciler-deletion")),
        delete("a pod deleted by its UID", json!({"preconditions": uid}), Rbac("")),
        delete(
            "a pod deleted at once",
            json!({"preconditions": uid, "gracePeriodSeconds": 0}),
            Rbac("reconciler-deletion"),
        ),
    ]
}
