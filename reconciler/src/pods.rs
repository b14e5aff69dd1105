//! Watches for drains: of the pods of some nodes, and of all budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brupop_api::Item;
use brupop_core::drain::{Budgets, matters};
use brupop_core::kept::Kept;
use brupop_core::objects::{Budget, Pod, PodItem};
use brupop_runtime::list_and_watch;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Semaphore;

use crate::watches::{Watch, Watches};

/// The pods of at most this many nodes are watched at once. Further nodes are drained later.
pub(crate) const MAX_POD_WATCHES: usize = 256;

/// This many lists of these are read at once.
const LISTS_AT_ONCE: usize = 8;

/// If there are too many budgets in a namespace, or pools, all are listed again after so long: nothing else tells when that has
/// ended.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
pub(crate) struct PodWatches {
    turns: Arc<Semaphore>,
    kept: Arc<Mutex<Objects>>,
    /// For each node, by name of the shadow, with when its drain began, if it has: the pods are listed after that.
    pods: BTreeMap<String, (Watch, Option<String>)>,
    /// Of the budgets, with when they may be listed again because there are too many.
    budgets: Option<(Watch, Duration)>,
    /// Disruptions that budgets allowed at the last look.
    allowed: Budgets,
}

/// The objects that the pods' watches have brought.
#[derive(Default)]
pub(crate) struct Objects {
    /// By name of the shadow of their node.
    pub(crate) pods: Kept<Pod>,
    /// The budgets, by their namespace.
    pub(crate) budgets: Kept<Budget>,
}

/// A node whose pods should be watched.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WantedPods<'a> {
    pub(crate) what_for: For,
    /// The name of its shadow.
    pub(crate) shadow: &'a str,
    /// The name of the node.
    pub(crate) node: &'a str,
    /// When its drain began, if it has.
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
            turns: Arc::new(Semaphore::new(LISTS_AT_ONCE)),
            kept: Arc::default(),
            pods: BTreeMap::new(),
            budgets: None,
            allowed: Budgets::default(),
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
            (self.budgets, self.kept, self.allowed) = Default::default();
            return;
        }
        self.kept().pods.retain(names);
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
        let (api, of_node) = (Api::<PodItem>::all(client.clone()), on_node(wanted.node));
        let (turns, kept) = (Arc::clone(&self.turns), Arc::clone(&self.kept));
        let name = wanted.shadow.to_owned();
        let begin = move || list_and_watch(api.clone(), of_node.clone(), Arc::clone(&turns));
        let keep = move |event| keep_pod(&name, &mut locked(&kept).pods, event);
        watches.watch("the pods of a node", begin, keep, &watches.pods_changed)
    }

    fn watch_budgets(&mut self, client: &Client, watches: &Watches, now: Duration) {
        if let Some((watch, again)) = &mut self.budgets {
            if now >= *again && locked(&self.kept).budgets.too_many().next().is_some() {
                *again = now + LOOK_AGAIN;
                watch.refresh();
            }
            return;
        }
        let (api, all) = (
            Api::<Item<Budget>>::all(client.clone()),
            ListParams::default(),
        );
        let (turns, kept) = (Arc::clone(&self.turns), Arc::clone(&self.kept));
        let begin = move || list_and_watch(api.clone(), all.clone(), Arc::clone(&turns));
        let keep = move |event| keep_budget(&mut locked(&kept).budgets, event);
        let watch = watches.watch("budgets", begin, keep, &watches.changed);
        self.budgets = Some((watch, now + LOOK_AGAIN));
    }

    /// Returns what the watches have brought.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Objects> {
        locked(&self.kept)
    }

    /// Whether the pods of the node of this shadow are watched.
    pub(crate) fn watches(&self, shadow: &str) -> bool {
        self.pods.contains_key(shadow)
    }

    /// Returns when the drain began after which the pods of this shadow's node were listed.
    pub(crate) fn drain(&self, shadow: &str) -> Option<&str> {
        self.pods.get(shadow)?.1.as_deref()
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub(crate) fn relaxed(&mut self) -> BTreeSet<String> {
        let budgets = self.kept().budgets.all();
        self.allowed.relaxed(budgets.iter().map(AsRef::as_ref))
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub(crate) fn known(&self) -> BTreeMap<String, u64> {
        let kept = self.kept();
        let pods = self.pods.iter();
        let listed = pods.filter(|(_, (watch, _))| watch.synced() && watch.is_fresh());
        listed
            .filter_map(|(shadow, _)| Some((shadow.clone(), kept.pods.revision_of(shadow)?)))
            .collect()
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub(crate) fn budgets_revision(&self) -> Option<u64> {
        let (watch, _) = self.budgets.as_ref()?;
        watch.synced().then(|| self.kept().budgets.revision())
    }
}

fn locked(kept: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a pod of the node of this shadow, if its pods are still wanted. Returns whether a drain could be another.
fn keep_pod(shadow: &str, pods: &mut Kept<Pod>, event: watcher::Event<PodItem>) -> bool {
    let is_complete = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
    if !pods.has(shadow) {
        return is_complete;
    }
    match event {
        watcher::Event::Init => pods.begin_list(Some(shadow)),
        watcher::Event::InitDone => pods.end_list(Some(shadow)),
        watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => pods.put(shadow, pod),
        watcher::Event::Delete(pod) => pods.remove(shadow, &pod),
    }
    is_complete || pods.revision_of(shadow).is_none()
}

/// Keeps a budget. Returns whether a drain could be another.
fn keep_budget(budgets: &mut Kept<Budget>, event: watcher::Event<Item<Budget>>) -> bool {
    let is_listed = matches!(event, watcher::Event::InitApply(_));
    match event {
        watcher::Event::Init => budgets.begin_list(None),
        watcher::Event::InitDone => {
            budgets.end_list(None);
            return true;
        }
        watcher::Event::InitApply(budget) | watcher::Event::Apply(budget) => {
            let namespace = budget.namespace().to_owned();
            let before = budgets.get(&namespace, &budget);
            let matters = before.is_none_or(|before| matters(before, &budget));
            budgets.put(&namespace, budget);
            return matters && !is_listed;
        }
        watcher::Event::Delete(budget) => {
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
