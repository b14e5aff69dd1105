//! The reconciler and what else it writes.

use super::*;
use brupop_api::BottlerocketFleet;

fn named_lease(name: &str) -> Json {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}})
}

/// The reconciler's Lease as it writes it, and this in it.
pub fn lease(more: &Json) -> Json {
    let now = "2026-01-01T00:00:00.000000Z";
    let mut lease = named_lease(names::LEASE);
    lease["spec"] = json!({"holderIdentity": "brupop-reconciler-x", "leaseDurationSeconds": 15,
        "acquireTime": now, "renewTime": now, "leaseTransitions": 1});
    json_patch::merge(&mut lease, more);
    lease
}

const LASTING: Verdict = Policy("reconciler-records-metadata");

/// Metadata of an object. What outlives a stolen token is refused; what other people's admission adds is not.
fn metadata() -> [(&'static str, Json, Verdict); 4] {
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"});
    [
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["a.b/c"]}}),
            LASTING,
        ),
        (
            "an owner",
            json!({"metadata": {"ownerReferences": [owner]}}),
            LASTING,
        ),
        (
            "a label",
            json!({"metadata": {"labels": {"a": "b"}}}),
            Allowed,
        ),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            Allowed,
        ),
    ]
}

/// The reconciler and what else it writes.
pub fn records(bed: &Bed) -> Vec<Row> {
    [leases(bed), fleets(bed), events(bed)].concat()
}

fn leases(bed: &Bed) -> Vec<Row> {
    let (of_lease, spec) = ("reconciler-lease", Policy("reconciler-lease-spec"));
    let leases = bed.ours("coordination.k8s.io/v1", "leases");
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases".to_owned();
    let generated = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": "brupop-reconciler"}});
    let make = |says, body, verdict| by(says, Method::POST, leases.clone(), body, verdict);
    let with = |says, more: Json, verdict| make(says, lease(&json!({"spec": more})), verdict);
    let mut rows = vec![
        make("its Lease", lease(&json!({})), Allowed),
        make(
            "its Lease, of nobody",
            lease(&json!({"spec": null})),
            Allowed,
        ),
        make("another's Lease", named_lease("other"), Allowed),
        make("a Lease of any name", generated, Allowed),
        by(
            "a Lease of its name elsewhere",
            Method::POST,
            elsewhere,
            lease(&json!({})),
            Policy(of_lease),
        ),
        with(
            "the longest Lease",
            json!({"leaseDurationSeconds": 300}),
            Allowed,
        ),
        with("a longer Lease", json!({"leaseDurationSeconds": 301}), spec),
        with(
            "a Lease for 68 years",
            json!({"leaseDurationSeconds": i32::MAX}),
            spec,
        ),
        with(
            "a Lease for no time",
            json!({"leaseDurationSeconds": 0}),
            Invalid,
        ),
        with(
            "fewer holders than none",
            json!({"leaseTransitions": -1}),
            Invalid,
        ),
        with(
            "the longest holder",
            json!({"holderIdentity": "x".repeat(253)}),
            Allowed,
        ),
        with(
            "a longer holder",
            json!({"holderIdentity": "x".repeat(254)}),
            spec,
        ),
        with(
            "a holder that is a path",
            json!({"holderIdentity": "x/exec?command=sh&x=#"}),
            spec,
        ),
        with(
            "a holder above the folder",
            json!({"holderIdentity": ".."}),
            spec,
        ),
        with(
            "renewed in our days",
            json!({"renewTime": "2199-12-31T23:59:59.000000Z"}),
            Allowed,
        ),
        with(
            "renewed too late",
            json!({"renewTime": "2200-01-01T00:00:00.000000Z"}),
            spec,
        ),
        with(
            "acquired too late",
            json!({"acquireTime": "9999-12-31T23:59:59.000000Z"}),
            spec,
        ),
        with(
            "renewed in the year 10000",
            json!({"renewTime": "9999-12-31T23:59:59.000000-23:59"}),
            spec,
        ),
        with(
            "acquired in the year 10000",
            json!({"acquireTime": "9999-12-31T23:59:59.000000-23:59"}),
            spec,
        ),
    ];
    rows.extend(metadata().map(|(says, more, verdict)| make(says, lease(&more), verdict)));
    rows
}

