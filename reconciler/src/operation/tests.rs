//! What becomes of calls, on an API server that is played.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::json;

use super::*;

/// Plays an API server on which no pod is left, and of which a rule refuses patches of objects with this in their path.
fn api_server(frozen: &'static str) -> ApiServer {
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": "9"}});
    let refused = json!({"kind": "Status", "status": "Failure", "code": 422, "message": "frozen", "reason": "Invalid",
        "details": {"causes": [{"message": "frozen"}]}});
    let written = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "10"}});
    server(move |request: &Request<Body>| match request.method() {
        &Method::GET => (200, pods.to_string()),
        _ if request.uri().path().contains(frozen) => (422, refused.to_string()),
        _ => (200, written.to_string()),
    })
}

/// Plays an API server that answers so: a status and a body.
fn server(answer: impl Fn(&Request<Body>) -> (u16, String) + Send + Sync + 'static) -> ApiServer {
    let service = tower::service_fn(move |request: Request<Body>| {
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

#[tokio::test]
async fn a_denial_is_of_node_or_shadow() {
    let patch = || JsonPatch(vec![]);
    let confirm = || {
        Box::new(Confirm {
            node: "n".into(),
            patch: patch(),
            marker: None,
            overlooked: None,
            left: vec![],
        })
    };
    let node = || (Object::Node("n".into()), Operation::Patch(patch()));
    let shadow = || {
        (
            Object::ShadowSpec("brs-n".into()),
            Operation::Patch(patch()),
        )
    };
    let grant = || {
        (
            Object::ShadowSpec("brs-n".into()),
            Operation::Grant(confirm(), patch()),
        )
    };
    let denied = || Reply::Denied("frozen".into());
    let node_denied = || Reply::NodeDenied("frozen".into());
    let done = |node| Reply::Written {
        version: Some(10),
        node,
    };
    for (frozen, (object, operation), reply) in [
        ("/nodes/", node(), denied()),
        ("/nodes/", grant(), node_denied()),
        ("/nodes/", shadow(), done(None)),
        ("/bottlerocketshadows/", grant(), denied()),
        ("/bottlerocketshadows/", shadow(), denied()),
        ("/bottlerocketshadows/", node(), done(None)),
        ("/nothing/", grant(), done(Some(10))),
    ] {
        let answered = api_server(frozen).send(&object, &operation).await;
        assert_eq!(answered, reply, "{frozen}: {object:?}: {operation:?}");
    }
}

fn pod_key(uid: &str) -> PodKey {
    PodKey {
        namespace: "shop".into(),
        name: "p".into(),
        uid: uid.into(),
    }
}

/// Sends a grant to an API server that gives this answer to who asks for the node's pods; also returns how many writes came.
async fn grant_beside(pods: &str) -> (Reply, usize) {
    grant_without(pods, None, &[]).await
}

/// Sends such a grant when pods that should have been gone by then, and these (UIDs), are not waited for.
async fn grant_without(pods: &str, overlooked: Option<Timestamp>, left: &[&str]) -> (Reply, usize) {
    let (pods, writes) = (pods.to_owned(), Arc::new(AtomicUsize::new(0)));
    let written = Arc::clone(&writes);
    let server = server(move |request: &Request<Body>| {
        if request.method() == Method::GET {
            assert_eq!(
                request.uri(),
                "/api/v1/pods?&fieldSelector=spec.nodeName%3Dn"
            );
            return (200, pods.clone());
        }
        written.fetch_add(1, Ordering::Relaxed);
        (
            200,
            json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "10"}}).to_string(),
        )
    });
    let patch = || JsonPatch(vec![]);
    let confirm = Box::new(Confirm {
        node: "n".into(),
        patch: patch(),
        marker: None,
        overlooked,
        left: left.iter().map(|uid| pod_key(uid)).collect(),
    });
    let reply = server
        .send(
            &Object::ShadowSpec("brs-n".into()),
            &Operation::Grant(confirm, patch()),
        )
        .await;
    (reply, writes.load(Ordering::Relaxed))
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
    let granted = Reply::Written {
        version: Some(10),
        node: Some(10),
    };
    assert_eq!(
        grant_beside(&whole(json!([stays]))).await,
        (granted.clone(), 2)
    );
    assert_eq!(grant_beside(&whole(json!([]))).await, (granted.clone(), 2));
    let stuck = json!([pod(
        "ReplicaSet",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    )]);
    for (overlooked, expected) in [
        ("2025-12-31T23:59:59Z", (Reply::NotConfirmed, 0)),
        ("2026-01-01T00:00:00Z", (granted.clone(), 2)),
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
        (&["u"][..], (granted, 2)),
        (&["another"], (Reply::NotConfirmed, 0)),
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
            (Reply::NotConfirmed, 0),
            "{items}"
        );
    }
    // The first pod that has to go is enough: there may be any number of them.
    let endless = whole(json!([pod("ReplicaSet", json!({})), stays]));
    assert_eq!(
        grant_beside(&endless[..endless.len() - 3]).await,
        (Reply::NotConfirmed, 0)
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
        assert!(matches!(reply, Reply::Failed(_)), "{answer}: {reply:?}");
        assert_eq!(writes, 0, "{answer}");
    }
}

#[test]
fn a_denial_is_not_a_failed_test() {
    let cause = |message: &str| json!([{"message": message}]);
    let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: nodes are frozen";
    let webhook = "admission webhook \"w.example.com\" denied the request: nodes are frozen";
    let test = "the server rejected our request due to an error in our request";
    for (says, code, message, causes, denied) in [
        (
            "a policy without a reason",
            422,
            policy,
            cause(policy),
            true,
        ),
        (
            "a schema",
            422,
            "Node \"n\" is invalid: metadata.labels: too long",
            cause("too long"),
            true,
        ),
        ("a webhook", 409, webhook, json!([]), true),
        ("a test", 422, test, json!([]), false),
        (
            "another has written it",
            409,
            "the object has been modified",
            json!([]),
            false,
        ),
        ("it is gone", 404, "nodes \"n\" not found", json!([]), false),
        (
            "it cannot be taken back",
            400,
            "unable to parse",
            json!([]),
            true,
        ),
        ("RBAC", 403, "User cannot patch resource", json!([]), true),
        (
            "a webhook that is down",
            500,
            "failed calling webhook \"w\": connection refused",
            json!([]),
            true,
        ),
        (
            "a server that is busy",
            429,
            "too many requests",
            json!([]),
            false,
        ),
    ] {
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        assert_eq!(
            is_denied(&serde_json::from_value(status).unwrap()),
            denied,
            "{says}"
        );
    }
}

#[test]
fn a_refusal_is_not_a_failure() {
    let of = |code| {
        failure(&Error::Api(
            Status {
                code,
                ..Status::default()
            }
            .boxed(),
        ))
    };
    for code in [404, 409, 422] {
        assert!(matches!(of(code), Reply::Refused(_)), "{code}");
    }
    for code in [401, 429] {
        assert!(matches!(of(code), Reply::Failed(_)), "{code}");
    }
    for code in [500, 503] {
        assert!(matches!(of(code), Reply::Denied(_)), "{code}");
    }
}
