//! Follows a watch: keeps what it brings, and says when that matters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brupop_runtime::errors::describe;
use brupop_runtime::{FailureLog, patient};
use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use brupop_core::cluster::{Cluster, Member};

/// Where the objects of a watch are kept.
pub(super) trait Kept<K>: Send + 'static {
    /// Takes the event in. Returns whether a decision could be another.
    fn take(&mut self, event: watcher::Event<K>) -> bool;
}

/// Keeps the objects of one kind in the cluster.
pub(super) struct InCluster<K> {
    cluster: Arc<Mutex<Cluster>>,
    /// Those of a list that is not complete yet.
    listed: Vec<K>,
}

pub(super) fn of<K>(cluster: &Arc<Mutex<Cluster>>) -> InCluster<K> {
    InCluster { cluster: Arc::clone(cluster), listed: vec![] }
}

impl<K: Member + Send + 'static> Kept<K> for InCluster<K> {
    fn take(&mut self, event: watcher::Event<K>) -> bool {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                false
            }
            watcher::Event::InitApply(object) => {
                self.listed.push(object);
                false
            }
            watcher::Event::InitDone => {
                cluster.replace(std::mem::take(&mut self.listed));
                true
            }
            watcher::Event::Apply(object) => object.put(&mut cluster),
            watcher::Event::Delete(object) => {
                K::remove(object.name(), &mut cluster);
                true
            }
        }
    }
}

/// Keeps the objects of one watch in a store of its own.
struct InStore<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    writer: Writer<K>,
    matters: fn(&K, &K) -> bool,
    revision: Arc<AtomicU64>,
}

impl<K> Kept<K> for InStore<K>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    fn take(&mut self, event: watcher::Event<K>) -> bool {
        let (stores, matters) = match &event {
            watcher::Event::Init | watcher::Event::InitApply(_) => (false, false),
            watcher::Event::InitDone | watcher::Event::Delete(_) => (true, true),
            watcher::Event::Apply(new) => {
                let old = self.store.get(&ObjectRef::from_obj(new));
                (true, old.is_none_or(|old| (self.matters)(&old, new)))
            }
        };
        self.writer.apply_watcher_event(&event);
        self.revision.fetch_add(stores.into(), Ordering::Relaxed);
        matters
    }
}

/// A watch with a store of its own.
pub(super) struct Watched<K: Resource<DynamicType = ()> + 'static> {
    pub(super) store: Store<K>,
    /// How many changes there were, also those that wake nobody.
    revision: Arc<AtomicU64>,
    watch: Watch,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    pub(super) fn start<S>(
        what: &'static str,
        begin: impl Fn() -> S + Send + 'static,
        matters: fn(&K, &K) -> bool,
        signals: Signals,
    ) -> Self
    where
        S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    {
        let (store, writer) = reflector::store();
        let revision = Arc::<AtomicU64>::default();
        let kept = InStore { store: store.clone(), writer, matters, revision: Arc::clone(&revision) };
        Self { store, revision, watch: Watch::start(what, begin, kept, signals) }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    pub(super) fn synced(&self) -> bool {
        self.watch.synced()
    }
}

/// What is notified of changes that matter, and counts failures.
pub(super) type Signals = (Arc<Notify>, Arc<AtomicU64>);

/// The task that follows a watch; dropping this ends it.
pub(super) struct Watch {
    /// How many lists were asked for: one at the start, and one more for each refresh.
    wanted: watch::Sender<u64>,
    /// The number of the last list that is complete; 0 before the first.
    pub(super) listed: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Follows the stream that `begin` makes, and a new one after each [`refresh`](Self::refresh).
    pub(super) fn start<K, S>(
        what: &'static str,
        begin: impl Fn() -> S + Send + 'static,
        kept: impl Kept<K>,
        (changed, failures): Signals,
    ) -> Self
    where
        K: Send + 'static,
        S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    {
        let (wanted, asked) = watch::channel(1);
        let (list_done, listed) = watch::channel(0);
        let follower = Follower { kept, changed, outage: Outage::new(what.to_owned(), failures), list_done };
        let task = tokio::spawn(follower.follow(begin, asked));
        Self { wanted, listed, task }
    }

    pub(super) fn refresh(&self) {
        self.wanted.send_modify(|times| *times += 1);
    }

    pub(super) fn synced(&self) -> bool {
        *self.listed.borrow() > 0
    }

    pub(super) fn is_fresh(&self) -> bool {
        *self.listed.borrow() == *self.wanted.borrow()
    }
}

