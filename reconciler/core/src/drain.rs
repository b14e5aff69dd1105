//! What a drain does: which pods it evicts, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` decides; in
//! which order; and which budgets stand in its way.

mod noted;

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::item::Unreadable;
use brupop_api::marker::{Before, OPERATOR_PODS_MAX};
use brupop_api::{Item, Marker};
use jiff::Timestamp;
use kube::core::SelectorExt as _;

use crate::objects::{Budget, Controller, Pod, PodItem};
use crate::workloads::{FoundWorkload, WorkloadKind, owner};

pub use noted::{Circumstances, LATE, failing_on, overdue};

/// Most keys and values of all selectors of a namespace. Each is compared with each pod of a node in each pass.
const REQUIREMENTS_MAX: usize = 4096;
/// Most comparisons of the pods of one node with keys and values of selectors: as many as the 110 pods that a kubelet runs,
/// unless it is told otherwise, take in a namespace with this many.
const COMPARED_MAX: usize = 110 * REQUIREMENTS_MAX;
/// Looks at nodes that cost more than this in sum are not made without a pause, but for one. It takes some milliseconds.
pub const LOOKS_AT_ONCE: usize = 200_000;
/// What a pod costs before it is compared with budgets, and a budget whose namespace has no pod here.
const OF_POD: usize = 200;
const OF_BUDGET: usize = 2;

/// What a drain does about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// It stays, and a drain does not wait for it: a mirror pod, a pod of a `DaemonSet`, one that has run to its end and is
    /// held by a finalizer.
    Stays,
    /// It is evicted.
    Evicted,
    /// It is terminating; the drain waits for it.
    Leaving,
    /// It has no controller that would make it again, so a person has to decide.
    Unmanaged,
    /// It cannot be read, so a person has to decide.
    Unreadable(Unreadable),
}

/// One pod, as an eviction names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl PodKey {
    /// The key of this pod.
    pub fn of(pod: &PodItem) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned(), uid: pod.uid().to_owned() }
    }
}

/// What to tell people about a pod without a controller, which holds a drain up.
pub fn unmanaged(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name} has no controller that would recreate it elsewhere: delete it by hand")
}

/// What to tell people about a pod that cannot be read, which holds a drain up.
pub fn unreadable(namespace: &str, name: &str, why: Unreadable) -> String {
    format!("the pod {namespace}/{name} cannot be read, for {why}: repair or delete it")
}

/// What a drain of a node has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// Pods to evict now.
    pub evict: Vec<PodKey>,
    /// Pods of the operator, to evict when no other is left: one of them may be the process that drains.
    pub last: Vec<PodKey>,
    /// It is the turn of the operator's own pods: `evict` holds no others.
    pub evict_operator_pods: bool,
    /// It would be their turn, but the marker does not list them yet. Their UIDs.
    pub operator_pods: Vec<String>,
    /// Pods that are not evicted now, though they may not stay: see [`crate::workloads::Returning`].
    pub held: Vec<PodKey>,
    /// The workloads whose pods came back each time that they were evicted. See [`crate::workloads::Returns`].
    pub returning: Vec<String>,
    /// A budget covers a pod that would be left for that reason. Says which.
    pub needed: Option<String>,
    /// What makes that pod again.
    pub needed_by: Option<String>,
    /// Terminating pods, and when each should be gone.
    pub leaving: Vec<(Timestamp, PodKey)>,
    /// Pods that should have been gone by then are not waited for any more.
    pub overlooked: Option<Timestamp>,
    /// Pods without a controller; they hold the drain up.
    pub unmanaged: Vec<PodKey>,
    /// Pods that cannot be read; they hold the drain up, too.
    pub unreadable: Vec<(PodKey, Unreadable)>,
    /// Pods that ask not to be disrupted, where that is respected, each with the annotation. They are waited for.
    pub undisturbed: Vec<(PodKey, &'static str)>,
    /// The workloads whose pods are evicted or terminating, as `<apiVersion>/<kind>/<namespace>/<name>`, sorted. The
    /// reconciler keeps only those that are available.
    pub owners: Vec<String>,
    /// How each of them is, once only those are left that are available.
    pub owners_before: Vec<Before>,
}

