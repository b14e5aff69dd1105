//! Lists, and watches that begin with a list. A list is one request, whose answer is read object by object as it arrives.
//!
//! kube's own have the whole answer in memory before any of it is read, so they ask for pages. That suits neither side here.
//! An API server finds the pods of a node by an index, but for a page that continues it looks through all pods of the cluster:
//! seconds where there are many. And anybody with a namespace can fill a page with objects of more than a megabyte each.
//! Streaming lists would suit both, but Kubernetes 1.33, which is supported, serves none by default.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures::Stream;
use kube::api::{Api, ListParams};
use kube::core::ObjectList;
use kube::core::request::Request;
use kube::runtime::watcher::{self, Event};
use kube::{Error, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use arriving::Arriving;
use changes::Changes;
use cutter::Cutter;

mod arriving;
mod changes;
mod cutter;

/// The longest object that is read, in bytes: ten times what etcd stores by default, for JSON may be six times as long.
const LONGEST: usize = 16 << 20;

/// An object that has more bytes is large.
const LARGE: usize = 64 << 10;

/// Longest time that a list takes, once its turn has come, or that a watch takes to begin: API servers give up after as long.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The code of the answer if a version is too old.
const GONE: u16 = 410;

/// Why an answer is none.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("an object has more than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("the answer did not arrive within {} s", TIMEOUT.as_secs())]
    Late,
    #[error("the answer is a part of the list")]
    Part,
    #[error("the answer has something else than objects")]
    NotObjects,
    #[error("the list has no version")]
    NoVersion,
    #[error("the watch ended at once")]
    ShortWatch,
}

impl From<AnswerError> for Error {
    fn from(error: AnswerError) -> Self {
        Self::Service(Box::new(error))
    }
}

/// Lists all objects that these parameters select.
///
/// # Errors
/// As [`Listing::begin`] and [`Listing::next`].
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> kube::Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned,
{
    let (mut listing, mut items) = (Listing::begin(api, params).await?, vec![]);
    while let Some(object) = listing.next().await? {
        items.push(object);
    }
    Ok(items)
}

/// A list that arrives. Nothing is kept of it here but what has arrived and was not taken yet, and no more arrives than that.
pub struct Listing<K> {
    objects: Arriving<K>,
    /// When it is late.
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
        if list
            .metadata
            .continue_
            .is_some_and(|token| !token.is_empty())
        {
            return Err(AnswerError::Part.into());
        }
        if list.items.len() != self.objects.count {
            return Err(AnswerError::NotObjects.into());
        }
        let version = list
            .metadata
            .resource_version
            .filter(|version| !version.is_empty());
        version.ok_or_else(|| AnswerError::NoVersion.into())
    }
}

async fn until<T>(end: Instant, answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout_at(end, answer)
        .await
        .unwrap_or_else(|_| Err(AnswerError::Late.into()))
}

/// As kube's `watcher`, with a [`Listing`] for each list: all objects that these parameters select, and then each change. It does
/// not end, and does not wait after a failure; see [`patient`](crate::patient).
pub fn list_and_watch<K>(
    api: Api<K>,
    params: ListParams,
) -> impl Stream<Item = watcher::Result<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    // Its turn always comes.
    list_and_watch_in_turn(api, params, Arc::new(Semaphore::new(1)))
}

/// Lists and watches, beside others with this semaphore, each of whose permits lets one of them list.
pub fn list_and_watch_in_turn<K>(
    api: Api<K>,
    params: ListParams,
    turns: Arc<Semaphore>,
) -> impl Stream<Item = watcher::Result<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    stream! {
        // All changes up to this version are known. Without one, nothing is, or what was known is too old to go on from.
        let mut known: Option<String> = None;
        loop {
            let Some(version) = &known else {
                yield Ok(Event::Init);
                // Nobody closes it, so this is no error.
                let turn = turns.acquire().await;
                let end = match Listing::begin(&api, &params).await {
                    Err(error) => Err(error),
                    Ok(mut listing) => loop {
                        match listing.next().await {
                            Ok(Some(object)) => yield Ok(Event::InitApply(object)),
                            Ok(None) => break Ok(listing.version),
                            Err(error) => break Err(error),
                        }
                    },
                };
                drop(turn);
                yield match end {
                    Ok(version) => {
                        known = version;
                        Ok(Event::InitDone)
                    }
                    Err(error) => Err(watcher::Error::InitialListFailed(error)),
                };
                continue;
            };
            match Changes::since(&api, &params, version).await {
                Ok(mut changes) => {
                    while let Some(event) = changes.next(&mut known).await {
                        yield event;
                    }
                }
                Err(error) => {
                    known = known.filter(|_| !matches!(&error, Error::Api(status) if status.code == GONE));
                    yield Err(watcher::Error::WatchStartFailed(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
