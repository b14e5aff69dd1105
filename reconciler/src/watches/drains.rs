//! Watches for drains: of the pods of some nodes, and of all budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brupop_api::Item;
use brupop_runtime::list_and_watch_in_turn;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Semaphore;

use super::{Watch, Watches};
use brupop_core::drain::Budgets;
use brupop_core::kept::{KeptBudgets, KeptPods};
use brupop_core::objects::{Budget, PodItem};

/// The pods of at most this many nodes are watched at once. Further nodes are drained later.
pub(crate) const MAX_POD_WATCHES: usize = 256;

/// This many lists of these are read at once.
const LISTS_AT_ONCE: usize = 8;

/// If there are too many budgets in a namespace, or pools, all are listed again after so long: nothing else tells when that has
/// ended.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
pub struct PodWatches {
    turns: Arc<Semaphore>,
    objects: Arc<Mutex<Objects>>,
    watches: BTreeMap<String, PodWatch>,
    budgets: Option<BudgetWatch>,
}

/// What the watches have brought.
#[derive(Default)]
struct Objects {
    pods: KeptPods,
    budgets: KeptBudgets,
}

struct PodWatch {
    watch: Watch,
    /// When the node's drain began, if it has: the pods are listed after that.
    drain: Option<String>,
}

struct BudgetWatch {
    watch: Watch,
    /// What they allowed when they were last looked at.
    before: Budgets,
    /// When they may be listed again because there are too many.
    again: Duration,
}

/// A node whose pods should be watched.
pub struct WantedPods<'a> {
    /// The name of its shadow.
    pub shadow: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// When its drain began, if it has.
    pub drain: Option<&'a str>,
}

impl Default for PodWatches {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(LISTS_AT_ONCE));
        Self {
            turns,
            objects: Arc::default(),
            watches: BTreeMap::new(),
            budgets: None,
        }
    }
}

