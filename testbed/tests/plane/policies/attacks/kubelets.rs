//! Kubelets: what a stolen credential of one may not do to us, and what every kubelet does all day.

use super::super::bed::Actor::{Admin, Kubelet, Member};
use super::*;
use anyhow::Context as _;

const LABEL: &str = "brupop.bottlerocket.aws/component";
const WEBHOOK: &str = "webhook";
/// Annotations of Nodes that are not kubelets' business.
const OURS: [&str; 4] = [
    names::MARKER_ANNOTATION,
    names::PAUSE_ANNOTATION,
    names::UPDATE_NOW_ANNOTATION,
    names::RETRY_ANNOTATION,
];
const NODE_RULE: Verdict = Policy("kubelet-node-annotations");

/// A pod on the kubelet's node, of an account that is there.
fn own_pod(bed: &Bed, name: &str, labels: &Json) -> Json {
    let mut own = pod(bed.namespace, name, labels);
    own["spec"]["serviceAccountName"] = json!((bed.named)("brupop-agent"));
    own
}

/// A pod on the kubelet's node, of which Pod Security has nothing to say.
fn pod(namespace: &str, name: &str, labels: &Json) -> Json {
    let container = json!({"name": "c", "image": "none",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": Bed::KUBELETS_NODE, "containers": [container],
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}})
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Once the policies are in force, the kubelet registers its node, as its user data has it; somebody pauses it, and it is
/// marked; and there are pods of ours and of others' on it.
pub async fn register(bed: &mut Bed) -> Result<()> {
    let labels =
        json!({names::UPDATER_INTERFACE_LABEL: "2.0.0", "topology.kubernetes.io/zone": "z"});
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": Bed::KUBELETS_NODE, "labels": labels, "annotations": annotations}});
    for annotation in OURS {
        let mut with = node.clone();
        with["metadata"]["annotations"][annotation] = json!("true");
        let row = (
            "registered with ours",
            Kubelet,
            Method::POST,
            NODES.to_owned(),
            with,
            NODE_RULE,
        );
        check(bed, &row)
            .await
            .with_context(|| format!("a Node with {annotation}"))?;
    }
    let answer = bed.ask(Kubelet, None, Method::POST, NODES, &node).await?;
    ensure!(
        answer.code == 201,
        "a kubelet cannot register its node: {answer:?}"
    );
    let paused =
        with_marker(json!({"metadata": {"annotations": {names::PAUSE_ANNOTATION: "true"}}}));
    bed.must(
        Method::PATCH,
        &format!("{NODES}/{}", Bed::KUBELETS_NODE),
        &paused,
    )
    .await?;
    let uid = answer.body["metadata"]["uid"].as_str().context("no UID")?;
    uid.clone_into(&mut bed.kubelets_node_uid);
    for (name, labels) in [
        ("ours", json!({LABEL: WEBHOOK})),
        ("theirs", json!({"a": "b"})),
    ] {
        bed.must(
            Method::POST,
            &pods(bed.namespace),
            &own_pod(bed, name, &labels),
        )
        .await?;
    }
    Ok(())
}