impl DrainPlan {
    /// The plan for these pods of one node. The operator's own pods (`is_operator_pod`) tolerate the cordon, and come back
    /// if there is no better node: those that the marker lists are evicted, and others stay. So do pods of workloads that
    /// the marker leaves, and pods that should have been gone by the time `overlooked`. `orphaned` finds pods whose
    /// `DaemonSet` is gone.
    pub fn of<'p>(
        pods: impl IntoIterator<Item = &'p PodItem>,
        is_operator_pod: impl Fn(&PodItem) -> bool,
        orphaned: impl Fn(&PodItem) -> bool,
        marker: Option<&Marker>,
        overlooked: Option<Timestamp>,
    ) -> Self {
        let mut plan = Self { overlooked, ..Self::default() };
        let (listed, left) =
            marker.map_or((&[][..], &[][..]), |marker| (&marker.operator_pods, &marker.left_owners));
        for pod in pods {
            let (ours, action) = (is_operator_pod(pod), drain_action(pod, orphaned(pod)));
            let came_back = ours && !listed.is_empty() && !listed.iter().any(|uid| uid == pod.uid());
            let stays = match action {
                DrainAction::Stays => true,
                DrainAction::Unreadable(_) => false,
                // A terminating webhook serves a little longer. Nobody has to wait for that: its budget has seen to
                // another one that is Ready, and a reboot ends its connections no worse than its own end does.
                DrainAction::Leaving => ours || overlooked.is_some_and(|before| gone_by(pod) <= before),
                DrainAction::Evicted if came_back => true,
                DrainAction::Evicted | DrainAction::Unmanaged => {
                    !left.is_empty() && left.contains(&identity(pod))
                }
            };
            if stays {
                continue;
            }
            let key = PodKey::of(pod);
            match action {
                DrainAction::Stays => {}
                DrainAction::Leaving => plan.leaving.push((gone_by(pod), key)),
                DrainAction::Unmanaged => plan.unmanaged.push(key),
                DrainAction::Unreadable(why) => plan.unreadable.push((key, why)),
                DrainAction::Evicted if ours => plan.last.push(key),
                DrainAction::Evicted => plan.evict.push(key),
            }
            plan.owners.extend(owner(pod));
        }
        plan.last.sort_unstable();
        plan.turn_to_operator_pods(!listed.is_empty());
        plan.evict.sort_unstable();
        plan.leaving.sort_unstable();
        plan.unmanaged.sort_unstable();
        plan.unreadable.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        plan.owners.sort_unstable();
        plan.owners.dedup();
        plan
    }

    /// Once no other pod is left, the operator's own are listed in the marker; those that are listed are evicted.
    fn turn_to_operator_pods(&mut self, are_listed: bool) {
        if !self.evict.is_empty() || !self.leaving.is_empty() || !self.needs_nobody() {
            return;
        }
        if are_listed {
            self.evict = std::mem::take(&mut self.last);
            self.evict_operator_pods = true;
        } else {
            let uids = self.last.iter().map(|pod| pod.uid.clone());
            self.operator_pods = uids.take(OPERATOR_PODS_MAX).collect();
        }
    }

    /// Is there no pod about which a person has to decide?
    fn needs_nobody(&self) -> bool {
        self.unmanaged.is_empty() && self.unreadable.is_empty()
    }

    /// The pods about which a person has to decide, each as a sentence.
    pub fn for_people(&self) -> impl Iterator<Item = String> {
        let unreadable = self.unreadable.iter().map(|(pod, why)| unreadable(&pod.namespace, &pod.name, *why));
        let asking = self.undisturbed.iter().map(|(pod, annotation)| {
            let asks = asks(&pod.namespace, &pod.name, annotation);
            format!("{asks} allows no disruption, so the drain waits for the pod's end")
        });
        let unmanaged = self.unmanaged.iter().map(|pod| unmanaged(&pod.namespace, &pod.name));
        unmanaged.chain(unreadable).chain(asking)
    }

    /// Also removes pods about which a person has to decide.
    #[must_use]
    pub fn forced(mut self) -> Self {
        self.evict.append(&mut self.unmanaged);
        self.evict.extend(self.unreadable.drain(..).map(|(pod, _)| pod));
        self.evict.extend(self.undisturbed.drain(..).map(|(pod, _)| pod));
        self.evict.sort_unstable();
        self
    }

    /// Does not evict the pods that ask not to be disrupted, the operator's own aside.
    pub fn respect<'p>(&mut self, pods: impl IntoIterator<Item = &'p PodItem>) {
        if self.evict_operator_pods {
            return;
        }
        let asking = pods.into_iter().filter_map(|pod| Some((pod.uid(), pod.ok().and_then(asks_for)?)));
        let asking: BTreeMap<&str, &'static str> = asking.collect();
        let Self { evict, undisturbed, .. } = self;
        evict.retain(|pod| match asking.get(pod.uid.as_str()) {
            Some(annotation) => {
                undisturbed.push((pod.clone(), annotation));
                false
            }
            None => true,
        });
    }

    /// Does not evict these pods (UIDs) now.
    pub fn hold(&mut self, pods: &BTreeSet<String>) {
        let evict = std::mem::take(&mut self.evict);
        (self.held, self.evict) = evict.into_iter().partition(|pod| pods.contains(&pod.uid));
    }

    /// Keeps, of the owners, those that are available, and notes how they are.
    pub fn keep_available(&mut self, found: impl Fn(&str) -> Option<FoundWorkload>) {
        let available =
            std::mem::take(&mut self.owners).into_iter().filter_map(|owner| match found(&owner)? {
                FoundWorkload::There(scale) => Some((owner, scale.before()?)),
                FoundWorkload::Gone | FoundWorkload::Unknown => None,
            });
        (self.owners, self.owners_before) = available.unzip();
    }

    /// Is nothing left to evict, to wait for, or to ask a person about?
    pub fn is_done(&self) -> bool {
        let pods = [&self.evict, &self.held, &self.last];
        let none_left = pods.iter().all(|pods| pods.is_empty()) && self.leaving.is_empty();
        none_left && self.undisturbed.is_empty() && self.needs_nobody()
    }
}

