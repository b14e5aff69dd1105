//! Lists, and watches that begin with a list. A list is one request, whose answer is read object by object as it arrives.
//!
//! kube's own have the whole answer in memory before any of it is read, so they ask for pages. That suits neither side here.
//! An API server finds the pods of a node by an index, but for a page that continues it looks through all pods of the cluster:
//! seconds where there are many. And anybody with a namespace can fill a page with objects of more than a megabyte each.
//! Streaming lists would suit both, but Kubernetes 1.33, which is supported, serves none by default.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, Stream, stream};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::ObjectList;
use kube::core::request::Request;
use kube::runtime::watcher::{self, Event};
use kube::{Error, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use body::{Body, Room};
use cutter::Cutter;
use lines::Lines;

mod body;
mod cutter;
mod lines;

/// The longest object that is read, in bytes: ten times what etcd stores by default, for JSON may be six times as long.
const LONGEST: usize = 16 << 20;

/// Longest time that a list takes, once its turn has come, or that a watch takes to begin: API servers give up after as long.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The API server ends a watch after so many seconds.
const WATCH_SECONDS: u32 = 290;
/// A watch that should have ended for so long, and has not, has lost its connection.
const OVERDUE: Duration = Duration::from_secs(5);
/// A watch that ends sooner and has brought nothing has failed, whatever its end looks like.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);

/// Why an answer is none.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("an object has more than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("the answer did not arrive within {} s", TIMEOUT.as_secs())]
    Late,
    #[error("the answer is a part of the list")]
    Part,
    #[error("the list has something else than objects")]
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
    body: Body,
    cutter: Cutter,
    room: Room,
    found: VecDeque<K>,
    /// How many objects have arrived.
    count: usize,
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
        let request = Request::new(api.resource_url()).list(params).map_err(Error::BuildRequest)?;
        let body = until(end, body::body(api.clone().into_client(), request)).await?;
        let (cutter, room, found) = (Cutter::default(), Room::default(), VecDeque::new());
        Ok(Self { body, cutter, room, found, count: 0, end, version: None })
    }

    /// The next object. `None` is the end of the list, which is whole then, and only then.
    ///
    /// # Errors
    /// The answer is not a whole list, because it breaks off, is late, or is a page; an object is of another kind, or larger than
    /// any that API servers store.
    pub async fn next(&mut self) -> kube::Result<Option<K>> {
        loop {
            if let Some(object) = self.found.pop_front() {
                return Ok(Some(object));
            }
            if self.version.is_some() {
                return Ok(None);
            }
            until(self.end, self.read()).await?;
        }
    }

    /// Reads what has arrived.
    async fn read(&mut self) -> kube::Result<()> {
        let Self { body, cutter, room, found, count, .. } = self;
        let bytes = body.fill_buf().await.map_err(|error| Error::Service(error.into()))?;
        if bytes.is_empty() {
            self.version = Some(self.version()?);
            return Ok(());
        }
        let length = bytes.len();
        cutter.cut(bytes, |object| {
            *count += 1;
            found.push_back(serde_json::from_slice(object).map_err(Error::SerdeError)?);
            Ok(())
        })?;
        body.consume_unpin(length);
        room.keep(cutter.waiting()).await;
        Ok(())
    }

    /// The version of the list, all of which has arrived.
    fn version(&self) -> kube::Result<String> {
        let list: ObjectList<IgnoredAny> =
            serde_json::from_slice(self.cutter.rest()).map_err(Error::SerdeError)?;
        if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            return Err(AnswerError::Part.into());
        }
        if list.items.len() != self.count {
            return Err(AnswerError::NotObjects.into());
        }
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        version.ok_or_else(|| AnswerError::NoVersion.into())
    }
}

async fn until<T>(end: Instant, answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout_at(end, answer).await.unwrap_or_else(|_| Err(AnswerError::Late.into()))
}

/// As kube's `watcher`, with a [`Listing`] for each list: all objects that these parameters select, and then each change. It does
/// not end, and does not wait after a failure; see [`patient`](crate::patient).
pub fn list_and_watch<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = watcher::Result<Event<K>>>
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
    let watch = WatchParams {
        label_selector: params.label_selector.clone(),
        field_selector: params.field_selector.clone(),
        ..WatchParams::default().timeout(WATCH_SECONDS)
    };
    let source = Source { api, list: params, watch, turns };
    stream::unfold((source, State::Unknown), async |(source, mut state)| {
        loop {
            let (event, next) = source.step(state).await;
            state = next;
            if let Some(event) = event {
                return Some((event, (source, state)));
            }
        }
    })
}

/// What is listed and watched.
struct Source<K> {
    api: Api<K>,
    list: ListParams,
    watch: WatchParams,
    turns: Arc<Semaphore>,
}

