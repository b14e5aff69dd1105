//! Watches keep what they bring, and a change that matters wakes the reconciler.

mod drains;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item, Object, names};
use brupop_runtime::errors::describe;
use brupop_runtime::{FailureLog, list_and_watch, patient};
use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use brupop_core::cluster::{Cluster, Watched, version};
use brupop_core::objects::{NodeFacts, PodItem, WatchedFleet};
use brupop_core::pool::Pool;
pub(crate) use drains::{LOOK_AGAIN, MAX_POD_WATCHES, PodWatches, WantedPods, on_node};

/// The watches that keep the cluster up to date.
pub struct Watches {
    cluster: Arc<Mutex<Cluster>>,
    all: [Watch; 5],
    /// Notified of each change that matters, except those of nodes' pods.
    pub changed: Arc<Notify>,
    /// Notified of each change of a pod on a node whose pods are watched.
    pub pods_changed: Arc<Notify>,
    /// How many times a watch failed.
    pub failures: Arc<AtomicU64>,
}

impl Watches {
    /// Begins to watch all Nodes, and the shadows, the fleet, the pools and the agents' pods of our namespace.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let (cluster, changed) = (Arc::<Mutex<Cluster>>::default(), Arc::<Notify>::default());
        let failures = Arc::<AtomicU64>::default();
        let signals = || (Arc::clone(&changed), Arc::clone(&failures));
        let everything = ListParams::default;
        let of_fleet = everything().fields(&format!("metadata.name={}", names::FLEET));
        let of_agents = everything().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let nodes = Api::<Item<NodeFacts>>::all(client.clone());
        let shadows = Api::<Item<BottlerocketShadow>>::namespaced(client.clone(), namespace);
        let fleet = Api::<Item<WatchedFleet>>::namespaced(client.clone(), namespace);
        let pools = Api::<Item<Pool>>::namespaced(client.clone(), namespace);
        let agents = Api::<PodItem>::namespaced(client.clone(), namespace);
        let all = [
            in_cluster("Nodes", nodes, everything(), &cluster, signals()),
            in_cluster("shadows", shadows, everything(), &cluster, signals()),
            in_cluster("the fleet", fleet, of_fleet, &cluster, signals()),
            in_cluster("pools", pools, everything(), &cluster, signals()),
            in_cluster("the agents' pods", agents, of_agents, &cluster, signals()),
        ];
        Self {
            cluster,
            all,
            changed,
            pods_changed: Arc::default(),
            failures,
        }
    }

    /// Lists everything again. A silent watch may be silent because nothing happens, or because its connection is dead;
    /// in the second case it may be minutes behind before that is noticed.
    pub fn refresh(&self) {
        self.all.iter().for_each(Watch::refresh);
    }

    /// Lists the pools again.
    pub fn refresh_pools(&self) {
        let [_, _, _, pools, _] = &self.all;
        pools.refresh();
    }

    /// Returns the kinds of object that have not been listed once.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let unsynced = self.all.iter().filter(|watch| !watch.synced());
        unsynced.map(|watch| watch.what).collect()
    }

    /// Whether each watch has listed its objects since the last [`refresh`](Self::refresh).
    pub fn is_fresh(&self) -> bool {
        self.all.iter().all(Watch::is_fresh)
    }

    /// Waits until each watch has listed its objects.
    pub async fn wait_until_synced(&self) {
        for watch in &self.all {
            // An error would mean that the task of a watch has ended; it ends only with this process.
            let _ = watch.listed.clone().wait_for(|times| *times > 0).await;
        }
    }

    /// Forgets what was known of nodes by the leadership that has ended.
    pub fn forget_led(&self) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.forget_led();
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
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match object {
            Object::Node(name) => put::<Item<NodeFacts>>(&mut cluster, name, json, seen, now),
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
                put::<Item<BottlerocketShadow>>(&mut cluster, name, json, seen, now)
            }
            Object::Ledger | Object::FleetStatus => {
                put::<Item<WatchedFleet>>(&mut cluster, names::FLEET, json, seen, now)
            }
            Object::PoolStatus(name) => put::<Item<Pool>>(&mut cluster, name, json, seen, now),
        }
    }

    /// What is known now. As long as this is held, nothing is learnt.
    ///
    /// # Errors
    /// The fleet exists and cannot be read: then nothing may be decided. Says what is wrong with it.
    pub fn cluster(&self) -> Result<MutexGuard<'_, Cluster>, String> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match cluster.fleet.as_ref().map(|fleet| &fleet.body) {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(cluster),
        }
    }
}

