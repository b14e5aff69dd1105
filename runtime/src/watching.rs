//! Watches that wait after a failure, longer after each.

use std::fmt::Debug;
use std::time::Duration;

use async_stream::stream;
use futures::{Stream, StreamExt as _};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{self, Config, DefaultBackoff, watch_object};
use kube::{Api, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::waits::jittered;

/// The wait if the back-off gives none, which it does not say it could.
const LONGEST: Duration = Duration::from_secs(30);
/// Longer than any wait, which jitter may double.
const FORGOTTEN: Duration = Duration::from_secs(75);
/// For so long an API server answers a watch of one object. A connection that brings not even bookmarks ends before.
const WATCH: Duration = Duration::from_mins(50);
/// Between one watch of an object and the next.
const BETWEEN: Duration = Duration::from_secs(1);
/// The bookmark after the objects with which a watch begins.
const ALL_BROUGHT: &str = "k8s.io/initial-events-end";

/// The events of a watch, with a wait after each failure: 0.8 s at first, up to 30 s, with jitter. The waits begin again
/// only when nothing has failed for [`FORGOTTEN`]. What a list brings is no reason: if the watch after it fails each time,
/// the API server would be asked for whole lists without a pause.
///
/// A watch that ends is begun again. So is one that has brought an unreadable change, because kube's watcher skips such a change.
pub fn patient<T, S>(begin: impl Fn() -> S) -> impl Stream<Item = watcher::Result<T>>
where
    S: Stream<Item = watcher::Result<T>>,
{
    stream! {
        let mut back_off = ResetTimerBackoff::new(DefaultBackoff::default(), FORGOTTEN);
        loop {
            let mut events = Box::pin(begin());
            while let Some(event) = events.next().await {
                let has_failed = event.is_err();
                let is_unread = matches!(&event, Err(watcher::Error::WatchFailed(error)) if !matches!(error, Error::ReadEvents(_)));
                yield event;
                if has_failed {
                    sleep(back_off.next().unwrap_or(LONGEST)).await;
                }
                if is_unread {
                    break;
                }
            }
        }
    }
}

/// The object of this name, each time that it may have changed; `None` if there is none.
pub fn watch_one<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let name = name.to_owned();
    patient(move || object_or_none(api.clone(), name.clone()))
}

/// One request brings the object, and then each change of it. It names no version, so the API server first makes sure that its
/// cache is as new as etcd. kube's own (`streaming_lists`) names version 0, and gets what the cache has, however old that is.
/// API servers that cannot do this, as those of Kubernetes 1.33 by default, or whose cache does not get there in time, are asked
/// for a list and a watch, until it is tried again.
fn object_or_none<K>(api: Api<K>, name: String) -> impl Stream<Item = watcher::Result<Option<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    stream! {
        let params = WatchParams {
            send_initial_events: true,
            field_selector: only(&name).field_selector,
            timeout: u32::try_from(jittered(WATCH, 0.2).as_secs()).ok(),
            ..WatchParams::default()
        };
        let mut events = match api.watch(&params, "").await {
            Ok(events) => events.boxed(),
            Err(Error::Api(status)) if status.is_invalid() || status.code == 504 => {
                let again = sleep(jittered(WATCH, 0.2));
                let mut objects = watch_object(api, &name).take_until(again).boxed();
                while let Some(object) = objects.next().await {
                    yield object;
                }
                return;
            }
            Err(error) => return yield Err(watcher::Error::WatchStartFailed(error)),
        };
        let (mut object, mut all_brought) = (None, false);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(now) | WatchEvent::Modified(now)) => object = Some(now),
                Ok(WatchEvent::Deleted(_)) => object = None,
                Ok(WatchEvent::Bookmark(mark)) => {
                    if all_brought || !mark.metadata.annotations.contains_key(ALL_BROUGHT) {
                        continue;
                    }
                    all_brought = true;
                }
                Ok(WatchEvent::Error(status)) => return yield Err(watcher::Error::WatchError(status)),
                Err(error) => return yield Err(watcher::Error::WatchFailed(error)),
            }
            if all_brought {
                yield Ok(object.take());
            }
        }
        if !all_brought {
            let early = Error::Service("the watch ended before it had brought the object".into());
            return yield Err(watcher::Error::WatchFailed(early));
        }
        sleep(jittered(BETWEEN, 0.5)).await;
    }
}

