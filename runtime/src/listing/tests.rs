mod server;

use super::*;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt as _, stream};
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::WatchEvent;
use kube::client::Body as RequestBody;
use serde_json::{Value, json};

use crate::patient;
use server::{Answer, Asked, Part, pod, pods, status};
use tokio::time::timeout;

/// For an API server that brings no objects before their changes.
fn with_lists(at_once: usize) -> Arc<Beginnings> {
    Arc::new(Beginnings {
        need_lists: true.into(),
        ..Beginnings::new(at_once)
    })
}

/// Returns what is told until `count` events have come, in short.
async fn told(api: Api<Pod>, count: usize) -> Vec<String> {
    told_by(with_lists(1), api, count).await
}

async fn told_by(beginnings: Arc<Beginnings>, api: Api<Pod>, count: usize) -> Vec<String> {
    let name = |pod: Pod| pod.metadata.name.unwrap_or_default();
    let params = ListParams::default()
        .fields("spec.nodeName=n")
        .labels("a=b");
    let begin = || list_and_watch(api.clone(), params.clone(), Arc::clone(&beginnings));
    let events = patient(begin).take(count).map(|event| match event {
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
    let longest = Duration::from_hours(1);
    timeout(longest, events.collect())
        .await
        .expect("so many events")
}

/// The versions from which watches began; `list` for a list.
fn versions(asked: &Asked) -> Vec<String> {
    let version = |query: &String| {
        assert!(
            query.contains("fieldSelector=spec.nodeName%3Dn")
                && query.contains("labelSelector=a%3Db"),
            "{query}"
        );
        assert!(
            !query.contains("limit=") && !query.contains("continue="),
            "{query}"
        );
        let version = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let watches = ["watch=true", "timeoutSeconds=", "allowWatchBookmarks=true"];
        assert!(
            watches
                .iter()
                .all(|it| query.contains(it) == version.is_some()),
            "{query}"
        );
        version.unwrap_or("list").to_owned()
    };
    asked.borrow().iter().map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_where_it_was() {
    let bookmark = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "8"}});
    let (api, asked) = pods([
        Answer::list("5", &["a", "b"]),
        Answer::watch(&[("ADDED", pod("c", "6")), ("DELETED", pod("a", "7"))]),
        Answer::watch(&[("BOOKMARK", bookmark)]),
        Answer::watch(&[("MODIFIED", pod("b", "9"))]).that_stays(),
    ]);
    let expected = [
        "begin",
        "listed a",
        "listed b",
        "done",
        "changed c",
        "deleted a",
        "changed b",
    ];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "7", "8"]);
}

/// Those that come before the bookmark may be older than it.
#[tokio::test(start_paused = true)]
async fn all_is_brought_before_a_bookmark_says_so() {
    let mark = |annotations: Value| {
        let metadata = json!({"resourceVersion": "5", "annotations": annotations});
        (
            "BOOKMARK",
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}),
        )
    };
    let other = || mark(json!({}));
    let all = || mark(json!({ALL_BROUGHT: "true"}));
    let stays = Answer::watch(&[("ADDED", pod("a", "1"))]).that_stays();
    let (api, asked) = pods([
        Answer::watch(&[("ADDED", pod("a", "1")), other()]),
        stays,
        Answer::watch(&[
            ("ADDED", pod("a", "1")),
            ("ADDED", pod("b", "2")),
            other(),
            ("MODIFIED", pod("a", "3")),
            ("DELETED", pod("b", "4")),
            all(),
            ("MODIFIED", pod("a", "6")),
        ]),
        Answer::watch(&[("DELETED", pod("a", "7"))]).that_stays(),
    ]);
    let mut expected = vec![];
    for _ in 0..2 {
        expected.extend(["begin", "listed a", "watch failed"]);
    }
    expected.extend([
        "begin",
        "listed a",
        "listed b",
        "listed a",
        "deleted b",
        "done",
    ]);
    expected.extend(["changed a", "deleted a"]);
    let told = told_by(Arc::new(Beginnings::new(1)), api, expected.len()).await;
    assert_eq!(told, expected);
    assert_eq!(versions(&asked), ["", "", "", "6"]);
    let begins = [
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
    ];
    for query in &asked.borrow()[..3] {
        assert!(begins.iter().all(|part| query.contains(part)), "{query}");
    }
}

