//! Lists of tenants' objects, and watches that begin with all of them. Each is one request, whose answer is read object by object
//! as it arrives.
//!
//! kube's own, which serve for all other objects, have the whole answer in memory before any of it is read, so they ask for pages. That suits neither side here.
//! An API server finds the pods of a node by an index, but for a page that continues it looks through all pods of the cluster:
//! seconds where there are many. And anybody with a namespace can fill a page with objects of more than a megabyte each.
//!
//! A watch that begins with all objects names no version, so the API server first makes sure that its cache is as new as etcd.
//! kube's own (`streaming_lists`) names version 0, and gets what the cache has, however old that is. An API server that does not
//! serve it, as those of Kubernetes 1.33 by default, or whose cache does not get there in time, is asked for lists from then on.
//! An API server looks through all pods of the cluster for such a watch: where many begin at once, those that wait long for a turn ask for lists.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_stream::try_stream;
use futures::Stream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::ObjectList;
use kube::core::request::Request;
use kube::runtime::watcher::{self, Event};
use kube::{Error, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::waits::jittered;
use arriving::Arriving;
use cutter::Cutter;

mod arriving;
mod cutter;

/// The longest object that is read, in bytes: ten times what etcd stores by default, for JSON may be six times as long.
const LONGEST: usize = 16 << 20;

/// An object that has more bytes is large.
const LARGE: usize = 64 << 10;

/// Longest time that a list takes, once its turn has come, or that a watch takes to begin: API servers give up after as long.
const TIMEOUT: Duration = Duration::from_mins(1);
/// A watch that has waited for its turn for this time begins with a list, because too many begin at once.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// The API server ends a watch after about this time.
const WATCH: Duration = Duration::from_mins(50);
/// Longest silence of a watch; then it is requested again. Even if no object changes, etcd reports its progress to API servers every
/// ten minutes by default, and they send a bookmark.
const SILENCE: Duration = Duration::from_mins(11);
/// A watch that ends sooner and has brought nothing has failed, whatever its end looks like.
const SHORTEST: Duration = Duration::from_secs(5);

/// The bookmark after the objects with which a watch begins.
const ALL_BROUGHT: &str = "k8s.io/initial-events-end";

const LATE: &str = "the answer did not arrive within a minute";
const ENDED_EARLY: &str = "the watch ended early";
const NOT_OBJECTS: &str = "the answer contains something other than objects";

/// The answer is none, for this reason.
fn invalid(why: &'static str) -> Error {
    Error::Service(why.into())
}

/// A list that arrives. Nothing is kept of it here but what has arrived and was not taken yet, and no more arrives than that.
pub struct Listing<K> {
    objects: Arriving<K>,
    end: Instant,
    version: Option<String>,
}

impl<K> Listing<K>
where
    K: Resource + Clone + DeserializeOwned,
{
    /// Asks for all objects that these parameters select, as they are at some moment from now on.
    ///
    /// # Errors
    /// The API server refuses it, cannot be reached, or does not answer in time.
    pub async fn begin(api: &Api<K>, params: &ListParams) -> kube::Result<Self> {
        let end = Instant::now() + TIMEOUT;
        let request = Request::new(api.resource_url())
            .list(params)
            .map_err(Error::BuildRequest)?;
        let objects = Arriving::of(api.clone().into_client(), request, Cutter::of_list());
        Ok(Self {
            objects: until(end, objects).await?,
            end,
            version: None,
        })
    }

    /// The next object. `None` is the end of the list, which is whole then, and only then.
    ///
    /// # Errors
    /// The answer is not a whole list, because it breaks off, is late, or is a page; an object is of another kind, or larger than
    /// any that API servers store.
    pub async fn next(&mut self) -> kube::Result<Option<K>> {
        let object = until(self.end, self.objects.next()).await?;
        if object.is_none() {
            self.version = Some(self.version()?);
        }
        Ok(object)
    }

    /// The version of the list, all of which has arrived.
    fn version(&self) -> kube::Result<String> {
        let list: ObjectList<IgnoredAny> =
            serde_json::from_slice(self.objects.cutter.rest()).map_err(Error::SerdeError)?;
        let metadata = list.metadata;
        if metadata.continue_.is_some_and(|it| !it.is_empty()) {
            return Err(invalid("the answer is a part of the list"));
        }
        if list.items.len() != self.objects.count {
            return Err(invalid(NOT_OBJECTS));
        }
        let version = metadata.resource_version.filter(|it| !it.is_empty());
        version.ok_or_else(|| invalid("the list has no resourceVersion"))
    }
}

async fn until<T>(end: Instant, answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout_at(end, answer)
        .await
        .unwrap_or_else(|_| Err(invalid(LATE)))
}

/// Limits how many watches begin at once, and remembers whether the API server refused to send the objects with a watch.
pub struct Beginnings {
    turns: Semaphore,
    need_lists: AtomicBool,
}

impl Beginnings {
    /// At most `at_once` watches begin at the same time; others wait.
    pub fn new(at_once: usize) -> Self {
        Self {
            turns: Semaphore::new(at_once),
            need_lists: AtomicBool::new(false),
        }
    }

    /// A watch that begins with all objects; `None` if they have to be listed.
    async fn all_and_changes<K>(
        &self,
        api: &Api<K>,
        params: &ListParams,
    ) -> kube::Result<Option<Changes<K>>>
    where
        K: Resource + Clone + DeserializeOwned,
    {
        if self.need_lists.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match changes(api, params, None).await {
            Err(Error::Api(status)) if status.is_invalid() => {
                self.need_lists.store(true, Ordering::Relaxed);
                Ok(None)
            }
            changes => changes.map(Some),
        }
    }
}

/// As kube's `watcher`: all objects that these parameters select, and then each change. An object may be deleted before all have
/// come. The stream ends after a failure, and [`patient`](crate::patient) begins another one.
pub fn list_and_watch<K>(
    api: Api<K>,
    params: ListParams,
    beginnings: Arc<Beginnings>,
) -> impl Stream<Item = watcher::Result<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    try_stream! {
        yield Event::Init;
        let asked = Instant::now();
        // Nobody closes it, so this is no error.
        let mut turn = beginnings.turns.acquire().await.ok();
        let end = Instant::now() + TIMEOUT;
        let (mut opened, mut version) = (None, String::new());
        if asked.elapsed() < LONG_WAIT {
            opened = beginnings.all_and_changes(&api, &params).await.map_err(watcher::Error::WatchStartFailed)?;
        }
        let mut all_brought = opened.is_none();
        if all_brought {
            let mut listing = Listing::begin(&api, &params).await.map_err(watcher::Error::InitialListFailed)?;
            while let Some(object) = listing.next().await.map_err(watcher::Error::InitialListFailed)? {
                yield Event::InitApply(object);
            }
            version = listing.version.unwrap_or_default();
            drop(turn.take());
            yield Event::InitDone;
        }
        loop {
            let mut changes = match opened.take() {
                Some(changes) => changes,
                None => changes(&api, &params, Some(&version)).await.map_err(watcher::Error::WatchStartFailed)?,
            };
            let (began, mut has_brought) = (Instant::now(), false);
            let silence = |all_brought| if all_brought { Instant::now() + SILENCE } else { end };
            while let Some(change) = timeout_at(silence(all_brought), changes.next())
                .await
                .unwrap_or(Ok(None))
                .map_err(watcher::Error::WatchFailed)?
            {
                let (next, event) = match change {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) if all_brought => (version_of(&object), Some(Event::Apply(object))),
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (version_of(&object), Some(Event::InitApply(object))),
                    WatchEvent::Deleted(object) => (version_of(&object), Some(Event::Delete(object))),
                    WatchEvent::Bookmark(mark) if !all_brought && mark.metadata.annotations.contains_key(ALL_BROUGHT) => {
                        all_brought = true;
                        drop(turn.take());
                        (mark.metadata.resource_version, Some(Event::InitDone))
                    }
                    WatchEvent::Bookmark(mark) => (mark.metadata.resource_version, None),
                    WatchEvent::Error(status) => {
                        beginnings.need_lists.fetch_or(!all_brought, Ordering::Relaxed);
                        Err(watcher::Error::WatchError(status))?
                    }
                };
                if next.is_empty() {
                    Err(watcher::Error::NoResourceVersion)?;
                }
                has_brought |= next != version;
                version = next;
                if let Some(event) = event {
                    yield event;
                }
            }
            // Otherwise whatever ends it would be asked again and again, without a pause.
            if !all_brought || (!has_brought && began.elapsed() < SHORTEST) {
                Err(watcher::Error::WatchFailed(invalid(ENDED_EARLY)))?;
            }
        }
    }
}

type Changes<K> = Arriving<WatchEvent<K>>;

/// Asks for the changes of objects that these parameters select, from this version on; without one, for the objects and then
/// their changes.
async fn changes<K>(
    api: &Api<K>,
    params: &ListParams,
    version: Option<&str>,
) -> kube::Result<Changes<K>>
where
    K: Resource + Clone + DeserializeOwned,
{
    let watch = WatchParams {
        label_selector: params.label_selector.clone(),
        field_selector: params.field_selector.clone(),
        send_initial_events: version.is_none(),
        timeout: u32::try_from(jittered(WATCH, 0.2).as_secs()).ok(),
        ..WatchParams::default()
    };
    let request = Request::new(api.resource_url())
        .watch(&watch, version.unwrap_or_default())
        .map_err(Error::BuildRequest)?;
    let events = Arriving::of(api.clone().into_client(), request, Cutter::of_watch());
    until(Instant::now() + TIMEOUT, events).await
}

fn version_of(object: &impl Resource) -> String {
    object.meta().resource_version.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
