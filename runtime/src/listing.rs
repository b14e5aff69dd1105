//! Lists, and watches that begin with a list. A list is one request, whose answer is read object by object as it arrives.
//!
//! kube's own have the whole answer in memory before any of it is read, so they ask for pages. That suits neither side here.
//! An API server finds the pods of a node by an index, but for a page that continues it looks through all pods of the cluster:
//! seconds where there are many. And anybody with a namespace can fill a page with objects of more than a megabyte each.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;
use std::vec;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _, stream};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::ObjectList;
use kube::core::request::Request;
use kube::runtime::watcher::{self, Event};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use cutter::Cutter;

mod cutter;

/// The API server ends a watch after so many seconds.
const WATCH_SECONDS: u32 = 290;
/// A watch that should have ended for so long, and has not, has lost its connection.
const OVERDUE: Duration = Duration::from_secs(5);

/// Lists all objects that these parameters select, without pages, as they are now.
///
/// # Errors
/// The API server refuses it or cannot be reached, its answer breaks off, or an object is larger than any that it could store.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> kube::Result<ObjectList<K>>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list(params).map_err(Error::BuildRequest)?;
    let mut body = pin!(api.clone().into_client().request_stream(request).await?);
    let (mut cutter, mut items) = (Cutter::default(), vec![]);
    loop {
        let bytes = body.fill_buf().await.map_err(|error| Error::Service(error.into()))?;
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        cutter.cut(bytes, |object| {
            items.push(serde_json::from_slice(object).map_err(Error::SerdeError)?);
            Ok(())
        })?;
        body.consume_unpin(length);
    }
    let list: ObjectList<K> = serde_json::from_slice(&cutter.rest()).map_err(Error::SerdeError)?;
    Ok(ObjectList { items, ..list })
}

/// As kube's `watcher`, with [`list`] for its lists: all objects that these parameters select, and then each change. It does
/// not end, and does not wait after a failure; see [`patient`](crate::patient).
pub fn list_and_watch<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = watcher::Result<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watch = WatchParams {
        label_selector: params.label_selector.clone(),
        field_selector: params.field_selector.clone(),
        ..WatchParams::default().timeout(WATCH_SECONDS)
    };
    stream::unfold((api, params, watch, State::Unknown), async |(api, params, watch, mut state)| {
        loop {
            let (event, next) = step(&api, &params, &watch, state).await;
            state = next;
            if let Some(event) = event {
                return Some((event, (api, params, watch, state)));
            }
        }
    })
}

enum State<K> {
    /// Nothing is known, or what was known is too old to go on from.
    Unknown,
    /// A list is to be asked for.
    Listing,
    /// A list is there, of this version, and these of its objects are still to be told.
    Listed { left: vec::IntoIter<K>, version: String },
    /// All changes up to this version are known.
    Known { version: String },
    /// The same, and further ones come from here.
    Watching { version: String, changes: BoxStream<'static, kube::Result<WatchEvent<K>>> },
}

type Step<K> = (Option<watcher::Result<Event<K>>>, State<K>);

async fn step<K>(api: &Api<K>, params: &ListParams, watch: &WatchParams, state: State<K>) -> Step<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match state {
        State::Unknown => (Some(Ok(Event::Init)), State::Listing),
        State::Listing => match list(api, params).await {
            Ok(ObjectList { items, metadata, .. }) => match metadata.resource_version {
                Some(version) if !version.is_empty() => {
                    (None, State::Listed { left: items.into_iter(), version })
                }
                _ => (Some(Err(watcher::Error::NoResourceVersion)), State::Unknown),
            },
            Err(error) => (Some(Err(watcher::Error::InitialListFailed(error))), State::Unknown),
        },
        State::Listed { mut left, version } => match left.next() {
            Some(object) => (Some(Ok(Event::InitApply(object))), State::Listed { left, version }),
            None => (Some(Ok(Event::InitDone)), State::Known { version }),
        },
        State::Known { version } => match api.watch(watch, &version).await {
            Ok(changes) => (None, State::Watching { version, changes: changes.boxed() }),
            Err(error) => {
                let gone = matches!(&error, Error::Api(status) if status.code == 410);
                let state = if gone { State::Unknown } else { State::Known { version } };
                (Some(Err(watcher::Error::WatchStartFailed(error))), state)
            }
        },
        State::Watching { version, mut changes } => {
            let longest = Duration::from_secs(WATCH_SECONDS.into()) + OVERDUE;
            match timeout(longest, changes.next()).await.ok().flatten() {
                Some(change) => changed(change, version, changes),
                None => (None, State::Known { version }),
            }
        }
    }
}

/// What a watch has brought, and how it goes on.
fn changed<K: Resource>(
    change: kube::Result<WatchEvent<K>>,
    version: String,
    changes: BoxStream<'static, kube::Result<WatchEvent<K>>>,
) -> Step<K> {
    let told = |event: fn(K) -> Event<K>, object: K, changes| match object.meta().resource_version.clone() {
        Some(version) if !version.is_empty() => {
            (Some(Ok(event(object))), State::Watching { version, changes })
        }
        _ => (Some(Err(watcher::Error::NoResourceVersion)), State::Unknown),
    };
    match change {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => told(Event::Apply, object, changes),
        Ok(WatchEvent::Deleted(object)) => told(Event::Delete, object, changes),
        Ok(WatchEvent::Bookmark(mark)) => {
            (None, State::Watching { version: mark.metadata.resource_version, changes })
        }
        Ok(WatchEvent::Error(status)) => {
            let state =
                if status.code == 410 { State::Unknown } else { State::Watching { version, changes } };
            (Some(Err(watcher::Error::WatchError(status))), state)
        }
        Err(error) => (Some(Err(watcher::Error::WatchFailed(error))), State::Watching { version, changes }),
    }
}

#[cfg(test)]
mod tests;