/// 422: it never brings them. 504, within the answer: its cache was too old.
#[tokio::test(start_paused = true)]
async fn who_does_not_bring_all_is_asked_for_a_list() {
    let late = || Answer::watch(&[("ERROR", status(504))]);
    for (refusal, told_of_it) in [
        (Answer::status(422), vec![]),
        (late(), vec!["error 504", "begin"]),
    ] {
        let end = Answer::watch(&[("ERROR", status(410))]);
        let lists = [Answer::list("5", &["a"]), end, Answer::list("7", &["b"])];
        let (api, asked) = pods([refusal].into_iter().chain(lists));
        let mut expected = vec!["begin"];
        expected.extend(told_of_it);
        expected.extend(["listed a", "done", "error 410", "begin", "listed b"]);
        let told = told_by(Arc::new(Beginnings::new(1)), api, expected.len()).await;
        assert_eq!(told, expected);
        assert_eq!(versions(&asked), ["", "list", "5", "list"]);
    }
}

/// Some are told only by a version that is missing, and some end in ways that look well.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_listed_anew() {
    let bookmark = |version: &str| json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}});
    let changed = ("ADDED", pod("a", "6"));
    let unread = json!({"metadata": {"name": 3, "resourceVersion": "9"}});
    let one = |type_, object| Answer::watch(&[(type_, object)]);
    let stalls = Answer::status(500).half().that_stays();
    let error = Answer::watch(&[("ERROR", status(500)), changed.clone()]);
    let breaks = Answer::watch(&[changed, ("ADDED", pod("lost", "8"))]).that_breaks_off();
    let without_version = json!({"metadata": {"name": "a"}});
    for (watch, told_of_it) in [
        (Answer::status(410), "no watch"),
        (Answer::status(500), "no watch"),
        (stalls, "no watch"),
        (one("ERROR", status(410)), "error 410"),
        (error, "error 500"),
        (breaks, "changed a, watch failed"),
        (one("ADDED", without_version), "no version"),
        (one("ADDED", pod("a", "")), "no version"),
        (one("BOOKMARK", bookmark("")), "no version"),
        (one("DELETED", unread), "watch failed"),
        (Answer::watch(&[]), "watch failed"),
        (one("BOOKMARK", bookmark("5")), "watch failed"),
    ] {
        let (api, asked) = pods([Answer::list("5", &[]), watch, Answer::list("7", &["b"])]);
        let mut expected = vec!["begin", "done"];
        expected.extend(told_of_it.split(", "));
        expected.extend(["begin", "listed b", "done"]);
        assert_eq!(told(api, expected.len()).await, expected);
        assert_eq!(versions(&asked), ["list", "5", "list"]);
    }
}

/// Anyone who is not told of a pod lets its node be rebooted.
#[tokio::test(start_paused = true)]
async fn what_is_not_the_whole_list_is_none() {
    let cut = |bytes: usize| {
        let whole = Answer::list("4", &["a", "b"]);
        Answer {
            parts: whole.parts.into_iter().take(bytes / 7).collect(),
            ..whole
        }
    };
    let of = |version: Value, items: Value| {
        let metadata = json!({"resourceVersion": version});
        Answer::of(&json!({"metadata": metadata, "items": items}).to_string())
    };
    let continued = r#"{"items": [{"metadata": {"name": "a"}}], "metadata": {"resourceVersion": "5", "continue": "t"}}"#;
    let no_lists = [
        Answer::list("3", &["a", "b"]).that_breaks_off(),
        cut(140),
        cut(0),
        Answer::of(continued),
        of(json!(null), json!([])),
        of(json!(""), json!([])),
        of(json!("5"), json!([pod("a", "1"), null])),
        of(json!("5"), json!([1, 2])),
        of(json!("5"), json!([{"metadata": {"name": 3}}])),
        Answer::of(&status(500).to_string()),
        Answer::status(429),
        Answer::list("3", &["a"]).that_breaks_off().that_stays(),
    ];
    let count = no_lists.len();
    let (api, asked) = pods(no_lists.into_iter().chain([Answer::list("5", &["c"])]));
    let mut expected = ["begin", "no list"].repeat(count);
    expected.extend(["begin", "listed c", "done"]);
    // Arriving are told before the end of their list; whether they count is said by what follows.
    let partly = ["listed a", "listed a", "listed b", "listed a", "listed a"];
    let (of_parts, told): (Vec<_>, Vec<_>) = told(api, expected.len() + partly.len())
        .await
        .into_iter()
        .partition(|told| partly.contains(&told.as_str()));
    assert_eq!(
        (of_parts, told),
        (
            partly.map(str::to_owned).to_vec(),
            expected.iter().map(ToString::to_string).collect()
        )
    );
    assert_eq!(versions(&asked), vec!["list"; count + 1]);
}