fn fleets(bed: &Bed) -> Vec<Row> {
    let of_fleet = Policy("reconciler-fleet");
    let halts = json!([{"version": "1.0.0", "variant": "aws", "haltedAt": "2026-01-01T00:00:00Z"}]);
    let fleets = bed.ours(&BottlerocketFleet::api_version(&()), "bottlerocketfleets");
    let ours = format!("{fleets}/{}", names::FLEET);
    let make = |says, body: Json, verdict| by(says, Method::POST, fleets.clone(), body, verdict);
    let with = |says, spec: Json| make(says, fleet(names::FLEET, &spec), of_fleet);
    let change = |says, spec: Json| {
        by(
            says,
            Method::PATCH,
            ours.clone(),
            json!({"spec": spec}),
            of_fleet,
        )
    };
    let mut rows = vec![
        make("another fleet", fleet("other", &json!({})), Invalid),
        with("a fleet on hold", json!({"paused": true})),
        with(
            "a fleet without a ceiling",
            json!({"maxUnavailable": "100%"}),
        ),
        with(
            "a fleet that more may fail of",
            json!({"failureThreshold": {"proven": 8}}),
        ),
        change("the fleet let go", json!({"paused": false})),
        change("a version resumed", json!({"resumedVersions": halts})),
        by(
            "the fleet's end",
            Method::DELETE,
            ours.clone(),
            Json::Null,
            of_fleet,
        ),
    ];
    rows.extend(metadata().map(|(says, more, verdict)| {
        let mut new = fleet(names::FLEET, &json!({}));
        json_patch::merge(&mut new, &more);
        // There is one.
        make(says, new, if verdict == Allowed { Exists } else { verdict })
    }));
    rows
}

fn events(bed: &Bed) -> Vec<Row> {
    let rule = Policy("reconciler-events");
    let ours = "brupop-reconciler";
    let about = |namespace: &str, kind: &str| event(namespace, "e", ours, kind);
    let of = |namespace: &str| format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let theirs = || format!("{EVENTS}/theirs");
    let make = |says, event: Json, verdict| {
        let path = of(event["metadata"]["namespace"].as_str().unwrap_or_default());
        by(says, Method::POST, path, event, verdict)
    };
    let with = |says, more: Json, verdict| {
        let mut event = about("default", "Node");
        json_patch::merge(&mut event, &more);
        make(says, event, verdict)
    };
    let core_event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "in"}, "reportingComponent": "kubelet"});
    let older = "/api/v1/namespaces/default/events".to_owned();
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let mut rows = vec![
        make("an Event about a Node", about("default", "Node"), Allowed),
        make(
            "an Event about a shadow",
            about(bed.namespace, "BottlerocketShadow"),
            Allowed,
        ),
        make(
            "an Event about the fleet",
            about(bed.namespace, "BottlerocketFleet"),
            Allowed,
        ),
        make(
            "an Event in another's name",
            event("default", "e", "kubelet", "Node"),
            rule,
        ),
        make("an Event about a pod", about("default", "Pod"), rule),
        make(
            "an Event about a Node, where none is kept",
            about("kube-system", "Node"),
            rule,
        ),
        make(
            "an Event about a shadow elsewhere",
            about("kube-system", "BottlerocketShadow"),
            rule,
        ),
        with(
            "a long name",
            json!({"regarding": {"name": "x".repeat(254)}}),
            rule,
        ),
        with(
            "a long path",
            json!({"regarding": {"fieldPath": "x".repeat(200_000)}}),
            rule,
        ),
        with(
            "another object",
            json!({"related": {"kind": "Node", "name": "x".repeat(200_000)}}),
            rule,
        ),
        by("another's Event", Method::PATCH, theirs(), series, rule),
        by(
            "another's Event, made ours",
            Method::PATCH,
            theirs(),
            json!({"reportingController": ours}),
            Invalid,
        ),
        by(
            "another's Event's end",
            Method::DELETE,
            theirs(),
            Json::Null,
            rule,
        ),
        by(
            "an Event by the older API",
            Method::POST,
            older,
            core_event,
            rule,
        ),
    ];
    rows.extend(metadata().map(|(says, more, verdict)| with(says, more, verdict)));
    rows
}

