//! The changes that a watch brings.

use super::arriving::Arriving;
use super::cutter::Cutter;
use super::{AnswerError, GONE, TIMEOUT, until};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::request::Request;
use kube::runtime::watcher::{self, Event};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The API server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 290;
/// A watch that should have ended for so long, and has not, has lost its connection.
const OVERDUE: Duration = Duration::from_secs(5);
/// A watch that ends sooner and has brought nothing has failed, whatever its end looks like.
const SHORTEST: Duration = Duration::from_secs(5);

pub(super) struct Changes<K> {
    events: Arriving<WatchEvent<K>>,
    began: Instant,
    /// Has it brought a later version, or failed already? Then it may end at any time.
    may_end: bool,
}

impl<K> Changes<K>
where
    K: Resource + Clone + DeserializeOwned,
{
    /// Asks for the changes of objects that these parameters select, from this version on.
    pub(super) async fn since(
        api: &Api<K>,
        params: &ListParams,
        version: &str,
    ) -> kube::Result<Self> {
        let watch = WatchParams {
            label_selector: params.label_selector.clone(),
            field_selector: params.field_selector.clone(),
            ..WatchParams::default().timeout(WATCH_SECONDS)
        };
        let request = Request::new(api.resource_url())
            .watch(&watch, version)
            .map_err(Error::BuildRequest)?;
        let events = Arriving::of(api.clone().into_client(), request, Cutter::of_watch());
        let events = until(Instant::now() + TIMEOUT, events).await?;
        Ok(Self {
            events,
            began: Instant::now(),
            may_end: false,
        })
    }

    /// The next change, after which all up to `known` are known; without a version, what was known is too old to go on from.
    /// `None` is the end.
    pub(super) async fn next(
        &mut self,
        known: &mut Option<String>,
    ) -> Option<watcher::Result<Event<K>>> {
        let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
        let end = self.began + Duration::from_secs(WATCH_SECONDS.into()) + OVERDUE;
        while known.is_some() {
            let (version, event) = match timeout_at(end, self.events.next())
                .await
                .unwrap_or(Ok(None))
            {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    (version(&object), Some(Event::Apply(object)))
                }
                Ok(Some(WatchEvent::Deleted(object))) => {
                    (version(&object), Some(Event::Delete(object)))
                }
                Ok(Some(WatchEvent::Bookmark(mark))) => (mark.metadata.resource_version, None),
                Ok(Some(WatchEvent::Error(status))) => {
                    known.take_if(|_| status.code == GONE);
                    return Some(Err(watcher::Error::WatchError(status)));
                }
                // Otherwise whatever ends it would be asked again and again, without a pause.
                Ok(None) if !self.may_end && self.began.elapsed() < SHORTEST => {
                    self.may_end = true;
                    return Some(Err(watcher::Error::WatchFailed(
                        AnswerError::ShortWatch.into(),
                    )));
                }
                Ok(None) => return None,
                Err(error) => {
                    // If the connection broke, the end is next. Else something came that is no change, or one that nobody can tell.
                    known.take_if(|_| !matches!(error, Error::ReadEvents(_)));
                    return Some(Err(watcher::Error::WatchFailed(error)));
                }
            };
            if version.is_empty() {
                *known = None;
                return Some(Err(watcher::Error::NoResourceVersion));
            }
            self.may_end |= known.as_ref() != Some(&version);
            *known = Some(version);
            if event.is_some() {
                return event.map(Ok);
            }
        }
        None
    }
}
