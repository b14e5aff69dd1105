use super::*;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request as HttpRequest, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::patient;

type Part = Result<Frame<Bytes>, std::io::Error>;

/// An answer of the API server.
struct Answer {
    status: u16,
    parts: Vec<Part>,
    /// Does it go on, silently, after these parts?
    stays: bool,
}

impl Answer {
    fn of(text: &str) -> Self {
        // In parts that end anywhere.
        let parts = text.as_bytes().chunks(7).map(|part| Ok(Frame::data(Bytes::copy_from_slice(part))));
        Self { status: 200, parts: parts.collect(), stays: false }
    }

    fn list(version: &str, names: &[&str]) -> Self {
        let items: Vec<Value> = names.iter().map(|name| pod(name, version)).collect();
        let metadata = json!({"resourceVersion": version});
        Self::of(
            &json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string(),
        )
    }

    fn watch(events: &[(&str, Value)]) -> Self {
        let line =
            |(type_, object): &(&str, Value)| format!("{}\n", json!({"type": type_, "object": object}));
        Self::of(&events.iter().map(line).collect::<String>())
    }

    fn status(code: u16) -> Self {
        Self { status: code, ..Self::of(&status(code).to_string()) }
    }

    fn that_stays(self) -> Self {
        Self { stays: true, ..self }
    }

    fn that_breaks_off(mut self) -> Self {
        self.parts.truncate(self.parts.len() / 2);
        self.parts.push(Err(std::io::ErrorKind::ConnectionReset.into()));
        self
    }

    fn response(self) -> Response<UnsyncBoxBody<Bytes, std::io::Error>> {
        let parts = stream::iter(self.parts);
        let parts = if self.stays { parts.chain(stream::pending()).boxed() } else { parts.boxed() };
        Response::builder().status(self.status).body(StreamBody::new(parts).boxed_unsync()).unwrap()
    }
}

fn pod(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "R", "code": code})
}

/// What was asked for, in the order of requests.
type Asked = Arc<Mutex<Vec<String>>>;

/// Pods of an API server that gives these answers.
fn pods(answers: impl IntoIterator<Item = Answer>) -> (Api<Pod>, Asked) {
    let (answers, asked) = (Mutex::new(VecDeque::from_iter(answers)), Asked::default());
    let queries = Arc::clone(&asked);
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        queries.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = answers.lock().unwrap().pop_front().expect("no further request is expected");
        async move { Ok::<_, Infallible>(answer.response()) }
    });
    (Api::all(Client::new(service, "ns")), asked)
}

/// What is told until `count` events have come, in short.
async fn told(api: Api<Pod>, count: usize) -> Vec<String> {
    let name = |pod: Pod| pod.metadata.name.unwrap_or_default();
    let params = ListParams::default().fields("spec.nodeName=n").labels("a=b");
    let events = patient(list_and_watch(api, params)).take(count).map(|event| match event {
        Ok(Event::Init) => "begin".to_owned(),
        Ok(Event::InitApply(pod)) => format!("listed {}", name(pod)),
        Ok(Event::InitDone) => "done".to_owned(),
        Ok(Event::Apply(pod)) => format!("changed {}", name(pod)),
        Ok(Event::Delete(pod)) => format!("deleted {}", name(pod)),
        Err(watcher::Error::InitialListFailed(_)) => "no list".to_owned(),
        Err(watcher::Error::WatchStartFailed(_)) => "no watch".to_owned(),
        Err(watcher::Error::WatchError(status)) => format!("error {}", status.code),
        Err(watcher::Error::WatchFailed(_)) => "watch failed".to_owned(),
        Err(watcher::Error::NoResourceVersion) => "no version".to_owned(),
    });
    let longest = Duration::from_secs(3600);
    timeout(longest, events.collect()).await.expect("so many events")
}

/// The versions from which watches began; `list` for a list.
fn versions(asked: &Asked) -> Vec<String> {
    let version = |query: &String| {
        assert!(
            query.contains("fieldSelector=spec.nodeName%3Dn") && query.contains("labelSelector=a%3Db"),
            "{query}"
        );
        assert!(!query.contains("limit=") && !query.contains("continue="), "{query}");
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        assert_eq!(version.is_some(), query.contains("watch=true"), "{query}");
        version.unwrap_or("list").to_owned()
    };
    asked.lock().unwrap().iter().map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_where_it_was() {
    let bookmark = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "8"}});
    let (api, asked) = pods([
        Answer::list("5", &["a", "b"]),
        Answer::watch(&[("ADDED", pod("c", "6")), ("DELETED", pod("a", "7"))]),
        Answer::watch(&[("BOOKMARK", bookmark)]),
        Answer::status(500),
        Answer::watch(&[("MODIFIED", pod("b", "9"))]).that_stays(),
    ]);
    let expected =
        ["begin", "listed a", "listed b", "done", "changed c", "deleted a", "no watch", "changed b"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "7", "8", "8"]);
}

/// The same as an event and as an answer.
#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_listed_anew() {
    let (api, asked) = pods([
        Answer::list("5", &["a"]),
        Answer::watch(&[("ERROR", status(410))]),
        Answer::list("6", &[]),
        Answer::status(410),
        Answer::list("7", &["b"]),
        Answer::watch(&[]).that_stays(),
    ]);
    let expected =
        ["begin", "listed a", "done", "error 410", "begin", "done", "no watch", "begin", "listed b", "done"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "list", "6", "list"]);
}

#[tokio::test(start_paused = true)]
async fn half_a_list_is_none() {
    let cut = Answer {
        parts: Answer::list("4", &["a", "b"]).parts.into_iter().take(20).collect(),
        ..Answer::of("")
    };
    let (api, _) = pods([
        Answer::list("3", &["a", "b"]).that_breaks_off(),
        cut,
        Answer::of(r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}"#),
        Answer::status(429),
        Answer::list("5", &["c"]),
    ]);
    let expected = [
        "begin",
        "no list",
        "begin",
        "no list",
        "begin",
        "no version",
        "begin",
        "no list",
        "begin",
        "listed c",
        "done",
    ];
    assert_eq!(told(api, expected.len()).await, expected);
}

/// An error of a watch that is not the end of it; and a connection that breaks, or is silent for ever.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_goes_on() {
    let (api, asked) = pods([
        Answer::list("5", &[]),
        Answer::watch(&[("ERROR", status(500)), ("ADDED", pod("a", "6"))]),
        Answer::watch(&[("ADDED", pod("b", "7")), ("ADDED", pod("lost", "8"))]).that_breaks_off(),
        Answer::watch(&[]).that_stays(),
        Answer::watch(&[("ADDED", pod("c", "9"))]).that_stays(),
    ]);
    let expected = ["begin", "done", "error 500", "changed a", "changed b", "watch failed", "changed c"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "6", "7", "7"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_version_cannot_be_gone_on_from() {
    let (api, asked) = pods([
        Answer::list("5", &[]),
        Answer::watch(&[("ADDED", json!({"metadata": {"name": "a"}}))]),
        Answer::list("6", &["a"]),
    ]);
    let expected = ["begin", "done", "no version", "begin", "listed a", "done"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "list"]);
}