fn put<K: Watched + DeserializeOwned>(
    cluster: &mut Cluster,
    name: &str,
    json: Option<&str>,
    seen: Option<u64>,
    now: Duration,
) -> Option<u64> {
    // What is no object at all is what the watch will say.
    let object: Option<K> = json.map(serde_json::from_str).transpose().ok()?;
    let answered = object.as_ref().and_then(version);
    cluster.answered(name, object, seen, now);
    answered
}

/// A watch of these objects, which keeps them in the cluster.
fn in_cluster<K>(
    what: &'static str,
    api: Api<K>,
    params: ListParams,
    cluster: &Arc<Mutex<Cluster>>,
    signals: Signals,
) -> Watch
where
    K: Watched + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    // Objects of a list that is not complete yet.
    let (cluster, mut listed) = (Arc::clone(cluster), vec![]);
    let keep = move |event| {
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => {
                listed.push(object);
                K::bound(&mut listed);
            }
            watcher::Event::InitDone => {
                cluster.replace(std::mem::take(&mut listed));
                return true;
            }
            watcher::Event::Apply(object) => return cluster.watched(object),
            watcher::Event::Delete(object) => return cluster.deleted(&object),
        }
        false
    };
    Watch::start(
        what,
        move || list_and_watch(api.clone(), params.clone()),
        keep,
        signals,
    )
}

/// What is notified of changes that matter, and counts failures.
type Signals = (Arc<Notify>, Arc<AtomicU64>);

/// The task that follows a watch; dropping this ends it.
struct Watch {
    what: &'static str,
    /// How many lists were asked for: one at the start, and one more for each refresh.
    wanted: watch::Sender<u64>,
    /// The number of the last list that is complete; 0 before the first.
    listed: watch::Receiver<u64>,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl Watch {
    /// Follows the stream that `begin` makes, and a new one after each [`refresh`](Self::refresh). `keep` takes events in, and
    /// returns whether a decision could be another.
    fn start<K, S>(
        what: &'static str,
        begin: impl Fn() -> S + Send + 'static,
        keep: impl FnMut(watcher::Event<K>) -> bool + Send + 'static,
        (changed, failures): Signals,
    ) -> Self
    where
        K: Send + 'static,
        S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    {
        let (wanted, asked) = watch::channel(1);
        let (list_done, listed) = watch::channel(0);
        let follower = Follower {
            keep,
            changed,
            outage: Outage::new(what.to_owned(), failures),
            list_done,
        };
        let mut task = JoinSet::new();
        task.spawn(follower.follow(begin, asked));
        Self {
            what,
            wanted,
            listed,
            _task: task,
        }
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

struct Follower<F> {
    keep: F,
    changed: Arc<Notify>,
    outage: Outage,
    list_done: watch::Sender<u64>,
}

impl<F> Follower<F> {
    async fn follow<K, S>(mut self, begin: impl Fn() -> S, mut asked: watch::Receiver<u64>)
    where
        F: FnMut(watcher::Event<K>) -> bool,
        S: Stream<Item = watcher::Result<watcher::Event<K>>>,
    {
        loop {
            let times = *asked.borrow_and_update();
            let mut events = std::pin::pin!(patient(begin()));
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
                    Some(Err(error)) => self.outage.goes_on(&error),
                    None => return,
                }
            }
        }
    }

    fn on_event<K>(&mut self, event: watcher::Event<K>, times: u64)
    where
        F: FnMut(watcher::Event<K>) -> bool,
    {
        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            self.outage.is_over();
        }
        let done = matches!(event, watcher::Event::InitDone);
        let matters = (self.keep)(event);
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
    log: FailureLog,
}

impl Outage {
    fn new(what: String, failures: Arc<AtomicU64>) -> Self {
        Self {
            what,
            failures,
            log: FailureLog::default(),
        }
    }

    /// Counts each failure, and logs the first of several in a row, and the first for each further reason.
    fn goes_on(&mut self, error: &watcher::Error) {
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

    /// The watch has yielded something; that a list arrives is nothing yet, for each try begins with one.
    fn is_over(&mut self) {
        if self.log.resolved() {
            tracing::info!(what = self.what, "the watch works again");
        }
    }
}

#[cfg(test)]
mod tests;