/// Anybody with a namespace can change hundreds of large objects at once, each of which another watch brings.
#[tokio::test(start_paused = true)]
async fn few_large_objects_are_in_memory_before_they_are_complete() {
    const PART: usize = 16 << 10;
    const PARTS: usize = 20;
    let read = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&read);
    let service = tower::service_fn(move |_: HttpRequest<RequestBody>| {
        let count = Arc::clone(&count);
        let parts = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from_static(&[b'x'; PART])))
        });
        let begin = stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"a\": \"")))]);
        let parts = begin
            .chain(parts.take(PARTS))
            .chain(stream::pending::<Part>());
        async move { Ok::<_, Infallible>(Response::new(StreamBody::new(parts).boxed_unsync())) }
    });
    let client = Client::new(service, "ns");
    let line = || async {
        let request = http::Request::get("/").body(vec![]).unwrap();
        let events = Arriving::<WatchEvent<Pod>>::of(client.clone(), request, Cutter::of_watch());
        events.await.unwrap().next().await
    };
    let all = futures::future::join_all((0..10).map(|_| line()));
    assert!(
        timeout(TIMEOUT / 2, all).await.is_err(),
        "no object is complete"
    );
    let read = read.load(Ordering::Relaxed);
    assert!(
        (2 * PARTS + 8 * 4..=2 * PARTS + 8 * 6).contains(&read),
        "{read} of {}",
        10 * PARTS
    );
}

/// Each may have a large object in memory. Anyone who is not asked any more leaves its turn to the next.
#[tokio::test(start_paused = true)]
async fn lists_wait_for_their_turn() {
    let stalls = || Answer::list("5", &["a"]).half().that_stays();
    let (api, mut asked) = pods(std::iter::repeat_with(stalls).take(6));
    let beginnings = with_lists(2);
    let watch = || {
        let events = list_and_watch(api.clone(), ListParams::default(), Arc::clone(&beginnings));
        tokio::spawn(
            events
                .filter(|event| futures::future::ready(event.is_err()))
                .take(1)
                .count(),
        )
    };
    let mut watches: VecDeque<_> = std::iter::repeat_with(watch).take(6).collect();
    let began = Instant::now();
    let more_than = |asked: usize| move |queries: &Vec<String>| queries.len() > asked;
    assert!(
        timeout(TIMEOUT / 2, asked.wait_for(more_than(2)))
            .await
            .is_err()
    );
    assert_eq!(asked.borrow().len(), 2);
    watches.pop_front().unwrap().abort();
    for (expected, at) in [
        (3, TIMEOUT / 2),
        (4, TIMEOUT),
        (5, TIMEOUT * 3 / 2),
        (6, TIMEOUT * 2),
    ] {
        let next = timeout(TIMEOUT, asked.wait_for(more_than(expected - 1))).await;
        assert_eq!(next.unwrap().unwrap().len(), expected);
        assert_eq!(began.elapsed().as_secs(), at.as_secs());
    }
    for watch in watches {
        assert_eq!(watch.await.unwrap(), 1);
    }
    assert_eq!(asked.borrow().len(), 6);
}

/// The first begins with all objects; the second has waited for it, and lists.
#[tokio::test(start_paused = true)]
async fn whoever_waits_long_for_a_turn_lists() {
    let stays = Answer::watch(&[]).that_stays();
    let (api, asked) = pods([
        stays,
        Answer::list("5", &["a"]),
        Answer::watch(&[]).that_stays(),
    ]);
    let beginnings = Arc::new(Beginnings::new(1));
    let first = told_by(Arc::clone(&beginnings), api.clone(), 2);
    let second = told_by(Arc::clone(&beginnings), api, 3);
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first, ["begin", "watch failed"]);
    assert_eq!(second, ["begin", "listed a", "done"]);
    assert_eq!(versions(&asked), ["", "list"]);
}

/// A line that is not whole is no change.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_within_a_line_goes_on_before_it() {
    let lines = [("ADDED", pod("a", "6")), ("ADDED", pod("b", "7"))];
    let mut within = Answer::watch(&lines);
    within.parts.truncate(within.parts.len() - 2);
    let (api, asked) = pods([
        Answer::list("5", &[]),
        within,
        Answer::watch(&lines[1..]).that_stays(),
    ]);
    let expected = ["begin", "done", "changed a", "changed b"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(versions(&asked), ["list", "5", "6"]);
}

/// The silence after a change does not count again.
#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_end_is_given_up() {
    let (api, asked) = pods([
        Answer::list("5", &[]),
        Answer::watch(&[("ADDED", pod("a", "6"))]).that_stays(),
        Answer::watch(&[("ADDED", pod("b", "7"))]).that_stays(),
    ]);
    let began = Instant::now();
    let expected = ["begin", "done", "changed a", "changed b"];
    assert_eq!(told(api, expected.len()).await, expected);
    assert_eq!(began.elapsed(), SILENCE);
    assert_eq!(versions(&asked), ["list", "5", "6"]);
}
