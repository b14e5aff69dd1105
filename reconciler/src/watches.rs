//! Watches, and answers to requests, keep the cluster up to date; a change that matters wakes the reconciler. For drains the pods of
//! some nodes are watched, and all budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item, Object, names};
use brupop_core::cluster::{Cluster, Watched, version};
use brupop_core::kept::Kept;
use brupop_core::objects::{
    Allowed, Budget, NodeFacts, Pod, PodItem, WatchedFleet, matters, relaxed,
};
use brupop_core::pool::Pool;
use brupop_runtime::errors::describe;
use brupop_runtime::{Beginnings, FailureLog, list_and_watch, locked, only, patient};
use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The watches that keep the cluster up to date.
pub struct Watches {
    client: Client,
    namespace: String,
    cluster: Arc<Mutex<Cluster>>,
    /// Of Nodes, shadows, the fleet, agents' pods, and pools at the end. Empty while nothing is watched.
    all: Mutex<Vec<Watch>>,
    /// Notified of each change that matters, except those of nodes' pods.
    pub changed: Arc<Notify>,
    /// Notified of each change of a pod on a node whose pods are watched.
    pub pods_changed: Arc<Notify>,
    /// Number of times that a watch failed.
    pub failures: Arc<AtomicU64>,
}

impl Watches {
    /// Begins to watch all Nodes, and the shadows, the fleet, the pools and the agents' pods of our namespace.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let watches = Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            cluster: Arc::default(),
            all: Mutex::default(),
            changed: Arc::default(),
            pods_changed: Arc::default(),
            failures: Arc::default(),
        };
        watches.begin();
        watches
    }

    fn of_each_kind(&self) -> Vec<Watch> {
        let (client, namespace) = (|| self.client.clone(), &*self.namespace);
        // A page is in memory as a whole; a taken-over kubelet can make its Node as large as etcd stores.
        let everything = || Config::default().page_size(100);
        let of_fleet = only(names::FLEET);
        let of_agents = everything().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let nodes = Api::<Item<NodeFacts>>::all(client());
        let shadows = Api::<Item<BottlerocketShadow>>::namespaced(client(), namespace);
        let fleet = Api::<Item<WatchedFleet>>::namespaced(client(), namespace);
        let agents = Api::<PodItem>::namespaced(client(), namespace);
        let pools = Api::<Item<Pool>>::namespaced(client(), namespace);
        vec![
            self.in_cluster("Nodes", nodes, everything()),
            self.in_cluster("shadows", shadows, everything()),
            self.in_cluster("the fleet", fleet, of_fleet),
            self.in_cluster("the agents' pods", agents, of_agents),
            self.in_cluster("pools", pools, everything()),
        ]
    }

    /// A watch of these objects, which keeps them in the cluster.
    fn in_cluster<K>(&self, what: &'static str, api: Api<K>, config: Config) -> Watch
    where
        K: Watched + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        // Objects of a list that is not complete yet.
        let (cluster, mut listed) = (Arc::clone(&self.cluster), vec![]);
        let keep = move |event| {
            let mut cluster = locked(&cluster);
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => {
                    listed.push(object);
                    K::bound(&mut listed);
                }
                Event::InitDone => {
                    cluster.replace(std::mem::take(&mut listed));
                    return true;
                }
                Event::Apply(object) => return cluster.watched(object),
                Event::Delete(object) => return cluster.deleted(&object),
            }
            false
        };
        let begin = move || watcher(api.clone(), config.clone());
        self.watch(what, begin, keep, &self.changed)
    }

    /// Follows the stream that `begin` makes, and a new one after each [`Watch::refresh`]. `keep` takes events in, and returns whether
    /// a decision could be another: then `changed` is notified.
    pub(crate) fn watch<K, S>(
        &self,
        what: &'static str,
        begin: impl Fn() -> S + Send + Sync + 'static,
        keep: impl FnMut(Event<K>) -> bool + Send + 'static,
        changed: &Arc<Notify>,
    ) -> Watch
    where
        K: Send + 'static,
        S: Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    {
        let (wanted, asked) = watch::channel(1);
        let (list_done, listed) = watch::channel(0);
        let follower = Follower {
            what,
            keep,
            changed: Arc::clone(changed),
            failures: Arc::clone(&self.failures),
            log: FailureLog::default(),
            list_done,
        };
        let mut task = JoinSet::new();
        task.spawn(follower.follow(begin, asked));
        Watch {
            what,
            wanted,
            listed,
            _task: task,
        }
    }

    /// Lists everything, and watches it from then on.
    pub fn begin(&self) {
        *locked(&self.all) = self.of_each_kind();
    }

    /// Watches nothing until the next [`begin`](Self::begin), and forgets everything.
    pub fn rest(&self) {
        locked(&self.all).clear();
        *locked(&self.cluster) = Cluster::default();
    }

    pub fn refresh_pools(&self) {
        if let Some(pools) = locked(&self.all).last() {
            pools.refresh();
        }
    }

    /// Returns the kinds of object that are watched, and have not been listed once.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let all = locked(&self.all);
        let unsynced = all.iter().filter(|watch| !watch.synced());
        unsynced.map(|watch| watch.what).collect()
    }

    /// Whether each watch has listed its objects since its last refresh.
    pub fn is_fresh(&self) -> bool {
        let all = locked(&self.all);
        !all.is_empty() && all.iter().all(Watch::is_fresh)
    }

    /// Waits until each watch has listed its objects.
    pub async fn wait_until_synced(&self) {
        let listed = |watch: &Watch| watch.listed.clone();
        let all: Vec<_> = locked(&self.all).iter().map(listed).collect();
        for mut listed in all {
            // An error would mean that nothing is watched any more.
            let _ = listed.wait_for(|times| *times > 0).await;
        }
    }

    /// Takes in an object as the answer to a request has it; `None` if it is gone. The request was decided on version `seen`.
    /// Returns the version of the answer.
    pub fn answered(
        &self,
        object: &Object<String>,
        json: Option<&str>,
        seen: Option<u64>,
        now: Duration,
    ) -> Option<u64> {
        let (cluster, answer) = (&mut locked(&self.cluster), (json, seen, now));
        match object {
            Object::Node(name) => put::<Item<NodeFacts>>(cluster, name, answer),
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
                put::<Item<BottlerocketShadow>>(cluster, name, answer)
            }
            Object::Ledger | Object::FleetStatus => {
                put::<Item<WatchedFleet>>(cluster, names::FLEET, answer)
            }
            Object::PoolStatus(name) => put::<Item<Pool>>(cluster, name, answer),
        }
    }

    /// The current knowledge. As long as it is borrowed, nothing is learnt.
    ///
    /// # Errors
    /// The fleet exists and cannot be read: then nothing may be decided. Says what is wrong with it.
    pub fn cluster(&self) -> Result<MutexGuard<'_, Cluster>, String> {
        let cluster = locked(&self.cluster);
        match cluster.fleet.as_ref().map(|fleet| &fleet.body) {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(cluster),
        }
    }
}

