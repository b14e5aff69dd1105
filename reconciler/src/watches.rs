//! Watches, each kept in a store; a change that matters wakes the reconciler.

#[cfg(test)]
mod unreadable;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brupop_api::{BottlerocketShadow, Item, names};
use brupop_runtime::errors::describe;
use brupop_runtime::patient;
use futures::{Stream, StreamExt as _};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use brupop_core::budgets::{self, Budgets};
use brupop_core::cluster::{Cluster, Entry, Member};
use brupop_core::objects::{Budget, Ledger, PodItem, WatchedNode};
pub use workloads::WorkloadWatches;

/// The pods of at most so many nodes are watched at once. Further nodes are drained later.
const MAX_POD_WATCHES: usize = 256;

/// Objects per page of a list. A page is in memory as a whole before it is read, and each of its objects may have more
/// than a megabyte.
pub(crate) const PAGE: u32 = 100;
/// The same for kinds that anybody with a namespace can make.
pub(crate) const PAGE_OF_FOREIGN: u32 = 20;

/// The watches that keep the cluster up to date.
pub struct Watches {
    cluster: Arc<Mutex<Cluster>>,
    nodes: Watch,
    shadows: Watch,
    fleet: Watch,
    agents: Watch,
    /// Notified of each change that matters, except those of nodes' pods.
    pub changed: Arc<Notify>,
    /// Notified of each change of a pod on a node whose pods are watched.
    pub pods_changed: Arc<Notify>,
    /// How many times a watch failed.
    pub failures: Arc<AtomicU64>,
}

impl Watches {
    /// Begins to watch all Nodes, and the shadows, the fleet and the agents' pods of our namespace.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let (changed, failures) = (Arc::<Notify>::default(), Arc::<AtomicU64>::default());
        let signals = || (Arc::clone(&changed), Arc::clone(&failures));
        let everything = || watcher::Config::default().page_size(PAGE);
        let nodes = Api::<WatchedNode>::all(client.clone());
        let shadows = Api::<Item<BottlerocketShadow>>::namespaced(client.clone(), namespace);
        let agents = Api::<PodItem>::namespaced(client.clone(), namespace);
        let of_agents = foreign().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let fleet = Api::namespaced(client.clone(), namespace);
        let of_fleet = everything().fields(&format!("metadata.name={}", names::FLEET));
        let cluster = Arc::<Mutex<Cluster>>::default();
        let nodes =
            Watch::start("Nodes", move || watcher(nodes.clone(), everything()), of(&cluster), signals());
        let shadows =
            Watch::start("shadows", move || watcher(shadows.clone(), everything()), of(&cluster), signals());
        let agents = Watch::start(
            "the agents' pods",
            move || watcher(agents.clone(), of_agents.clone()),
            of(&cluster),
            signals(),
        );
        let fleet = Watch::start(
            "the fleet",
            move || watcher(fleet.clone(), of_fleet.clone()),
            of::<Item<Ledger>>(&cluster),
            signals(),
        );
        Self { cluster, nodes, shadows, fleet, agents, changed, pods_changed: Arc::default(), failures }
    }

    /// Lists everything again. A silent watch may be silent because nothing happens, or because its connection is dead;
    /// in the second case it may be minutes behind before that is noticed.
    pub fn refresh(&self) {
        self.nodes.refresh();
        self.shadows.refresh();
        self.fleet.refresh();
        self.agents.refresh();
    }

    /// Has each watch listed its objects once?
    pub fn synced(&self) -> bool {
        self.nodes.synced() && self.shadows.synced() && self.fleet.synced() && self.agents.synced()
    }

    /// Has each watch listed its objects since the last [`refresh`](Self::refresh)?
    pub fn is_fresh(&self) -> bool {
        self.nodes.is_fresh() && self.shadows.is_fresh() && self.fleet.is_fresh() && self.agents.is_fresh()
    }

    /// Waits until each watch has listed its objects.
    pub async fn wait_until_synced(&self) {
        for watch in [&self.nodes, &self.shadows, &self.fleet, &self.agents] {
            // An error would mean that the task of a watch has ended; it ends only with this process.
            let _ = watch.listed.clone().wait_for(|times| *times > 0).await;
        }
    }

    /// What is known now. As long as this is held, nothing is learnt.
    ///
    /// # Errors
    /// The ledger exists and cannot be read: then nothing may be decided. Says what is wrong with it.
    pub fn cluster(&self) -> Result<MutexGuard<'_, Cluster>, String> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match cluster.ledger.as_ref().map(|ledger| &ledger.body) {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(cluster),
        }
    }

    /// Forgets what only a leader looks at.
    pub fn forget_what_leaders_know(&self) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.entries.values_mut().for_each(Entry::forget_what_leaders_know);
    }
}

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
#[derive(Default)]
pub struct PodWatches {
    watches: BTreeMap<String, Watched<PodItem>>,
    budgets: Option<(Watched<Item<Budget>>, Budgets)>,
}

