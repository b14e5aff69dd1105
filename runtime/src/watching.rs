//! Watches that wait after a failure, longer after each.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_stream::{stream, try_stream};
use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{self, Config, DefaultBackoff, Event};
use kube::{Api, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::listing::{Beginnings, list_and_watch};

/// The wait if the back-off gives none, which it does not say it could.
const LONGEST: Duration = Duration::from_secs(30);
/// Longer than any wait, which jitter may double.
const FORGOTTEN: Duration = Duration::from_secs(75);

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
    let named = named(name);
    let beginnings = Arc::new(Beginnings::new(1));
    patient(move || {
        object_or_none(list_and_watch(
            api.clone(),
            named.clone(),
            Arc::clone(&beginnings),
        ))
    })
}

/// Yields nothing before all objects have come: the first events may be old, such as a grant and a claim that were withdrawn.
fn object_or_none<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) -> impl Stream<Item = watcher::Result<Option<K>>> {
    try_stream! {
        let (mut object, mut all_brought) = (None, false);
        for await event in events {
            match event? {
                Event::Init => {}
                Event::InitApply(now) | Event::Apply(now) => object = Some(now),
                Event::Delete(_) => object = None,
                Event::InitDone => all_brought = true,
            }
            if all_brought {
                yield object.take();
            }
        }
    }
}

/// Of all objects of a kind, the one of this name.
pub fn only(name: &str) -> Config {
    Config::default().fields(&by_name(name))
}

/// A list of the object of this name.
pub fn named(name: &str) -> ListParams {
    ListParams::default().fields(&by_name(name))
}

fn by_name(name: &str) -> String {
    format!("metadata.name={name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
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

    /// The first events may be a grant and a claim that were withdrawn.
    #[tokio::test]
    async fn nothing_is_told_before_it_is_known_to_be_new() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        for (events, told) in [
            (vec![Init, InitApply(1), InitApply(2)], vec![]),
            (
                vec![Init, InitApply(1), InitApply(2), InitDone],
                vec![Some(2)],
            ),
            (vec![Init, InitApply(1), Delete(1), InitDone], vec![None]),
            (
                vec![Init, InitDone, Apply(3), Delete(3)],
                vec![None, Some(3), None],
            ),
        ] {
            let events = object_or_none(stream::iter(events.into_iter().map(Ok)));
            let events: Vec<_> = events.map(Result::unwrap).collect().await;
            assert_eq!(events, told);
        }
        let fails = object_or_none(stream::iter([Ok(Init), failure(), Ok(InitDone)]));
        assert!(fails.map(|event| event.is_err()).collect::<Vec<_>>().await == [true]);
    }
}