fn put<K: Watched + DeserializeOwned>(
    cluster: &mut Cluster,
    name: &str,
    (json, seen, now): (Option<&str>, Option<u64>, Duration),
) -> Option<u64> {
    // Of an answer that is no object the watch says more.
    let object: Option<K> = json.map(serde_json::from_str).transpose().ok()?;
    let answered = object.as_ref().and_then(version);
    cluster.answered(name, object, seen, now);
    answered
}

/// The task that follows a watch; dropping this ends it.
pub(crate) struct Watch {
    what: &'static str,
    /// Number of lists that were asked for: one at the start, and one more for each refresh.
    wanted: watch::Sender<u64>,
    /// The number of the last list that is complete; 0 before the first.
    listed: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Watch {
    /// Lists the objects again. A silent watch may be silent because nothing happens, or because its connection is dead; in the
    /// second case it may be minutes behind before that is noticed.
    pub(crate) fn refresh(&self) {
        self.wanted.send_modify(|times| *times += 1);
    }

    pub(crate) fn synced(&self) -> bool {
        *self.listed.borrow() > 0
    }

    pub(crate) fn is_fresh(&self) -> bool {
        *self.listed.borrow() == *self.wanted.borrow()
    }
}

struct Follower<F> {
    what: &'static str,
    keep: F,
    changed: Arc<Notify>,
    failures: Arc<AtomicU64>,
    /// The reason why the watch fails, until it yields something again.
    log: FailureLog,
    list_done: watch::Sender<u64>,
}

impl<F> Follower<F> {
    async fn follow<K, S>(mut self, begin: impl Fn() -> S, mut asked: watch::Receiver<u64>)
    where
        F: FnMut(Event<K>) -> bool,
        S: Stream<Item = watcher::Result<Event<K>>>,
    {
        loop {
            let times = *asked.borrow_and_update();
            let mut events = std::pin::pin!(patient(&begin));
            loop {
                let event = tokio::select! {
                    changed = asked.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    event = events.next() => event,
                };
                match event {
                    Some(Ok(event)) => self.on_event(event, times),
                    Some(Err(error)) => self.on_error(&error),
                    None => return,
                }
            }
        }
    }