impl PodWatches {
    /// Watches the pods of these nodes (name of the shadow, name of the node), the most important first, and no others.
    pub fn want<'a>(
        &mut self,
        client: &Client,
        Watches { changed, pods_changed, failures, .. }: &Watches,
        wanted: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let wanted: BTreeMap<&str, &str> = wanted.take(MAX_POD_WATCHES).collect();
        self.watches.retain(|shadow, _| wanted.contains_key(shadow.as_str()));
        if wanted.is_empty() {
            self.budgets = None;
        } else if self.budgets.is_none() {
            let api = Api::all(client.clone());
            let budgets = move || watcher(api.clone(), foreign());
            let signals = (Arc::clone(changed), Arc::clone(failures));
            self.budgets =
                Some((Watched::start("budgets", budgets, budgets::matters, signals), Budgets::default()));
        }
        for (shadow, node) in wanted {
            self.watches.entry(shadow.to_owned()).or_insert_with(|| {
                let (api, config) = (Api::<PodItem>::all(client.clone()), on_node(node));
                let pods = move || watcher(api.clone(), config.clone());
                let signals = (Arc::clone(pods_changed), Arc::clone(failures));
                Watched::start("the pods of a node", pods, |_, _| true, signals)
            });
        }
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub fn relaxed(&mut self) -> BTreeSet<String> {
        let Some((watched, budgets)) = &mut self.budgets else { return BTreeSet::new() };
        let found = watched.store.state();
        budgets.relaxed(found.iter().map(AsRef::as_ref))
    }

    /// How many budgets cannot be read.
    pub fn unreadable_budgets(&self) -> usize {
        let Some((watched, _)) = &self.budgets else { return 0 };
        watched.store.state().iter().filter(|budget| budget.body.is_err()).count()
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub fn known(&self) -> impl Iterator<Item = (&str, u64)> {
        let synced = self.watches.iter().filter(|(_, watched)| watched.synced());
        synced.map(|(shadow, watched)| (shadow.as_str(), watched.revision()))
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub fn budgets_revision(&self) -> Option<u64> {
        let (budgets, _) = self.budgets.as_ref()?;
        budgets.synced().then(|| budgets.revision())
    }

    /// All budgets.
    pub fn budgets(&self) -> Vec<Arc<Item<Budget>>> {
        self.budgets.as_ref().map_or_else(Vec::new, |(budgets, _)| budgets.store.state())
    }

    /// The pods of the node of this shadow.
    pub fn pods(&self, shadow: &str) -> Vec<Arc<PodItem>> {
        self.watches.get(shadow).map_or_else(Vec::new, |watched| watched.store.state())
    }
}

fn foreign() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_OF_FOREIGN)
}

/// The pods of one node.
fn on_node(node: &str) -> watcher::Config {
    foreign().fields(&format!("spec.nodeName={node}"))
}

/// Where the objects of a watch are kept.
trait Kept<K>: Send + 'static {
    /// Takes the event in. Returns whether a decision could be another.
    fn take(&mut self, event: watcher::Event<K>) -> bool;
}

/// Keeps the objects of one kind in the cluster.
struct InCluster<K> {
    cluster: Arc<Mutex<Cluster>>,
    /// Those of a list that is not complete yet.
    listed: Vec<K>,
}

fn of<K>(cluster: &Arc<Mutex<Cluster>>) -> InCluster<K> {
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
        let matters = match &event {
            watcher::Event::Init | watcher::Event::InitApply(_) => false,
            watcher::Event::InitDone | watcher::Event::Delete(_) => true,
            watcher::Event::Apply(new) => {
                self.store.get(&ObjectRef::from_obj(new)).is_none_or(|old| (self.matters)(&old, new))
            }
        };
        let stores = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
        self.writer.apply_watcher_event(&event);
        self.revision.fetch_add(stores.into(), Ordering::Relaxed);
        matters
    }
}

/// A watch with a store of its own.
struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// How many changes there were, also those that wake nobody.
    revision: Arc<AtomicU64>,
    watch: Watch,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    fn start<S>(
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

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    fn synced(&self) -> bool {
        self.watch.synced()
    }
}

/// What is notified of changes that matter, and counts failures.
type Signals = (Arc<Notify>, Arc<AtomicU64>);

/// The task that follows a watch; dropping this ends it.
struct Watch {
    /// How many lists were asked for: one at the start, and one more for each refresh.
    wanted: watch::Sender<u64>,
    /// The number of the last list that is complete; 0 before the first.
    listed: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Follows the stream that `begin` makes, and a new one after each [`refresh`](Self::refresh).
    fn start<K, S>(
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

    fn refresh(&self) {
        self.wanted.send_modify(|times| *times += 1);
    }

    fn synced(&self) -> bool {
        *self.listed.borrow() > 0
    }

    fn is_fresh(&self) -> bool {
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
struct Outage {
    what: String,
    failures: Arc<AtomicU64>,
    lasts: bool,
}

impl Outage {
    fn new(what: String, failures: Arc<AtomicU64>) -> Self {
        Self { what, failures, lasts: false }
    }

    /// Counts each failure, and logs the first of several in a row.
    fn goes_on(&mut self, error: &watcher::Error) {
        if let watcher::Error::WatchError(status) = error
            && status.code == 410
        {
            tracing::debug!(what = self.what, "the watch was away for too long and begins anew");
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.lasts, true) {
            tracing::warn!(what = self.what, error = describe(error), "a watch failed; trying again");
        }
    }

    /// The watch has yielded something; that a list begins is nothing yet, for each try begins with one.
    fn is_over(&mut self) {
        if std::mem::take(&mut self.lasts) {
            tracing::info!(what = self.what, "watching again");
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
    async fn a_refresh_replaces_what_a_silent_watch_knows_and_says_when_it_has() {
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