enum State<K> {
    /// Nothing is known, or what was known is too old to go on from.
    Unknown,
    /// A list is to be asked for.
    Waiting,
    /// It arrives. It is its turn as long as it does.
    Listing(Box<Listing<K>>, Option<OwnedSemaphorePermit>),
    /// All changes up to this version are known.
    Known { version: String },
    /// All changes up to now are known, and further ones come from here.
    Watching(Watching<K>),
}

struct Watching<K> {
    changes: Lines<WatchEvent<K>>,
    began: Instant,
    /// Has it brought a later version?
    brought: bool,
    /// All changes up to this version are known.
    version: String,
}

type Step<K> = (Option<watcher::Result<Event<K>>>, State<K>);

impl<K> Source<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn step(&self, state: State<K>) -> Step<K> {
        match state {
            State::Unknown => (Some(Ok(Event::Init)), State::Waiting),
            State::Waiting => {
                // Nobody closes it, so this is no error.
                let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
                match Listing::begin(&self.api, &self.list).await {
                    Ok(listing) => (None, State::Listing(Box::new(listing), turn)),
                    Err(error) => (Some(Err(watcher::Error::InitialListFailed(error))), State::Unknown),
                }
            }
            State::Listing(mut listing, turn) => match listing.next().await {
                Ok(Some(object)) => (Some(Ok(Event::InitApply(object))), State::Listing(listing, turn)),
                Ok(None) => {
                    (Some(Ok(Event::InitDone)), State::Known { version: listing.version.unwrap_or_default() })
                }
                Err(error) => (Some(Err(watcher::Error::InitialListFailed(error))), State::Unknown),
            },
            State::Known { version } => match self.changes_since(&version).await {
                Ok(changes) => {
                    let began = Instant::now();
                    (None, State::Watching(Watching { changes, began, brought: false, version }))
                }
                Err(error) => {
                    let gone = matches!(&error, Error::Api(status) if status.code == 410);
                    let state = if gone { State::Unknown } else { State::Known { version } };
                    (Some(Err(watcher::Error::WatchStartFailed(error))), state)
                }
            },
            State::Watching(watching) => watching.step().await,
        }
    }

    async fn changes_since(&self, version: &str) -> kube::Result<Lines<WatchEvent<K>>> {
        let request = Request::new(self.api.resource_url()).watch(&self.watch, version);
        let request = request.map_err(Error::BuildRequest)?;
        let body = body::body(self.api.clone().into_client(), request);
        Ok(Lines::of(until(Instant::now() + TIMEOUT, body).await?))
    }
}

impl<K: Resource + DeserializeOwned> Watching<K> {
    async fn step(mut self) -> Step<K> {
        let end = self.began + Duration::from_secs(WATCH_SECONDS.into()) + OVERDUE;
        match timeout_at(end, self.changes.next()).await.ok().flatten() {
            Some(change) => self.go_on(change),
            // Otherwise whatever ends it would be asked again and again, without a pause.
            None if !self.brought && self.began.elapsed() < SHORTEST_WATCH => {
                let error = watcher::Error::WatchFailed(AnswerError::ShortWatch.into());
                (Some(Err(error)), State::Known { version: self.version })
            }
            None => (None, State::Known { version: self.version }),
        }
    }

    fn go_on(self, change: kube::Result<WatchEvent<K>>) -> Step<K> {
        let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
        match change {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                self.until(version(&object), Some(Event::Apply(object)))
            }
            Ok(WatchEvent::Deleted(object)) => self.until(version(&object), Some(Event::Delete(object))),
            Ok(WatchEvent::Bookmark(mark)) => self.until(mark.metadata.resource_version, None),
            Ok(WatchEvent::Error(status)) => {
                let gone = status.code == 410;
                let error = watcher::Error::WatchError(status);
                (Some(Err(error)), if gone { State::Unknown } else { State::Watching(self) })
            }
            // The connection broke; it ends next.
            Err(error @ Error::ReadEvents(_)) => {
                (Some(Err(watcher::Error::WatchFailed(error))), State::Watching(self))
            }
            // A line came that is no change, or one that nobody can tell.
            Err(error) => (Some(Err(watcher::Error::WatchFailed(error))), State::Unknown),
        }
    }

    /// This is told, and then all changes up to this version are known.
    fn until(self, version: String, event: Option<Event<K>>) -> Step<K> {
        if version.is_empty() {
            return (Some(Err(watcher::Error::NoResourceVersion)), State::Unknown);
        }
        let brought = self.brought || version != self.version;
        (event.map(Ok), State::Watching(Self { brought, version, ..self }))
    }
}

#[cfg(test)]
mod tests;
