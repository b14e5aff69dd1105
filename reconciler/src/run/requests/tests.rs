//! Tests of requests to a simulated API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body as HttpBody;

use super::*;
use crate::process::tests::rows;
use brupop_api::shadow::ShadowFacts;
use brupop_core::objects::NodeFacts;

/// Plays an API server on which no pod is left, and of which a rule refuses patches of objects with this in their path.
fn api_server(frozen: &'static str) -> ApiServer {
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": "9"}});
    let refused = json!({"kind": "Status", "status": "Failure", "code": 422, "message": "frozen", "reason": "Invalid",
        "details": {"causes": [{"message": "frozen"}]}});
    let written = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "10"}});
    server(
        move |request: &http::Request<HttpBody>| match request.method() {
            &Method::GET => (200, pods.to_string()),
            _ if request.uri().path().contains(frozen) => (422, refused.to_string()),
            _ => (200, written.to_string()),
        },
    )
}

/// Plays an API server that answers so: a status and a body.
fn server(
    answer: impl Fn(&http::Request<HttpBody>) -> (u16, String) + Send + Sync + 'static,
) -> ApiServer {
    let service = tower::service_fn(move |request: http::Request<HttpBody>| {
        let (code, answer) = answer(&request);
        async move {
            let response = Response::builder()
                .status(code)
                .body(Full::<Bytes>::from(answer))
                .unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    ApiServer {
        client: Client::new(service, "ns"),
        namespace: "ns".into(),
        own_node: None,
    }
}

fn node() -> Object<String> {
    Object::Node("n".into())
}

fn shadow() -> Object<String> {
    Object::ShadowSpec("brs-n".into())
}

fn patch_nothing() -> Body {
    Body::Patch(JsonPatch(vec![]))
}

/// A grant for which pods that should have been gone by then, and these (UIDs), are not waited for.
fn grant(overlooked: Option<Timestamp>, left: &[&str]) -> Body {
    let pod_key = |uid: &&str| PodKey {
        namespace: "shop".into(),
        name: "p".into(),
        uid: (*uid).into(),
    };
    let confirm = Confirm {
        node: "n".into(),
        seen: None,
        patch: JsonPatch(vec![]),
        marker: None,
        overlooked,
        left: left.iter().map(pod_key).collect(),
    };
    Body::Grant(Box::new(confirm), JsonPatch(vec![]))
}

fn request(object: Object<String>, body: Body) -> Request {
    Request::new(&Cluster::default(), object, body, Context::default())
}

#[tokio::test]
async fn a_denial_is_of_node_or_shadow() {
    let denied = |object| Outcome::Denied(object, "frozen".into());
    for (frozen, object, body, outcome, shown) in rows! {
        "/nodes/", node(), patch_nothing(), denied(node()) => vec![];
        "/nodes/", shadow(), grant(None, &[]), denied(node()) => vec![];
        "/nodes/", shadow(), patch_nothing(), Outcome::Written => vec![shadow()];
        "/bottlerocketshadows/", shadow(), grant(None, &[]), denied(shadow()) => vec![node()];
        "/bottlerocketshadows/", shadow(), patch_nothing(), denied(shadow()) => vec![];
        "/bottlerocketshadows/", node(), patch_nothing(), Outcome::Written => vec![node()];
        "/nothing/", shadow(), grant(None, &[]), Outcome::Written => vec![node(), shadow()];
    } {
        let request = request(object, body);
        let answer = api_server(frozen).send(&request).await;
        let objects: Vec<_> = answer.objects.into_iter().map(|it| it.object).collect();
        assert_eq!(
            (answer.outcome, objects),
            (outcome, shown),
            "{frozen}: {request:?}"
        );
    }
}

/// Sends a grant to an API server that gives this answer to who asks for the node's pods; also returns how many writes came.
async fn grant_beside(pods: &str) -> (Outcome, usize) {
    grant_without(pods, None, &[]).await
}

async fn grant_without(
    pods: &str,
    overlooked: Option<Timestamp>,
    left: &[&str],
) -> (Outcome, usize) {
    let (pods, writes) = (pods.to_owned(), Arc::new(AtomicUsize::new(0)));
    let written = Arc::clone(&writes);
    let server = server(move |request| {
        if request.method() == Method::GET {
            let asked = request.uri().to_string();
            assert_eq!(asked, "/api/v1/pods?&fieldSelector=spec.nodeName%3Dn");
            return (200, pods.clone());
        }
        written.fetch_add(1, Ordering::Relaxed);
        (200, r#"{"metadata": {"name": "n"}}"#.to_owned())
    });
    let answer = server
        .send(&request(shadow(), grant(overlooked, left)))
        .await;
    (answer.outcome, writes.load(Ordering::Relaxed))
}

/// A host that is rebooted with pods on it is what all of this is there to prevent.
#[tokio::test]
async fn no_reboot_is_granted_without_a_whole_list_of_pods_that_may_stay() {
    let pod = |owner: &str, body: Value| {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "3",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
        });
        json_patch::merge(&mut pod, &body);
        pod
    };
    let stays = pod("DaemonSet", json!({}));
    let list =
        |metadata: Value, items: Value| json!({"metadata": metadata, "items": items}).to_string();
    let whole = |items: Value| list(json!({"resourceVersion": "9"}), items);
    for items in [json!([stays]), json!([])] {
        assert_eq!(grant_beside(&whole(items)).await, (Outcome::Written, 2));
    }
    let stuck = json!([pod(
        "ReplicaSet",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    )]);
    for (overlooked, expected) in [
        ("2025-12-31T23:59:59Z", (Outcome::NotConfirmed, 0)),
        ("2026-01-01T00:00:00Z", (Outcome::Written, 2)),
    ] {
        let overlooked = Some(overlooked.parse().unwrap());
        assert_eq!(
            grant_without(&whole(stuck.clone()), overlooked, &[]).await,
            expected,
            "{overlooked:?}"
        );
    }
    let late = whole(json!([pod("ReplicaSet", json!({}))]));
    for (left, expected) in [
        (&["u"][..], (Outcome::Written, 2)),
        (&["another"], (Outcome::NotConfirmed, 0)),
    ] {
        assert_eq!(grant_without(&late, None, left).await, expected, "{left:?}");
    }
    for items in [
        json!([stays, pod("ReplicaSet", json!({}))]),
        json!([pod(
            "ReplicaSet",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        )]),
        json!([pod(
            "DaemonSet",
            json!({"metadata": {"ownerReferences": "unreadable"}})
        )]),
        json!([{}]),
    ] {
        assert_eq!(
            grant_beside(&whole(items.clone())).await,
            (Outcome::NotConfirmed, 0),
            "{items}"
        );
    }
    // The first pod that has to go is enough: there may be any number of them.
    let endless = whole(json!([pod("ReplicaSet", json!({})), stays]));
    assert_eq!(
        grant_beside(&endless[..endless.len() - 3]).await,
        (Outcome::NotConfirmed, 0)
    );
    let all = whole(json!([stays, stays]));
    for answer in [
        &all[..all.len() / 2],
        &all[..all.len() - 1],
        "",
        &list(
            json!({"resourceVersion": "9", "continue": "more"}),
            json!([stays]),
        ),
        &list(json!({}), json!([])),
        &whole(json!([null])),
        &json!({"kind": "Status", "status": "Failure", "code": 500, "items": null}).to_string(),
    ] {
        let (reply, writes) = grant_beside(answer).await;
        assert!(matches!(reply, Outcome::Failed(_)), "{answer}: {reply:?}");
        assert_eq!(writes, 0, "{answer}");
    }
}

#[test]
fn a_denial_is_neither_a_failed_test_nor_a_failure() {
    let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: frozen";
    let webhook = "admission webhook \"w\" denied the request: frozen";
    let (denied, refused, failed) = ("denied", "refused", "failed");
    for (code, message, has_cause, expected) in [
        (422, policy, true, denied),
        (422, "metadata.labels: too long", true, denied),
        (409, webhook, false, denied),
        (400, "unable to parse", false, denied),
        (403, "User cannot patch resource", false, denied),
        (500, "failed calling webhook", false, denied),
        (503, "busy", false, denied),
        (422, "a test does not hold", false, refused),
        (409, "the object has been modified", false, refused),
        (404, "nodes \"n\" not found", false, refused),
        (429, "too many requests", false, failed),
        (401, "Unauthorized", false, failed),
    ] {
        let causes: Vec<_> = has_cause
            .then(|| json!({"message": message}))
            .into_iter()
            .collect();
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        let status: Status = serde_json::from_value(status).unwrap();
        let outcome = failure(&node(), &Error::Api(status.boxed()));
        assert_eq!(outcome.as_str(), expected, "{code} {message}");
    }
}

const NOW: &str = "2026-11-21T04:00:00Z";

/// Returns what is asked for a step of the node, with this shadow or none.
fn asked(shadow: Option<Value>, step: Step<'_>) -> Option<Body> {
    let mut cluster = Cluster::default();
    if let Some(shadow) = shadow {
        cluster.record("brs-n").shadow = Some(Arc::new(serde_json::from_value(shadow).unwrap()));
    }
    let node = NodeFacts::example();
    let view = NodeView {
        node: Some(&node),
        shadow: cluster.shadow("brs-n").and_then(ShadowFacts::of),
        ..NodeView::nothing("brs-n")
    };
    let fleet = FleetFacts {
        now: NOW,
        term: 7,
        ledger_term: Some(7),
        ..FleetFacts::EXAMPLE
    };
    body(&cluster, &view, step, &fleet)
}

fn shadow_with(metadata: &Value) -> Value {
    let mut shadow = json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"},
    });
    json_patch::merge(&mut shadow["metadata"], metadata);
    shadow
}

#[test]
fn a_shadow_is_deleted_only_as_read() {
    let delete = Step::DeleteShadow;
    let read = Some(shadow_with(&json!({"resourceVersion": "41"})));
    let Some(Body::Delete(preconditions)) = asked(read, delete) else {
        panic!("it is deleted")
    };
    assert_eq!(
        serde_json::to_value(preconditions).unwrap(),
        json!({"uid": "u", "resourceVersion": "41"})
    );
    assert!(
        asked(Some(shadow_with(&json!({}))), delete).is_none(),
        "not without its version"
    );
}