/// What a drain does about this pod. An `orphaned` pod, whose `DaemonSet` is gone, counts as one without a controller.
pub fn drain_action(item: &PodItem, orphaned: bool) -> DrainAction {
    let pod = match &item.body {
        Ok(pod) => pod,
        Err(why) => return DrainAction::Unreadable(*why),
    };
    let is_daemon = |owner: &Controller| {
        WorkloadKind::of(&owner.api_version, &owner.kind) == Some(WorkloadKind::DaemonSet)
    };
    let of_daemon = pod.controller.as_ref().is_some_and(is_daemon);
    let is_over = pod.finished && pod.gone_by.is_some();
    if pod.is_mirror || is_over || (of_daemon && !pod.finished && !orphaned) {
        DrainAction::Stays
    } else if pod.gone_by.is_some() {
        DrainAction::Leaving
    } else if pod.finished || (pod.controller.is_some() && !orphaned) {
        DrainAction::Evicted
    } else {
        DrainAction::Unmanaged
    }
}

/// When the pod's termination grace period ends.
fn gone_by(pod: &PodItem) -> Timestamp {
    pod.ok().and_then(|pod| pod.gone_by).unwrap_or(Timestamp::MAX)
}

/// What makes this pod again, in the words of [`owner`]: of a pod without a controller, a pod of this name.
pub fn identity(pod: &PodItem) -> String {
    owner(pod).unwrap_or_else(|| format!("v1/Pod/{}/{}", pod.namespace(), pod.name()))
}

/// How many disruptions each budget (namespace, name) allowed when it was last looked at.
#[derive(Debug, Default)]
pub struct Budgets {
    allowed: BTreeMap<(String, String), i32>,
}

