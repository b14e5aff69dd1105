//! Watches that wait after a failure, longer after each.

use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use kube::api::ListParams;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, Config, DefaultBackoff, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::list_and_watch;

/// The wait if the back-off gives none, which it does not say it could.
const LONGEST: Duration = Duration::from_secs(30);

/// The events of a watch, with a wait after each failure: 0.8 s at first, up to 30 s, with jitter. The waits begin again
/// only when the watch brings a change, or has not failed for two minutes. A list is no reason: if what it brings or the
/// watch after it fails each time, the API server would be asked for whole lists without a pause.
pub fn patient<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) -> impl Stream<Item = watcher::Result<Event<K>>> {
    let start = (Box::pin(events), DefaultBackoff::default(), Duration::ZERO);
    stream::unfold(start, |(mut events, mut back_off, wait)| async move {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let event = events.next().await?;
        let wait = match &event {
            Err(_) => back_off.next().unwrap_or(LONGEST),
            Ok(Event::Apply(_) | Event::Delete(_)) => {
                back_off.reset();
                Duration::ZERO
            }
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => Duration::ZERO,
        };
        Some((event, (events, back_off, wait)))
    })
}

/// The object of this name, each time that it may have changed; `None` if there is none. Unlike kube's `watch_object`, it
/// waits as [`patient`] does, which has to tell lists from changes, and has one large object in memory at a time, not as many
/// as are watched.
pub fn watch_one<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + use<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    one(patient(list_and_watch(
        api,
        ListParams::default().fields(&named(name)),
    )))
}

/// Of all objects of a kind, the one of this name.
pub fn only(name: &str) -> Config {
    Config::default().fields(&named(name))
}

fn named(name: &str) -> String {
    format!("metadata.name={name}")
}

/// What the events of at most one object show: after each list that is complete, and after each change.
fn one<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) -> impl Stream<Item = watcher::Result<Option<K>>> {
    let shown = events.scan(None, |listed, event| {
        future::ready(Some(match event {
            Ok(Event::Init) => {
                *listed = None;
                None
            }
            Ok(Event::InitApply(object)) => {
                *listed = Some(object);
                None
            }
            Ok(Event::InitDone) => Some(Ok(listed.take())),
            Ok(Event::Apply(object)) => Some(Ok(Some(object))),
            Ok(Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        }))
    });
    shown.filter_map(future::ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// How long the first `count` events take.
    async fn elapsed(events: Vec<fn() -> watcher::Result<Event<u8>>>, count: usize) -> Duration {
        let began = Instant::now();
        let events = stream::iter(events.into_iter().cycle().map(|event| event()));
        patient(events).take(count).count().await;
        began.elapsed()
    }

    #[tokio::test]
    async fn one_object_is_shown_after_lists_and_changes() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        let events = [
            Init,
            InitDone,
            Apply(1),
            Delete(1),
            Init,
            InitApply(2),
            InitDone,
            Init,
            InitDone,
        ];
        let interrupted = [
            Ok(Init),
            Ok(InitApply(3)),
            failure(),
            Ok(Init),
            Ok(InitDone),
        ];
        let events = stream::iter(events.into_iter().map(Ok).chain(interrupted));
        let shown: Vec<_> = one(events).map(Result::ok).collect().await;
        let expected = [
            Some(None),
            Some(Some(1)),
            Some(None),
            Some(Some(2)),
            Some(None),
            None,
            Some(None),
        ];
        assert_eq!(shown, expected);
    }

    fn failure() -> watcher::Result<Event<u8>> {
        Err(watcher::Error::NoResourceVersion)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_does_not_shorten_the_waits() {
        let listed: Vec<fn() -> _> = vec![|| Ok(Event::Init), || Ok(Event::InitDone), failure];
        let took = elapsed(listed, 30).await;
        assert!(took > Duration::from_mins(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_shortens_the_waits() {
        let changed: Vec<fn() -> _> = vec![|| Ok(Event::Apply(1)), failure];
        let took = elapsed(changed, 20).await;
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}