/// Kubelets and their Nodes.
pub fn kubelets_and_nodes() -> Vec<Row> {
    let by = |says, actor, path: &str, patch: Json, verdict| -> Row {
        (
            says,
            actor,
            Method::PATCH,
            format!("{NODES}/{path}"),
            patch,
            verdict,
        )
    };
    let own = |says, patch: Json, verdict| by(says, Kubelet, Bed::KUBELETS_NODE, patch, verdict);
    let status = format!("{}/status", Bed::KUBELETS_NODE);
    let status = |says, patch: Json, verdict| by(says, Kubelet, &status, patch, verdict);
    let heartbeat = json!({
        "metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]},
    });
    let (marker, pause, now) = (
        names::MARKER_ANNOTATION,
        names::PAUSE_ANNOTATION,
        names::UPDATE_NOW_ANNOTATION,
    );
    let mut beside = heartbeat.clone();
    beside["metadata"]["annotations"][pause] = json!("x");
    vec![
        own(
            "a marker forged",
            annotation(marker, "{\"attempt\": 7}"),
            NODE_RULE,
        ),
        own("a marker removed", annotation(marker, ()), NODE_RULE),
        own("a pause taken back", annotation(pause, ()), NODE_RULE),
        own("an update asked for", annotation(now, "true"), NODE_RULE),
        own(
            "a back-off ended",
            annotation(names::RETRY_ANNOTATION, "5"),
            NODE_RULE,
        ),
        own(
            "all annotations removed",
            json!({"metadata": {"annotations": null}}),
            NODE_RULE,
        ),
        status(
            "a marker forged with a heartbeat",
            annotation(marker, "x"),
            NODE_RULE,
        ),
        status(
            "a pause in other words, with a heartbeat",
            beside,
            NODE_RULE,
        ),
        by(
            "a marker forged elsewhere",
            Member,
            "in",
            annotation(marker, "x"),
            NODE_RULE,
        ),
        by(
            "an update asked for elsewhere",
            Member,
            "in",
            annotation(now, "true"),
            NODE_RULE,
        ),
        status("a heartbeat", heartbeat, Allowed),
        own(
            "a volume driver",
            annotation("csi.volume.kubernetes.io/nodeid", "{}"),
            Allowed,
        ),
        own("another annotation", annotation("a.b/marker", "x"), Allowed),
        own(
            "a cordon",
            json!({"spec": {"unschedulable": true}}),
            Allowed,
        ),
        own(
            "an exclusion",
            label(names::EXCLUDE_FROM_LB_LABEL, "true"),
            Allowed,
        ),
        own(
            "no longer opted in",
            label(names::UPDATER_INTERFACE_LABEL, ()),
            Allowed,
        ),
        by(
            "a pause, by a person",
            Admin,
            Bed::KUBELETS_NODE,
            annotation(pause, "x"),
            Allowed,
        ),
        by(
            "a marker, by the reconciler",
            Reconciler,
            Bed::KUBELETS_NODE,
            annotation(marker, "x"),
            Allowed,
        ),
    ]
}

/// A mirror pod: what a static pod of the kubelet's looks like in the API.
fn mirror(bed: &Bed, namespace: &str, labels: &Json) -> Json {
    let mut mirror = pod(namespace, "mirror", labels);
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0"});
    mirror["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": Bed::KUBELETS_NODE,
        "uid": bed.kubelets_node_uid, "controller": true}]);
    mirror
}