    fn on_event<K>(&mut self, event: Event<K>, times: u64)
    where
        F: FnMut(Event<K>) -> bool,
    {
        // That a list arrives is nothing yet, for each try begins with one.
        let is_list = matches!(event, Event::Init | Event::InitApply(_));
        if !is_list && self.log.resolved() {
            tracing::info!(what = self.what, "the watch works again");
        }
        let is_done = matches!(event, Event::InitDone);
        let matters = (self.keep)(event);
        if is_done {
            self.list_done.send_replace(times);
        }
        if matters {
            self.changed.notify_one();
        }
    }

    /// Counts each failure, and logs the first of several in a row, and the first for each further reason.
    fn on_error(&mut self, error: &watcher::Error) {
        let what = self.what;
        if matches!(error, watcher::Error::WatchError(status) if status.code == 410) {
            let says = "the watch was interrupted for too long, and starts again from a new list";
            tracing::debug!(what, "{says}");
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let error = describe(error);
        if self.log.is_new(&error) {
            tracing::warn!(what, error, "a watch failed; trying again");
        }
    }
}

/// The pods of at most this many nodes are watched at once: as many as can have slots or be next. Each watch is a connection.
pub(crate) const MAX_POD_WATCHES: usize = 532;

/// This many lists of these are read at once.
const LISTS_AT_ONCE: usize = 8;

/// If there are too many budgets in a namespace, or pools, all are listed again after so long: nothing else tells when that has
/// ended.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
pub(crate) struct PodWatches {
    beginnings: Arc<Beginnings>,
    /// The pods that the watches have brought, by name of the shadow of their node.
    kept_pods: Arc<Mutex<Kept<Pod>>>,
    /// The budgets, by their namespace.
    kept_budgets: Arc<Mutex<Kept<Budget>>>,
    /// For each node, by name of the shadow, with when it was last cordoned for its drain, if it was: the pods are listed after that.
    pods: BTreeMap<String, (Watch, Option<String>)>,
    /// Of the budgets, with when they may be listed again because there are too many.
    budgets: Option<(Watch, Duration)>,
    /// Disruptions that budgets allowed at the last look.
    allowed: Allowed,
}

/// A node whose pods should be watched.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WantedPods<'a> {
    pub(crate) what_for: For,
    /// The name of its shadow.
    pub(crate) shadow: &'a str,
    /// When the node was last cordoned for its drain, if it was.
    pub(crate) drain: Option<&'a str>,
}

/// The purpose of watching the pods of a node, the most important first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum For {
    /// It is being emptied, and watched already: nobody takes its watch before it is empty.
    Drain,
    /// It is being emptied, and not watched yet.
    DrainUnwatched,
    /// It is about to be emptied.
    DrainNext,
    /// It is the next to start.
    Start,
    /// It will be emptied once its host has staged the update.
    DrainSoon,
    /// It is passed over; a change of its pods may end that.
    Another,
}

impl Default for PodWatches {
    fn default() -> Self {
        Self {
            beginnings: Arc::new(Beginnings::new(LISTS_AT_ONCE)),
            kept_pods: Arc::default(),
            kept_budgets: Arc::default(),
            pods: BTreeMap::new(),
            budgets: None,
            allowed: Allowed::new(),
        }
    }
}

impl PodWatches {
    /// Watches the pods of these nodes, the most important first, and no others.
    pub(crate) fn want(
        &mut self,
        client: &Client,
        watches: &Watches,
        mut wanted: Vec<WantedPods<'_>>,
        now: Duration,
    ) {
        wanted.truncate(MAX_POD_WATCHES);
        let names: BTreeSet<&str> = wanted.iter().map(|wanted| wanted.shadow).collect();
        self.pods.retain(|shadow, _| names.contains(&**shadow));
        if wanted.is_empty() {
            (self.budgets, self.allowed) = Default::default();
            (self.kept_pods, self.kept_budgets) = Default::default();
            return;
        }
        self.pods().retain(names);
        self.watch_budgets(client, watches, now);
        for wanted in wanted {
            let drain = wanted.drain.map(str::to_owned);
            match self.pods.get_mut(wanted.shadow) {
                Some((watch, before)) if *before != drain => {
                    *before = drain;
                    watch.refresh();
                }
                Some(_) => {}
                None => {
                    let watch = self.watch_pods(client, watches, &wanted);
                    self.pods.insert(wanted.shadow.to_owned(), (watch, drain));
                }
            }
        }
    }