/// Of all objects of a kind, the one of this name.
pub fn only(name: &str) -> Config {
    Config::default().fields(&format!("metadata.name={name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::client::Body;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;

    fn failure() -> watcher::Result<Event<u8>> {
        Err(watcher::Error::NoResourceVersion)
    }

    /// Returns how long this many events take, if the watch ends after these.
    async fn elapsed(events: &[fn() -> watcher::Result<Event<u8>>], count: usize) -> Duration {
        let since = Instant::now();
        let begin = || stream::iter(events.iter().map(|event| event()));
        patient(begin).take(count).count().await;
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_shortens_the_waits_but_time() {
        for event in [
            || Ok(Event::Init),
            || Ok(Event::InitDone),
            || Ok(Event::Apply(1)),
        ] {
            let took = elapsed(&[event, failure], 30).await;
            assert!(took > Duration::from_mins(3), "{took:?}");
        }
        let began = Instant::now();
        let slow = || {
            stream::once(async {
                sleep(FORGOTTEN).await;
                failure()
            })
        };
        patient(slow).take(10).count().await;
        let took = began.elapsed();
        assert!(took < 10 * FORGOTTEN + Duration::from_secs(16), "{took:?}");
    }

    /// kube's watcher would go on with the next change.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_cannot_be_read_begins_anew() {
        let unread = || Err(watcher::Error::WatchFailed(Error::TlsRequired));
        let begin = || stream::iter([Ok(Event::Init), unread(), Ok(Event::Apply(1))]);
        let events: Vec<_> = patient(begin)
            .take(4)
            .map(|event| event.is_ok())
            .collect()
            .await;
        assert_eq!(events, [true, false, true, false]);
    }

    fn pod(type_: &str, version: &str) -> Value {
        json!({"type": type_, "object": {"metadata": {"name": "a", "resourceVersion": version}}})
    }

    fn bookmark(annotations: &Value) -> Value {
        let metadata = json!({"resourceVersion": "9", "annotations": annotations});
        json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}})
    }

    /// An answer that does not come.
    const NEVER: (u16, Vec<Value>) = (599, vec![]);

    /// What an API server with these answers, one after the other, is asked for, and the first versions that are told.
    async fn told(answers: &[(u16, Vec<Value>)], count: usize) -> (Vec<String>, Vec<String>) {
        let asked = Arc::new(Mutex::new(vec![]));
        let (queries, mut answers) = (Arc::clone(&asked), VecDeque::from(answers.to_vec()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            queries.lock().unwrap().push(query);
            let (status, lines) = answers.pop_front().unwrap();
            let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
            let answer = Response::builder().status(status);
            let answer = answer
                .body(Body::from(lines.join("\n").into_bytes()))
                .unwrap();
            async move {
                if status == NEVER.0 {
                    pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let api = Api::<Pod>::all(Client::new(service, "ns"));
        let version = |pod: Option<Pod>| {
            pod.map_or("none".into(), |pod| pod.metadata.resource_version.unwrap())
        };
        let told = watch_one(api, "a").take(count);
        let told = told.map(|it| it.map_or("failed".into(), version)).collect();
        let told: Vec<String> = told.await;
        let asked = asked.lock().unwrap().clone();
        (told, asked)
    }

    /// Objects before the bookmark may be older than it: a grant and a claim that were withdrawn, for example.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_before_it_is_known_to_be_new() {
        let all = || bookmark(&json!({ALL_BROUGHT: "true"}));
        let old = (200, vec![pod("ADDED", "1"), bookmark(&json!({}))]);
        let new = (
            200,
            vec![
                pod("ADDED", "1"),
                pod("MODIFIED", "2"),
                all(),
                pod("MODIFIED", "3"),
                pod("DELETED", "4"),
            ],
        );
        let none = (200, vec![all(), bookmark(&json!({})), pod("ADDED", "5")]);
        let (told, asked) = told(&[old, new, none], 6).await;
        assert_eq!(told, ["failed", "2", "3", "none", "none", "5"]);
        assert_eq!(asked.len(), 3);
        for query in asked {
            let query: Vec<&str> = query.split('&').collect();
            for part in [
                "watch=true",
                "sendInitialEvents=true",
                "resourceVersionMatch=NotOlderThan",
                "resourceVersion=",
                "fieldSelector=metadata.name%3Da",
            ] {
                assert!(query.contains(&part), "{query:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_send_objects_first_is_asked_for_a_list() {
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []});
        for (code, reason) in [(422, "Invalid"), (504, "Timeout")] {
            let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
            let answers = [
                (code, vec![refusal]),
                (200, vec![list.clone()]),
                (200, vec![pod("ADDED", "8")]),
                NEVER,
                (
                    200,
                    vec![pod("ADDED", "9"), bookmark(&json!({ALL_BROUGHT: "true"}))],
                ),
            ];
            let (told, asked) = told(&answers, 3).await;
            assert_eq!(told, ["none", "8", "9"]);
            assert!(
                !asked[1].contains("resourceVersion") && asked[2].contains("resourceVersion=7"),
                "{asked:?}"
            );
        }
    }
}