struct Follower<P> {
    kept: P,
    changed: Arc<Notify>,
    outage: Outage,
    list_done: watch::Sender<u64>,
}

impl<P> Follower<P> {
    async fn follow<K, S>(mut self, begin: impl Fn() -> S, mut asked: watch::Receiver<u64>)
    where
        P: Kept<K>,
        S: Stream<Item = watcher::Result<watcher::Event<K>>>,
    {
        loop {
            let times = *asked.borrow_and_update();
            let mut events = std::pin::pin!(patient(begin()));
            loop {
                let event = tokio::select! {
                    anew = asked.changed() => match anew {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    event = events.next() => event,
                };
                match event {
                    Some(Ok(event)) => self.on_event(event, times),
                    Some(Err(error)) => self.outage.goes_on(&error),
                    None => return,
                }
            }
        }
    }

    fn on_event<K>(&mut self, event: watcher::Event<K>, times: u64)
    where
        P: Kept<K>,
    {
        if !matches!(event, watcher::Event::Init) {
            self.outage.is_over();
        }
        let done = matches!(event, watcher::Event::InitDone);
        let matters = self.kept.take(event);
        if done {
            self.list_done.send_replace(times);
        }
        if matters {
            self.changed.notify_one();
        }
    }
}

/// A watch that fails, until it yields something again.
pub(super) struct Outage {
    what: String,
    failures: Arc<AtomicU64>,
    log: FailureLog,
}

impl Outage {
    pub(super) fn new(what: String, failures: Arc<AtomicU64>) -> Self {
        Self { what, failures, log: FailureLog::default() }
    }

    /// Counts each failure, and logs the first of several in a row, and the first for each further reason.
    pub(super) fn goes_on(&mut self, error: &watcher::Error) {
        if let watcher::Error::WatchError(status) = error
            && status.code == 410
        {
            tracing::debug!(
                what = self.what,
                "the watch was interrupted for too long, and starts again from a new list"
            );
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let error = describe(error);
        if self.log.is_new(&error) {
            tracing::warn!(what = self.what, error, "a watch failed; trying again");
        }
    }

    /// The watch has yielded something; that a list begins is nothing yet, for each try begins with one.
    pub(super) fn is_over(&mut self) {
        if self.log.resolved() {
            tracing::info!(what = self.what, "the watch works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use std::sync::Mutex;

    fn node(name: &str) -> Node {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Node { metadata, ..Node::default() }
    }

    /// What is worked out from a store is made anew after every change, also after one that is worth no pass.
    #[tokio::test]
    async fn a_change_that_wakes_nobody_is_counted() {
        let (store, writer) = reflector::store();
        let revision = Arc::<AtomicU64>::default();
        let mut kept = InStore { store, writer, matters: |_, _| false, revision: Arc::clone(&revision) };
        let mut after = |event| (kept.take(event), revision.load(Ordering::Relaxed));
        assert_eq!(after(watcher::Event::Init), (false, 0));
        assert_eq!(after(watcher::Event::InitApply(node("a"))), (false, 0));
        assert_eq!(after(watcher::Event::InitDone), (true, 1));
        assert_eq!(after(watcher::Event::Apply(node("a"))), (false, 2));
        assert_eq!(after(watcher::Event::Delete(node("a"))), (true, 3));
    }

    /// A new leader must not act on what a dead connection left behind.
    #[tokio::test]
    async fn a_refresh_replaces_what_a_silent_watch_knows() {
        // Each list yields another node, and then nothing more, as a dead connection does.
        let begun = Mutex::new(0);
        let watch = move || {
            let mut begun = begun.lock().unwrap();
            *begun += 1;
            let list = watcher::Event::InitApply(node(&format!("node-{begun}")));
            let events = [watcher::Event::Init, list, watcher::Event::InitDone];
            stream::iter(events.map(Ok)).chain(stream::pending())
        };
        let changed = Arc::<Notify>::default();
        let signals = (Arc::clone(&changed), Arc::<AtomicU64>::default());
        let watched = Watched::start("Nodes", watch, |_, _| true, signals);
        let names =
            || watched.store.state().iter().map(|node| node.metadata.name.clone()).collect::<Vec<_>>();
        assert!(!watched.synced() && !watched.watch.is_fresh());
        changed.notified().await;
        assert!(watched.synced() && watched.watch.is_fresh());
        assert_eq!(names(), [Some("node-1".to_owned())]);
        watched.watch.refresh();
        assert!(watched.synced() && !watched.watch.is_fresh());
        changed.notified().await;
        assert!(watched.watch.is_fresh());
        assert_eq!(names(), [Some("node-2".to_owned())]);
    }
}
