//! Plays an API server that gives one answer after the other, in parts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::client::{Body, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(super) type Part = Result<Frame<Bytes>, std::io::Error>;

/// An answer of the API server.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) parts: Vec<Part>,
    /// Whether the connection stays open, silently, after these parts.
    pub(super) stays: bool,
}

impl Answer {
    pub(super) fn of(text: &str) -> Self {
        // In parts that end anywhere.
        let parts = text
            .as_bytes()
            .chunks(7)
            .map(|part| Ok(Frame::data(Bytes::copy_from_slice(part))));
        Self {
            status: 200,
            parts: parts.collect(),
            stays: false,
        }
    }

    pub(super) fn list(version: &str, names: &[&str]) -> Self {
        let items: Vec<Value> = names.iter().map(|name| pod(name, version)).collect();
        let metadata = json!({"resourceVersion": version});
        Self::of(
            &json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})
                .to_string(),
        )
    }

    pub(super) fn watch(events: &[(&str, Value)]) -> Self {
        let line = |(type_, object): &(&str, Value)| {
            format!("{}\n", json!({"type": type_, "object": object}))
        };
        Self::of(&events.iter().map(line).collect::<String>())
    }

    pub(super) fn status(code: u16) -> Self {
        Self {
            status: code,
            ..Self::of(&status(code).to_string())
        }
    }

    pub(super) fn that_stays(self) -> Self {
        Self {
            stays: true,
            ..self
        }
    }

    pub(super) fn half(mut self) -> Self {
        self.parts.truncate(self.parts.len() / 2);
        self
    }

    pub(super) fn that_breaks_off(self) -> Self {
        let mut half = self.half();
        half.parts
            .push(Err(std::io::ErrorKind::ConnectionReset.into()));
        half
    }

    fn response(self) -> Response<UnsyncBoxBody<Bytes, std::io::Error>> {
        let parts = stream::iter(self.parts);
        let parts = if self.stays {
            parts.chain(stream::pending()).boxed()
        } else {
            parts.boxed()
        };
        Response::builder()
            .status(self.status)
            .body(StreamBody::new(parts).boxed_unsync())
            .unwrap()
    }
}

pub(super) fn pod(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}})
}

pub(super) fn status(code: u16) -> Value {
    let reason = if code == 422 { "Invalid" } else { "R" };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code})
}

/// The requests in their order.
pub(super) type Asked = watch::Receiver<Vec<String>>;

/// Pods of an API server that gives these answers.
pub(super) fn pods(answers: impl IntoIterator<Item = Answer>) -> (Api<Pod>, Asked) {
    let (queries, asked) = watch::channel(vec![]);
    let answers = Mutex::new(VecDeque::from_iter(answers));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        queries.send_modify(|queries| queries.push(query));
        let answer = answers
            .lock()
            .unwrap()
            .pop_front()
            .expect("no further request is expected");
        async move { Ok::<_, Infallible>(answer.response()) }
    });
    (Api::all(Client::new(service, "ns")), asked)
}
