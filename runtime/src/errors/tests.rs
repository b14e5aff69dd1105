//! Errors of kube's client as they come about, with a server that answers anything.

use super::*;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::{Api, Client};
use std::io;
use std::sync::Arc;

pub(crate) const SECRET: &str = "hunter2";

/// A client of a server that answers each request so.
pub(crate) fn client(status: u16, body: &'static str) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let mut response = Response::new(Body::from(body.as_bytes().to_vec()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok::<_, io::Error>(response)
    });
    Client::new(service, "default")
}

async fn error_of(status: u16, body: &'static str) -> kube::Error {
    Api::<Pod>::all(client(status, body))
        .list(&kube::api::ListParams::default())
        .await
        .unwrap_err()
}

#[derive(Debug, thiserror::Error)]
enum Ours {
    #[error("the pods cannot be read")]
    Quiet(#[source] Box<kube::Error>),
    #[error("the pods cannot be read: {0}")]
    Loud(#[source] Arc<kube::Error>),
    #[error(transparent)]
    Transparent(#[from] kube::Error),
}

#[tokio::test]
async fn no_error_quotes_what_a_server_answered() {
    let misshapen = "it is JSON of another shape";
    for (status, body, expected) in [
        (200, r#"{"items": "hunter2"}"#, misshapen),
        (
            200,
            r#"{"metadata": {"resourceVersion": {}}, "hunter2": 1"#,
            misshapen,
        ),
        (
            200,
            "hunter2",
            "it is not JSON, or nested too deeply (line 1, column 1)",
        ),
        (
            502,
            "<p>hunter2</p>",
            "the answer has code 502 and is not a Status",
        ),
        (404, "", "the answer has code 404 and is not a Status"),
    ] {
        let error = error_of(status, body).await;
        assert!(
            !body.contains(SECRET) || error.to_string().contains(SECRET) || status == 200,
            "{error}"
        );
        let watched =
            kube::runtime::watcher::Error::InitialListFailed(error_of(status, body).await);
        let quiet = Ours::Quiet(Box::new(error_of(status, body).await));
        let loud = Ours::Loud(Arc::new(error_of(status, body).await));
        let transparent = Ours::Transparent(error_of(status, body).await);
        let errors: [&(dyn Error + 'static); 5] = [&error, &watched, &quiet, &loud, &transparent];
        for error in errors {
            let described = describe(error);
            assert_eq!(described.matches(expected).count(), 1, "{described}");
            assert!(!described.contains(SECRET), "{described}");
        }
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_servers_words() {
    let status = r#"{"kind": "Status", "status": "Failure", "message": "pods is forbidden", "reason": "Forbidden", "code": 403}"#;
    let error = error_of(403, status).await;
    assert_eq!(describe(&error), "ApiError: pods is forbidden (403)");
    let kube::Error::Api(status) = &error else {
        panic!("{error}")
    };
    assert_eq!(status_message(status), "pods is forbidden");
    let empty = kube::Error::Api(Status::default().boxed());
    let described = describe(&empty);
    assert!(described.starts_with("ApiError"), "{described}");
}

#[test]
fn an_object_that_a_message_quotes_is_left_out() {
    let said = |message: &str| {
        status_message(&Status {
            message: message.to_owned(),
            ..Status::default()
        })
        .into_owned()
    };
    assert_eq!(
        said(
            r#"Node "n" is invalid: patch: Invalid value: "{\"a\":{\"b\":\"hunter2\"}}": parsing time"#
        ),
        r#"Node "n" is invalid: patch: Invalid value: "{…}": parsing time"#
    );
    assert_eq!(
        said(r#"cannot decode {"a":"hunter2"}: parsing time"#),
        "cannot decode {…}: parsing time"
    );
    assert_eq!(said(r#"cut off {"a":"hunter2"#), "cut off {…");
    assert_eq!(said("quota {cpu} is used up"), "quota {cpu} is used up");
}

#[test]
fn a_sentence_is_printable_and_short() {
    let described = describe(&io::Error::other("a\n\u{1b}[2J\u{202e}".repeat(1000)));
    assert!(
        described.starts_with(r"a\n\u{1b}[2J\u{202e}a"),
        "{described}"
    );
    assert!(
        described.len() <= SENTENCE_MAX && described.ends_with('…'),
        "{described}"
    );
}

#[test]
fn each_cause_is_said_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Middle);
    #[derive(Debug, thiserror::Error)]
    #[error("middle: {0}")]
    struct Middle(#[source] io::Error);
    let error = Outer(Middle(io::Error::other("inner")));
    assert_eq!(describe(&error), "outer: middle: inner");
    assert_eq!(describe(&io::Error::other("alone")), "alone");
}
