//! What becomes of calls, on an API server that is played.

use std::convert::Infallible;

use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::json;

use super::*;

/// Plays an API server on which no pod is left, and of which a rule refuses patches of objects with this in their path.
fn api_server(frozen: &'static str) -> ApiServer {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let (code, answer) = if request.method() == Method::GET {
            (
                200,
                json!({"kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": "9"}}),
            )
        } else if request.uri().path().contains(frozen) {
            let causes = json!([{"message": "frozen"}]);
            (
                422,
                json!({"kind": "Status", "status": "Failure", "code": 422, "message": "frozen", "reason": "Invalid",
                "details": {"causes": causes}}),
            )
        } else {
            (200, json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "10"}}))
        };
        let answer = Response::builder().status(code).body(Full::<Bytes>::from(answer.to_string())).unwrap();
        Ok::<_, Infallible>(answer)
    });
    ApiServer { client: Client::new(service, "ns"), namespace: "ns".into(), own_node: None }
}

#[tokio::test]
async fn a_denial_is_of_node_or_shadow() {
    let patch = || JsonPatch(vec![]);
    let confirm = || Box::new(Confirm { node: "n".into(), patch: patch(), marker: None });
    let node = || Operation::PatchNode { name: "n".into(), patch: patch() };
    let shadow = || Operation::PatchShadow { name: "brs-n".into(), patch: patch() };
    let grant = || Operation::Grant { confirm: confirm(), name: "brs-n".into(), patch: patch() };
    let of_node = || Outcome::NodeDenied("frozen".into());
    let of_shadow = || Outcome::Denied("frozen".into());
    let done = || Outcome::Written(Some(10));
    for (frozen, call, outcome) in [
        ("/nodes/", node(), of_node()),
        ("/nodes/", grant(), of_node()),
        ("/nodes/", shadow(), done()),
        ("/bottlerocketshadows/", grant(), of_shadow()),
        ("/bottlerocketshadows/", shadow(), of_shadow()),
        ("/bottlerocketshadows/", node(), done()),
        ("/nothing/", grant(), Outcome::Granted { node: Some(10), shadow: Some(10) }),
    ] {
        assert_eq!(api_server(frozen).send(&call).await, outcome, "{frozen}: {call:?}");
    }
}

#[test]
fn a_denial_is_not_a_failed_test() {
    let cause = |message: &str| json!([{"message": message}]);
    let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: nodes are frozen";
    let webhook = "admission webhook \"w.example.com\" denied the request: nodes are frozen";
    let test = "the server rejected our request due to an error in our request";
    for (says, code, message, causes, denied) in [
        ("a policy without a reason", 422, policy, cause(policy), true),
        ("a schema", 422, "Node \"n\" is invalid: metadata.labels: too long", cause("too long"), true),
        ("a webhook", 409, webhook, json!([]), true),
        ("a test", 422, test, json!([]), false),
        ("another has written it", 409, "the object has been modified", json!([]), false),
        ("it is gone", 404, "nodes \"n\" not found", json!([]), false),
        ("it cannot be taken back", 400, "unable to parse", json!([]), true),
        ("RBAC", 403, "User cannot patch resource", json!([]), true),
        ("a server in trouble", 500, "etcd denied it", json!([]), false),
    ] {
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        assert_eq!(is_denied(&serde_json::from_value(status).unwrap()), denied, "{says}");
    }
}

#[test]
fn a_refusal_is_not_a_failure() {
    let of = |code| failure(&Error::Api(Status { code, ..Status::default() }.boxed()));
    for code in [404, 409, 422] {
        assert!(matches!(of(code), Outcome::Refused(_)), "{code}");
    }
    for code in [401, 429, 500, 503] {
        assert!(matches!(of(code), Outcome::Failed(_)), "{code}");
    }
}