impl Budgets {
    /// Looks at all budgets. Returns the namespaces in which a budget allows more than before, or was deleted.
    pub fn relaxed<'b>(&mut self, budgets: impl Iterator<Item = &'b Item<Budget>>) -> BTreeSet<String> {
        let now: BTreeMap<(String, String), i32> = budgets
            .map(|budget| ((budget.namespace().to_owned(), budget.name().to_owned()), allowed(budget)))
            .collect();
        let more = |(key, before): (&(String, String), &i32)| {
            now.get(key).is_none_or(|now| now > before).then(|| key.0.clone())
        };
        let relaxed = self.allowed.iter().filter_map(more).collect();
        self.allowed = now;
        relaxed
    }
}

/// What stands in the way of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No drain could empty the node. Holds why.
    Never(String),
    /// It has so many pods that they are not looked at; see [`crate::kept`].
    TooManyPods,
    /// A budget allows no disruption now.
    Now {
        /// Which.
        budget: String,
        /// One has not done so for as long as a drain may take.
        for_long: bool,
    },
}

/// What stands in the way of a drain of these pods of one node, if anything does. If the drain `respects` pods that ask not
/// to be disrupted, they are like a budget that allows no disruption now.
pub fn obstacle<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &'p [impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool + Copy,
    orphaned: impl Fn(&PodItem) -> bool,
    now: &Circumstances<'_>,
) -> Option<Obstacle> {
    let here = by_namespace(pods(), budgets);
    if comparisons(&here).map(|(_, compared)| compared).sum::<usize>() > COMPARED_MAX {
        let most = comparisons(&here).max_by_key(|(_, compared)| *compared);
        return most.map(|(namespace, _)| Obstacle::Never(incomparable(namespace)));
    }
    let never = undrainable(pods(), &here, is_operator_pod, orphaned, now.time).map(Obstacle::Never);
    let asking = || undisturbed(pods(), is_operator_pod).filter(|_| now.respects);
    let blocked = || blocked(pods(), &here, is_operator_pod).or_else(asking);
    never
        .or_else(|| noted::still(pods(), budgets, now))
        .or_else(|| blocked().map(|budget| Obstacle::Now { budget, for_long: false }))
}

/// The namespaces of pods of one node: how many pods it has there, and their budgets.
type ByNamespace<'n> = BTreeMap<&'n str, (usize, Vec<&'n Item<Budget>>)>;

fn by_namespace<'n>(
    pods: impl IntoIterator<Item = &'n PodItem>,
    budgets: &'n [impl AsRef<Item<Budget>>],
) -> ByNamespace<'n> {
    let mut all = ByNamespace::new();
    for pod in pods {
        all.entry(pod.namespace()).or_default().0 += 1;
    }
    for budget in budgets.iter().map(AsRef::as_ref) {
        if let Some((_, here)) = all.get_mut(budget.namespace()) {
            here.push(budget);
        }
    }
    all
}

/// How many comparisons a look at the pods of each namespace takes.
fn comparisons<'h>(here: &'h ByNamespace<'_>) -> impl Iterator<Item = (&'h str, usize)> {
    let each = |budget: &&Item<Budget>| 1 + budget.ok().map_or(0, |budget| budget.requirements);
    here.iter()
        .map(move |(namespace, (pods, budgets))| (*namespace, pods * budgets.iter().map(each).sum::<usize>()))
}

/// How much a look at these pods of a node takes, in comparisons of a pod with a key of a selector: see [`LOOKS_AT_ONCE`].
pub fn cost<'p>(
    pods: impl ExactSizeIterator<Item = &'p PodItem>,
    budgets: &'p [impl AsRef<Item<Budget>>],
) -> usize {
    let each = OF_POD * pods.len() + OF_BUDGET * budgets.len();
    let compared: usize = comparisons(&by_namespace(pods, budgets)).map(|(_, compared)| compared).sum();
    each + if compared > COMPARED_MAX { 0 } else { compared }
}

/// What to tell people about a namespace whose budgets are too many for its pods on a node.
fn incomparable(namespace: &str) -> String {
    format!(
        "the PodDisruptionBudgets of namespace {namespace} have too many keys and values to compare them with each of its \
         pods on this node: delete some, or shorten their selectors"
    )
}