/// Kubelets and our pods.
pub fn kubelets_and_pods(bed: &Bed) -> Vec<Row> {
    let rule = Policy("kubelet-pod-label");
    let labelled = |value: Json| label(LABEL, value);
    let makes = |says, namespace: &str, labels: Json, verdict| {
        (
            says,
            Kubelet,
            Method::POST,
            pods(namespace),
            mirror(bed, namespace, &labels),
            verdict,
        )
    };
    let patches = |says, actor, path: &str, patch: Json, verdict| {
        (
            says,
            actor,
            Method::PATCH,
            format!("{}/{path}", pods(bed.namespace)),
            patch,
            verdict,
        )
    };
    let ready = json!({"status": {"podIP": "10.9.0.9", "podIPs": [{"ip": "10.9.0.9"}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let made = own_pod(bed, "made", &json!({LABEL: WEBHOOK}));
    let deletes = |says, name: &str| {
        (
            says,
            Kubelet,
            Method::DELETE,
            format!("{}/{name}", pods(bed.namespace)),
            Json::Null,
            Allowed,
        )
    };
    vec![
        makes(
            "a mirror pod as the webhook",
            bed.namespace,
            json!({LABEL: WEBHOOK}),
            rule,
        ),
        makes(
            "a mirror pod as anything",
            bed.namespace,
            json!({LABEL: ""}),
            rule,
        ),
        makes(
            "a mirror pod as the webhook elsewhere",
            "default",
            json!({LABEL: WEBHOOK}),
            rule,
        ),
        makes("a mirror pod", bed.namespace, json!({"a": "b"}), Allowed),
        makes(
            "a mirror pod without labels",
            "kube-system",
            Json::Null,
            Allowed,
        ),
        patches(
            "the status of our pod",
            Kubelet,
            "ours/status",
            ready.clone(),
            Allowed,
        ),
        patches(
            "the status of another pod",
            Kubelet,
            "theirs/status",
            ready,
            Allowed,
        ),
        deletes("our pod deleted", "ours"),
        deletes("another pod deleted", "theirs"),
        (
            "our pod, by an administrator",
            Admin,
            Method::POST,
            pods(bed.namespace),
            made,
            Allowed,
        ),
        // Where NodeRestriction does not look, and RBAC lets through.
        patches(
            "our label given",
            Member,
            "theirs",
            labelled(json!(WEBHOOK)),
            rule,
        ),
        patches(
            "our label changed",
            Member,
            "ours",
            labelled(json!("reconciler")),
            rule,
        ),
        patches(
            "our label taken",
            Member,
            "ours",
            labelled(Json::Null),
            rule,
        ),
        patches(
            "all labels taken",
            Member,
            "ours",
            json!({"metadata": {"labels": null}}),
            rule,
        ),
        patches(
            "our label given with a status",
            Member,
            "theirs/status",
            labelled(json!(WEBHOOK)),
            rule,
        ),
        patches(
            "our label taken with a status",
            Member,
            "ours/status",
            labelled(Json::Null),
            rule,
        ),
        patches(
            "another label of our pod",
            Member,
            "ours",
            label("c", "d"),
            Allowed,
        ),
        patches(
            "our label given, by an administrator",
            Admin,
            "theirs",
            labelled(json!(WEBHOOK)),
            Allowed,
        ),
        patches(
            "our label taken, by an administrator",
            Admin,
            "ours",
            labelled(Json::Null),
            Allowed,
        ),
    ]
}

/// Kubelets and Events, of both APIs. Those named `planted`, which is ours, and `theirs` are there.
pub fn kubelets_and_events() -> Vec<Row> {
    let rule = Policy("kubelet-events");
    let (ours, theirs) = ("brupop-reconciler", "kubelet");
    let path = |api: &str, name: &str| format!("{api}/namespaces/default/events{name}");
    let (new, core) = ("/apis/events.k8s.io/v1", "/api/v1");
    let core_event = |component: &str, source: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "k"}, "reason": "r", "type": "Warning",
            "involvedObject": {"kind": "Node", "name": "in"}, "reportingComponent": component,
            "source": {"component": source}})
    };
    let makes = |says, api: &str, event, verdict| {
        (says, Kubelet, Method::POST, path(api, ""), event, verdict)
    };
    let patches = |says, api: &str, name: &str, patch, verdict| {
        (
            says,
            Kubelet,
            Method::PATCH,
            path(api, name),
            patch,
            verdict,
        )
    };
    let again = json!({"series": {"count": 9, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}});
    vec![
        makes(
            "an Event in our name",
            new,
            event("default", "k", ours, "Node"),
            rule,
        ),
        makes(
            "an Event in our name, by the older API",
            core,
            core_event(ours, theirs),
            rule,
        ),
        makes(
            "an Event with our name as its source",
            core,
            core_event(theirs, ours),
            rule,
        ),
        makes(
            "an Event in its own name",
            new,
            event("default", "k", theirs, "Node"),
            Allowed,
        ),
        makes(
            "an Event in its own name, by the older API",
            core,
            core_event(theirs, theirs),
            Allowed,
        ),
        patches("our Event once more", new, "/planted", again, rule),
        patches(
            "our Event, by the older API",
            core,
            "/planted",
            json!({"message": "run this"}),
            rule,
        ),
        patches(
            "its own Event made ours",
            core,
            "/theirs",
            json!({"source": {"component": ours}}),
            rule,
        ),
        patches(
            "its own Event in other words",
            core,
            "/theirs",
            json!({"message": "m"}),
            Allowed,
        ),
    ]
}