    fn watch_pods(&self, client: &Client, watches: &Watches, wanted: &WantedPods<'_>) -> Watch {
        let (api, of_node) = (
            Api::<PodItem>::all(client.clone()),
            on_node(names::node_of_shadow(wanted.shadow).unwrap_or_default()),
        );
        let (beginnings, kept) = (Arc::clone(&self.beginnings), Arc::clone(&self.kept_pods));
        let name = wanted.shadow.to_owned();
        let begin = move || list_and_watch(api.clone(), of_node.clone(), Arc::clone(&beginnings));
        let keep = move |event| keep_pod(&name, &mut locked(&kept), event);
        watches.watch("the pods of a node", begin, keep, &watches.pods_changed)
    }

    fn watch_budgets(&mut self, client: &Client, watches: &Watches, now: Duration) {
        if let Some((watch, again)) = &mut self.budgets {
            if now >= *again && locked(&self.kept_budgets).too_many().next().is_some() {
                *again = now + LOOK_AGAIN;
                watch.refresh();
            }
            return;
        }
        let (api, all) = (
            Api::<Item<Budget>>::all(client.clone()),
            ListParams::default(),
        );
        let (beginnings, kept) = (Arc::clone(&self.beginnings), Arc::clone(&self.kept_budgets));
        let begin = move || list_and_watch(api.clone(), all.clone(), Arc::clone(&beginnings));
        let keep = move |event| keep_budget(&mut locked(&kept), event);
        let watch = watches.watch("budgets", begin, keep, &watches.changed);
        self.budgets = Some((watch, now + LOOK_AGAIN));
    }

    /// Returns the pods that the watches have brought.
    pub(crate) fn pods(&self) -> MutexGuard<'_, Kept<Pod>> {
        locked(&self.kept_pods)
    }

    /// Returns the budgets that their watch has brought.
    pub(crate) fn budgets(&self) -> MutexGuard<'_, Kept<Budget>> {
        locked(&self.kept_budgets)
    }

    /// Whether the pods of the node of this shadow are watched.
    pub(crate) fn watches(&self, shadow: &str) -> bool {
        self.pods.contains_key(shadow)
    }

    /// Returns the last cordon of this shadow's node after which its pods were listed.
    pub(crate) fn drain(&self, shadow: &str) -> Option<&str> {
        self.pods.get(shadow)?.1.as_deref()
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub(crate) fn relaxed(&mut self) -> BTreeSet<String> {
        let budgets = self.budgets().all();
        relaxed(&mut self.allowed, budgets.iter().map(AsRef::as_ref))
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub(crate) fn known(&self) -> BTreeMap<String, u64> {
        let kept = self.pods();
        let pods = self.pods.iter();
        let listed = pods.filter(|(_, (watch, _))| watch.is_fresh());
        listed
            .filter_map(|(shadow, _)| Some((shadow.clone(), kept.revision_of(shadow)?)))
            .collect()
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub(crate) fn budgets_revision(&self) -> Option<u64> {
        let (watch, _) = self.budgets.as_ref()?;
        watch.synced().then(|| self.budgets().revision())
    }
}

/// Keeps a pod of the node of this shadow, if its pods are still wanted. Returns whether a drain could be another.
fn keep_pod(shadow: &str, pods: &mut Kept<Pod>, event: Event<PodItem>) -> bool {
    let is_complete = !matches!(event, Event::Init | Event::InitApply(_));
    if !pods.has(shadow) {
        return is_complete;
    }
    match event {
        Event::Init => pods.begin_list(Some(shadow)),
        Event::InitDone => pods.end_list(Some(shadow)),
        Event::InitApply(pod) | Event::Apply(pod) => pods.put(shadow, pod),
        Event::Delete(pod) => pods.remove(shadow, &pod),
    }
    is_complete || pods.revision_of(shadow).is_none()
}

/// Keeps a budget. Returns whether a drain could be another.
fn keep_budget(budgets: &mut Kept<Budget>, event: Event<Item<Budget>>) -> bool {
    let is_listed = matches!(event, Event::InitApply(_));
    match event {
        Event::Init => budgets.begin_list(None),
        Event::InitDone => {
            budgets.end_list(None);
            return true;
        }
        Event::InitApply(budget) | Event::Apply(budget) => {
            let namespace = budget.namespace().to_owned();
            let before = budgets.get(&namespace, &budget);
            let matters = before.is_none_or(|before| matters(before, &budget));
            budgets.put(&namespace, budget);
            return matters && !is_listed;
        }
        Event::Delete(budget) => {
            budgets.remove(budget.namespace(), &budget);
            return true;
        }
    }
    false
}

/// The pods of one node.
pub(crate) fn on_node(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node}"))
}

#[cfg(test)]
mod tests;