/// Why the pods of one node can never all be evicted, as pods and budgets are now; `None` if they can. Either a pod has
/// no controller, or its budgets allow no disruption with as many pods as there are, or a pod or a budget of its
/// namespace cannot be read, or a pod should have ended by now. The operator's own pods (`is_operator_pod`) are exempt.
/// `orphaned` finds pods whose `DaemonSet` is gone.
fn undrainable<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
    orphaned: impl Fn(&PodItem) -> bool,
    time: Timestamp,
) -> Option<String> {
    let mut why: Vec<String> = vec![];
    for item in pods {
        if is_operator_pod(item) {
            continue;
        }
        let namespace = item.namespace();
        match drain_action(item, orphaned(item)) {
            DrainAction::Unmanaged => why.push(unmanaged(namespace, item.name())),
            DrainAction::Unreadable(problem) => why.push(unreadable(namespace, item.name(), problem)),
            DrainAction::Evicted => {
                let here = budgets.get(namespace).map_or(&[][..], |(_, here)| here);
                why.extend(item.ok().and_then(|pod| forbidden(pod, here.iter().copied())));
            }
            DrainAction::Leaving if noted::is_overdue(item, time) => {
                why.push(overdue(namespace, item.name(), gone_by(item)));
            }
            DrainAction::Stays | DrainAction::Leaving => {}
        }
    }
    // The smallest one, so that the answer changes as rarely as possible.
    why.into_iter().min()
}

/// Which budget allows no disruption now, although one of these pods of a node needs one; `None` if each allows one. A pod
/// that is not Ready, and that its budget [spares](spares), may be well once it is elsewhere, and the budget may allow one
/// then: so a budget that spares one of them is set aside.
fn blocked<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    let mut evicted_from: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for item in evicted(pods, is_operator_pod) {
        if let Some(pod) = item.ok().filter(|pod| is_budgeted(pod)) {
            evicted_from.entry(item.namespace()).or_default().push(pod);
        }
    }
    let there = evicted_from.iter().filter_map(|(namespace, pods)| Some((pods, &budgets.get(namespace)?.1)));
    let pairs = there.flat_map(|(pods, budgets)| budgets.iter().map(move |budget| (pods, *budget)));
    let allows_none = pairs.filter(|(pods, item)| {
        let Some(budget) = item.ok().filter(|budget| is_shut(budget)) else {
            return false;
        };
        let (mut any, mut all_held) = (false, true);
        for pod in pods.iter().filter(|pod| selects(budget, pod)) {
            (any, all_held) = (true, all_held && !spares(budget, pod));
        }
        any && all_held
    });
    let why =
        allows_none.map(|(_, item)| format!("the PodDisruptionBudget {}/{}", item.namespace(), item.name()));
    why.min()
}

/// The pods of a node that a drain would evict, the operator's own aside.
fn evicted<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> impl Iterator<Item = &'p PodItem> {
    let stays =
        move |item: &PodItem| is_operator_pod(item) || drain_action(item, false) != DrainAction::Evicted;
    pods.into_iter().filter(move |item| !stays(item))
}

/// The annotation by which this pod, which is running, asks not to be disrupted.
fn asks_for(pod: &Pod) -> Option<&'static str> {
    pod.do_not_disrupt.filter(|_| is_budgeted(pod))
}

fn asks(namespace: &str, name: &str, annotation: &str) -> String {
    format!("the annotation {annotation} of the pod {namespace}/{name}")
}

/// Which of these pods of a node asks not to be disrupted, if one does that would have to be evicted.
fn undisturbed<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    evicted(pods, is_operator_pod)
        .filter_map(|item| Some(asks(item.namespace(), item.name(), item.ok().and_then(asks_for)?)))
        .min()
}

/// The first of these pods that a budget covers, as a sentence, and what makes it again; `None` if there is none. A budget
/// that cannot be read covers all of its namespace.
pub fn covered<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &[impl AsRef<Item<Budget>>],
) -> Option<(String, String)> {
    let covers = |budget: &&Item<Budget>, pod: &PodItem| {
        let selected = || Some(selects(budget.ok()?, pod.ok()?));
        budget.namespace() == pod.namespace() && selected().unwrap_or(true)
    };
    let why = pods.into_iter().filter_map(|pod| {
        let budget = budgets.iter().map(AsRef::as_ref).find(|budget| covers(budget, pod))?;
        let (namespace, name, budget) = (pod.namespace(), pod.name(), budget.name());
        let why = format!("{namespace}/{name}, which the PodDisruptionBudget {namespace}/{budget} covers");
        Some((why, identity(pod)))
    });
    why.min()
}