/// Puts a Lease and an Event there on which somebody has left what lasts.
pub async fn plant(bed: &Bed) -> Result<()> {
    let mut planted = json!({});
    for (_, more, _) in metadata() {
        json_patch::merge(&mut planted, &more);
    }
    planted["metadata"]["ownerReferences"] = Json::Null;
    let leases = bed.ours("coordination.k8s.io/v1", "leases");
    let mut late = lease(&planted);
    late["spec"]["acquireTime"] = json!("9999-12-31T23:59:59.000000Z");
    bed.must(Method::POST, &leases, &late).await?;
    let mut event = event("default", "planted", "brupop-reconciler", "Node");
    json_patch::merge(&mut event, &planted);
    bed.must(Method::POST, EVENTS, &event).await?;
    Ok(())
}

/// The reconciler and what somebody has left on its records.
pub fn planted(bed: &Bed) -> Vec<Row> {
    let lease = format!(
        "{}/{}",
        bed.ours("coordination.k8s.io/v1", "leases"),
        names::LEASE
    );
    let event = format!("{EVENTS}/planted");
    let finalizers = json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}});
    let removed = json!({"metadata": {"finalizers": null, "labels": null, "annotations": null}});
    let renewed = json!({"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}});
    let again = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let mut rows = vec![];
    for (path, write) in [(lease, renewed), (event, again)] {
        let change = |says, more: &Json, verdict| {
            let mut body = write.clone();
            json_patch::merge(&mut body, more);
            // A merge patch would lose what it is to remove.
            for (key, value) in more["metadata"].as_object().into_iter().flatten() {
                body["metadata"][key] = value.clone();
            }
            by(says, Method::PATCH, path.clone(), body, verdict)
        };
        rows.extend([
            change("written as it was", &json!({}), Allowed),
            change("cleaned", &removed, Allowed),
            change("another label", &label("a", "c"), Allowed),
            change("one more finalizer", &finalizers, LASTING),
            change("one more annotation", &annotation("b", "c"), Allowed),
        ]);
    }
    rows
}

/// The reconciler and evictions, and deletions if it may delete. `uid` is the pod's.
pub fn evictions(uid: &str, may_delete: bool) -> Vec<Row> {
    const POD: &str = "/api/v1/namespaces/default/pods/pod";
    let with = |more: Json| {
        let mut options = json!({"dryRun": ["All"], "preconditions": {"uid": uid}});
        json_patch::merge(&mut options, &more);
        options
    };
    let evict = |says, more: Json, verdict| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "pod", "namespace": "default"}, "deleteOptions": with(more)});
        by(says, Method::POST, format!("{POD}/eviction"), body, verdict)
    };
    let delete =
        |says, more, verdict| by(says, Method::DELETE, POD.to_owned(), with(more), verdict);
    let anyone = json!({"preconditions": null});
    let rule = Policy("reconciler-eviction");
    let evictions = vec![
        evict("this very pod", json!({}), Allowed),
        evict("anyone who has the name", anyone.clone(), rule),
        evict("without options", Json::Null, rule),
        evict("at once", json!({"gracePeriodSeconds": 0}), rule),
        evict(
            "its dependents orphaned",
            json!({"propagationPolicy": "Orphan"}),
            rule,
        ),
        evict(
            "the same, as of old",
            json!({"orphanDependents": true}),
            rule,
        ),
    ];
    if !may_delete {
        return evictions;
    }
    let rule = Policy("reconciler-deletion");
    let deletions = vec![
        delete("this very pod deleted", json!({}), Allowed),
        delete("a pod deleted", anyone, rule),
        delete(
            "a pod deleted, its dependents orphaned",
            json!({"propagationPolicy": "Orphan"}),
            rule,
        ),
        delete(
            "a pod deleted after its dependents",
            json!({"propagationPolicy": "Foreground"}),
            rule,
        ),
        delete(
            "a pod deleted as of old",
            json!({"orphanDependents": true}),
            rule,
        ),
        delete(
            "a pod deleted at once",
            json!({"gracePeriodSeconds": 0}),
            rule,
        ),
    ];
    [evictions, deletions].concat()
}
