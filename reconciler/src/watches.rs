//! Watches, each kept in a store; a change that matters wakes the reconciler.

#[cfg(test)]
mod unreadable;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
use brupop_core::objects::{AgentPod, Budget, Ledger, PodItem, WatchedNode};
use brupop_core::snapshot::Snapshot;
pub use workloads::WorkloadWatches;

/// The pods of at most so many nodes are watched at once. Further nodes are drained later.
const MAX_POD_WATCHES: usize = 256;

/// Objects per page of a list. A page is in memory as a whole before it is read, and each of its objects may have more
/// than a megabyte.
pub(crate) const PAGE: u32 = 100;
/// The same for kinds that anybody with a namespace can make.
pub(crate) const PAGE_OF_FOREIGN: u32 = 20;

/// The watches of all objects that decisions rest on.
pub struct Watches {
    nodes: Watched<WatchedNode>,
    shadows: Watched<Item<BottlerocketShadow>>,
    fleet: Watched<Item<Ledger>>,
    agents: Watched<PodItem>,
    /// Notified of each change that matters.
    pub changed: Arc<Notify>,
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
        let shadows = Api::namespaced(client.clone(), namespace);
        let agents = Api::<PodItem>::namespaced(client.clone(), namespace);
        let of_agents = foreign().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let fleet = Api::namespaced(client.clone(), namespace);
        let of_fleet = everything().fields(&format!("metadata.name={}", names::FLEET));
        Self {
            nodes: Watched::start(
                "Nodes",
                move || watcher(nodes.clone(), everything()),
                |old, new| !old.same_facts(new),
                signals(),
            ),
            shadows: Watched::start(
                "shadows",
                move || watcher(shadows.clone(), everything()),
                |_, _| true,
                signals(),
            ),
            agents: Watched::start(
                "the agents' pods",
                move || watcher(agents.clone(), of_agents.clone()),
                |old, new| AgentPod::of(old) != AgentPod::of(new),
                signals(),
            ),
            fleet: Watched::start(
                "the fleet",
                move || watcher(fleet.clone(), of_fleet.clone()),
                |_, _| true,
                signals(),
            ),
            changed,
            failures,
        }
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
        // An error would mean that the task of a watch has ended; it ends only with this process.
        let _ = self.nodes.store.wait_until_ready().await;
        let _ = self.shadows.store.wait_until_ready().await;
        let _ = self.fleet.store.wait_until_ready().await;
        let _ = self.agents.store.wait_until_ready().await;
    }

    /// What is known now.
    ///
    /// # Errors
    /// The ledger exists and cannot be read: then nothing may be decided. Says what is wrong with it.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        let ledger = self.fleet.store.state().into_iter().next();
        if let Some(Err(error)) = ledger.as_ref().map(|ledger| &ledger.body) {
            return Err(error.to_string());
        }
        let agents = self.agents.store.state();
        Ok(Snapshot::of(self.nodes.store.state(), self.shadows.store.state(), &agents, ledger))
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
        changed: &Arc<Notify>,
        failures: &Arc<AtomicU64>,
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
                let signals = (Arc::clone(changed), Arc::clone(failures));
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

    /// Calls `look` with the pods of each node whose pods are known, and with all budgets. Returns the results by name
    /// of the shadow; none as long as the budgets are not known.
    pub fn look<T>(
        &self,
        mut look: impl FnMut(&str, &[Arc<PodItem>], &[Arc<Item<Budget>>]) -> T,
    ) -> BTreeMap<String, T> {
        let Some((budgets, _)) = self.budgets.as_ref().filter(|(budgets, _)| budgets.synced()) else {
            return BTreeMap::new();
        };
        let budgets = budgets.store.state();
        self.watches
            .iter()
            .filter(|(_, watched)| watched.synced())
            .map(|(shadow, watched)| (shadow.clone(), look(shadow, &watched.store.state(), &budgets)))
            .collect()
    }
}

fn foreign() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_OF_FOREIGN)
}

/// The pods of one node.
fn on_node(node: &str) -> watcher::Config {
    foreign().fields(&format!("spec.nodeName={node}"))
}

/// A watch, its store, and the task that feeds it; dropping this ends the task.
struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// How many lists were asked for: one at the start, and one more for each refresh.
    wanted: watch::Sender<u64>,
    /// The number of the last list that is complete; 0 before the first.
    listed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl<K: Resource<DynamicType = ()> + 'static> Drop for Watched<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    fn start<S>(
        what: &'static str,
        begin: impl Fn() -> S + Send + 'static,
        matters: fn(&K, &K) -> bool,
        (changed, failures): (Arc<Notify>, Arc<AtomicU64>),
    ) -> Self
    where
        S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    {
        let (store, writer) = reflector::store();
        let (wanted, asked) = watch::channel(1);
        let listed = Arc::<AtomicU64>::default();
        let follower = Follower {
            store: store.clone(),
            writer,
            matters,
            changed,
            outage: Outage::new(what.to_owned(), failures),
            listed: Arc::clone(&listed),
        };
        let task = tokio::spawn(follower.follow(begin, asked));
        Self { store, wanted, listed, task }
    }

    fn refresh(&self) {
        self.wanted.send_modify(|times| *times += 1);
    }

    fn synced(&self) -> bool {
        self.listed.load(Ordering::Acquire) > 0
    }

    fn is_fresh(&self) -> bool {
        self.listed.load(Ordering::Acquire) == *self.wanted.borrow()
    }
}

struct Follower<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    writer: Writer<K>,
    matters: fn(&K, &K) -> bool,
    changed: Arc<Notify>,
    outage: Outage,
    listed: Arc<AtomicU64>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Follower<K> {
    /// Follows the stream that `begin` makes. Makes a new one each time that `asked` changes.
    async fn follow<S>(mut self, begin: impl Fn() -> S, mut asked: watch::Receiver<u64>)
    where
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
                    Some(Ok(event)) => self.took(&event, times),
                    Some(Err(error)) => self.outage.goes_on(&error),
                    None => return,
                }
            }
        }
    }

    fn took(&mut self, event: &watcher::Event<K>, times: u64) {
        let matters = match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => false,
            watcher::Event::InitDone | watcher::Event::Delete(_) => true,
            watcher::Event::Apply(new) => {
                self.store.get(&ObjectRef::from_obj(new)).is_none_or(|old| (self.matters)(&old, new))
            }
        };
        self.writer.apply_watcher_event(event);
        if !matches!(event, watcher::Event::Init) {
            self.outage.is_over();
        }
        if matches!(event, watcher::Event::InitDone) {
            self.listed.store(times, Ordering::Release);
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
        assert!(!watched.synced() && !watched.is_fresh());
        changed.notified().await;
        assert!(watched.synced() && watched.is_fresh());
        assert_eq!(names(), [Some("node-1".to_owned())]);
        watched.refresh();
        assert!(watched.synced() && !watched.is_fresh());
        changed.notified().await;
        assert!(watched.is_fresh());
        assert_eq!(names(), [Some("node-2".to_owned())]);
    }
}