/// Do budgets hold up the eviction of this pod? They do not hold up one that has ended, or has not begun.
fn is_budgeted(pod: &Pod) -> bool {
    !pod.finished && !pod.pending
}

/// Does this budget allow no disruption now?
fn is_shut(budget: &Budget) -> bool {
    budget.allowed <= 0 && budget.observed
}

/// Does this budget, which covers the pod, let it go whatever it allows now, for the pod is not Ready?
fn spares(budget: &Budget, pod: &Pod) -> bool {
    !pod.is_ready() && (budget.spares_ready_only || budget.enough_healthy)
}

/// Why the budgets of a pod's namespace never allow its eviction; `None` if they may. The rules are those of the API
/// server's eviction.
fn forbidden<'b>(pod: &Pod, budgets: impl Iterator<Item = &'b Item<Budget>>) -> Option<String> {
    let (mut unread, mut selecting, mut requirements) = (vec![], vec![], 0);
    for item in budgets {
        match &item.body {
            Err(why) => unread.push((item, why)),
            Ok(budget) => {
                requirements += budget.requirements;
                // Anybody with a namespace can make thousands of budgets.
                if requirements > REQUIREMENTS_MAX {
                    return Some(format!(
                        "the selectors of the PodDisruptionBudgets of namespace {} have more than {REQUIREMENTS_MAX} keys \
                         and values together: delete some, or shorten them",
                        item.namespace()
                    ));
                }
                if selects(budget, pod) {
                    selecting.push((item, budget));
                }
            }
        }
    }
    if let Some((item, why)) = unread.first() {
        return Some(format!(
            "the PodDisruptionBudget {}/{} cannot be read, for {why}, and might cover any pod of its namespace: repair \
             or delete it",
            item.namespace(),
            item.name()
        ));
    }
    if !is_budgeted(pod) {
        return None;
    }
    match &selecting[..] {
        [] => None,
        [(_, budget)] if budget.spares_ready_only && !pod.is_ready() => None,
        [(item, budget)] => never(budget)
            .map(|why| format!("the PodDisruptionBudget {}/{} {why}", item.namespace(), item.name())),
        [(first, _), (second, _), ..] => Some(format!(
            "the PodDisruptionBudgets {}/{} and {} select the same pods, and Kubernetes evicts no pod of two budgets",
            first.namespace(),
            first.name(),
            second.name()
        )),
    }
}

/// Why a budget never allows a disruption, with as many pods as there are. A pod that is not Ready may go only if as many
/// others are healthy as should be; if that is all of them, there are never enough.
fn never(budget: &Budget) -> Option<String> {
    if budget.sync_failed {
        return Some(
            "allows no disruption, because Kubernetes cannot compute it (SyncFailed): kubectl describe pdb says why".to_owned(),
        );
    }
    let all = budget.observed && budget.expected_pods > 0 && budget.desired_healthy >= budget.expected_pods;
    all.then(|| {
        format!(
            "wants all of its {} pods healthy: let it allow one disruption, or add a pod",
            budget.expected_pods
        )
    })
}

fn selects(budget: &Budget, pod: &Pod) -> bool {
    budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
}

/// Did this budget change in a way that matters to a drain?
pub fn matters(old: &Item<Budget>, new: &Item<Budget>) -> bool {
    let shape = |item: &Item<Budget>| item.body.clone().map(|budget| Budget { allowed: 0, ..budget });
    allowed(old) < allowed(new) || shape(old) != shape(new)
}

/// How many disruptions this budget allows now.
fn allowed(budget: &Item<Budget>) -> i32 {
    budget.ok().map_or(0, |budget| budget.allowed)
}

#[cfg(test)]
mod tests;