impl PodWatches {
    /// Watches the pods of these nodes, the most important first, and no others.
    pub fn want<'a>(
        &mut self,
        client: &Client,
        watches: &Watches,
        wanted: impl Iterator<Item = WantedPods<'a>>,
        now: Duration,
    ) {
        let wanted: Vec<_> = wanted.take(MAX_POD_WATCHES).collect();
        let names: BTreeSet<&str> = wanted.iter().map(|wanted| wanted.shadow).collect();
        self.watches
            .retain(|shadow, _| names.contains(shadow.as_str()));
        if wanted.is_empty() {
            (self.budgets, self.objects) = (None, Arc::default());
            return;
        }
        self.objects()
            .pods
            .want(wanted.iter().map(|wanted| wanted.shadow));
        self.watch_budgets(client, watches, now);
        for WantedPods {
            shadow,
            node,
            drain,
        } in wanted
        {
            let Self {
                turns,
                objects,
                watches: begun,
                ..
            } = self;
            let drain = drain.map(str::to_owned);
            let begun = begun.entry(shadow.to_owned()).or_insert_with(|| {
                let (api, params, turns) = (
                    Api::<PodItem>::all(client.clone()),
                    on_node(node),
                    Arc::clone(turns),
                );
                let pods =
                    move || list_and_watch_in_turn(api.clone(), params.clone(), Arc::clone(&turns));
                let (name, objects) = (shadow.to_owned(), Arc::clone(objects));
                let keep = move |event| keep_pod(&name, &mut locked(&objects).pods, event);
                let signals = (
                    Arc::clone(&watches.pods_changed),
                    Arc::clone(&watches.failures),
                );
                let watch = Watch::start("the pods of a node", pods, keep, signals);
                PodWatch {
                    watch,
                    drain: drain.clone(),
                }
            });
            if begun.drain != drain {
                begun.drain = drain;
                begun.watch.refresh();
            }
        }
    }

    /// Watches all budgets.
    fn watch_budgets(&mut self, client: &Client, watches: &Watches, now: Duration) {
        let Self {
            turns,
            objects,
            budgets,
            ..
        } = self;
        let budgets = budgets.get_or_insert_with(|| {
            let (api, turns) = (Api::<Item<Budget>>::all(client.clone()), Arc::clone(turns));
            let all = move || {
                list_and_watch_in_turn(api.clone(), ListParams::default(), Arc::clone(&turns))
            };
            let signals = (Arc::clone(&watches.changed), Arc::clone(&watches.failures));
            let kept = Arc::clone(objects);
            let keep = move |event| keep_budget(&mut locked(&kept).budgets, event);
            let watch = Watch::start("budgets", all, keep, signals);
            BudgetWatch {
                watch,
                before: Budgets::default(),
                again: now + LOOK_AGAIN,
            }
        });
        if now >= budgets.again && locked(objects).budgets.has_too_many() {
            budgets.again = now + LOOK_AGAIN;
            budgets.watch.refresh();
        }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        locked(&self.objects)
    }

    /// Whether the pods of the node of this shadow are watched.
    pub fn watches(&self, shadow: &str) -> bool {
        self.watches.contains_key(shadow)
    }

    /// Returns when the drain began after which the pods of this shadow's node were listed.
    pub fn drain(&self, shadow: &str) -> Option<&str> {
        self.watches.get(shadow)?.drain.as_deref()
    }

    /// The nodes whose pods were dropped since the last call, because there are too many, by name of the shadow.
    pub fn take_dropped(&self) -> BTreeSet<String> {
        self.objects().pods.take_dropped()
    }

    /// Whether there is one.
    pub fn has_dropped(&self) -> bool {
        self.objects().pods.has_dropped()
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub fn relaxed(&mut self) -> BTreeSet<String> {
        let found = self.budgets();
        let Some(budgets) = &mut self.budgets else {
            return BTreeSet::new();
        };
        budgets.before.relaxed(found.iter().map(AsRef::as_ref))
    }

    /// How many budgets cannot be read.
    pub fn unreadable_budgets(&self) -> usize {
        self.budgets()
            .iter()
            .filter(|budget| budget.body.is_err())
            .count()
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub fn known(&self) -> BTreeMap<String, u64> {
        let objects = self.objects();
        let fresh = self
            .watches
            .iter()
            .filter(|(_, begun)| begun.watch.synced() && begun.watch.is_fresh());
        fresh
            .filter_map(|(shadow, _)| Some((shadow.clone(), objects.pods.revision(shadow)?)))
            .collect()
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub fn budgets_revision(&self) -> Option<u64> {
        let synced = self.budgets.as_ref()?.watch.synced();
        synced.then(|| self.objects().budgets.revision())
    }

    /// All budgets.
    pub fn budgets(&self) -> Vec<Arc<Item<Budget>>> {
        self.objects().budgets.all()
    }

    /// The pods of the node of this shadow.
    pub fn pods(&self, shadow: &str) -> Vec<Arc<PodItem>> {
        self.objects().pods.of(shadow)
    }
}

fn locked(objects: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a pod of the node of this shadow.
fn keep_pod(shadow: &str, pods: &mut KeptPods, event: watcher::Event<PodItem>) -> bool {
    match event {
        watcher::Event::Init => pods.list_begins(shadow),
        watcher::Event::InitApply(pod) => pods.listed(shadow, pod),
        watcher::Event::InitDone => {
            pods.list_ends(shadow);
            return true;
        }
        watcher::Event::Apply(pod) => {
            pods.put(shadow, pod);
            return true;
        }
        watcher::Event::Delete(pod) => {
            pods.remove(shadow, &pod);
            return true;
        }
    }
    pods.has_dropped()
}

fn keep_budget(budgets: &mut KeptBudgets, event: watcher::Event<Item<Budget>>) -> bool {
    match event {
        watcher::Event::Init => budgets.list_begins(),
        watcher::Event::InitApply(budget) => budgets.listed(budget),
        watcher::Event::InitDone => {
            budgets.list_ends();
            return true;
        }
        watcher::Event::Apply(budget) => return budgets.put(budget),
        watcher::Event::Delete(budget) => {
            budgets.remove(&budget);
            return true;
        }
    }
    false
}

/// The pods of one node.
pub(crate) fn on_node(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node}"))
}
