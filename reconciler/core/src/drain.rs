//! Plans a drain: which pods it evicts, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` decides, and in
//! which order. Finds obstacles to a drain before it begins: pods that nobody recreates, budgets, pods that do not end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::item::Unreadable;
use brupop_api::marker::OPERATOR_PODS_MAX;
use brupop_api::names::SAFE_TO_EVICT_ANNOTATION;
use brupop_api::{Item, Marker};
use jiff::{SignedDuration, Timestamp};

use crate::objects::{Budget, Controller, Pod, PodItem};
use crate::workloads::owner;

/// A pod that is still there so long after its grace period is overdue.
pub const LATE: SignedDuration = SignedDuration::from_secs(30);

/// A node whose pods nobody looks at, as what makes its drain impossible.
pub const TOO_MANY_PODS: &str =
    "it has too many pods, or too large ones, to look at (more than 2 MiB, some 2,000 pods)";

/// A scheduler may bind pods for so long after the cordon, because it has not seen it.
const SCHEDULER_LAG: Duration = Duration::from_mins(1);
/// A pod that came after the cordon is not evicted for so long, which limits how often its controller makes it again.
const ARRIVAL_PAUSE: Duration = Duration::from_secs(10);

/// Most comparisons of the pods of one node with keys and values of selectors: as many as the 110 pods that a kubelet runs,
/// unless it is told otherwise, take in a namespace with 4096 of them. Anybody with a namespace can make thousands of budgets.
const COMPARED_MAX: usize = 110 * 4096;

/// The action of a drain on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// It stays, and a drain does not wait for it: a mirror pod, a pod of a `DaemonSet`, one that has run to its end and is
    /// held by a finalizer.
    Stays,
    Evicted,
    /// It is terminating; the drain waits for it.
    Leaving,
    Stuck(Stuck),
}

/// Reasons why a pod holds a drain up until a person decides, or the pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// It has no controller that would make it again.
    Unmanaged,
    Unreadable(Unreadable),
    /// It asks by this annotation not to be disrupted, where that is respected.
    Undisturbed(&'static str),
}

impl Stuck {
    /// Returns what to tell people about this pod.
    fn told_of(self, namespace: &str, name: &str) -> String {
        match self {
            Self::Unmanaged => format!(
                "the pod {namespace}/{name} has no controller that would recreate it elsewhere: delete it, or annotate it with \
                 {SAFE_TO_EVICT_ANNOTATION}=true"
            ),
            Self::Unreadable(why) => {
                format!("the pod {namespace}/{name} cannot be read ({why}): repair or delete it")
            }
            Self::Undisturbed(annotation) => {
                format!(
                    "the annotation {annotation} of the pod {namespace}/{name} allows no disruption"
                )
            }
        }
    }
}

/// One pod, as an eviction names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodKey {
    /// The key of this pod.
    pub fn of(pod: &PodItem) -> Self {
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
        }
    }
}

/// The work of a drain of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct DrainPlan {
    pub evict: Vec<PodKey>,
    /// Pods of the operator, to evict when no other is left: one of them may be the process that drains.
    pub last: Vec<PodKey>,
    /// It is the turn of the operator's own pods: `evict` holds no others.
    pub evict_operator_pods: bool,
    /// It would be their turn, but the marker does not list them yet. Their UIDs.
    pub operator_pods: Vec<String>,
    /// Pods that are not evicted now, though they may not stay.
    pub held: Vec<PodKey>,
    /// Pods that the drain does not wait for; see [`Arrivals::is_left`].
    pub left: Vec<PodKey>,
    /// A budget blocks one of the pods now.
    pub is_blocked: bool,
    /// Terminating pods, and when each should be gone.
    pub leaving: Vec<(Timestamp, PodKey)>,
    /// Pods that should have been gone by then are not waited for any more.
    pub overlooked: Option<Timestamp>,
    /// Pods that hold the drain up; those that ask not to be disrupted come last.
    pub stuck: Vec<(PodKey, Stuck)>,
    /// The workloads whose pods are evicted or terminating, as `<apiVersion>/<kind>/<namespace>/<name>`.
    pub owners: BTreeSet<String>,
}

impl DrainPlan {
    /// The plan for these pods of one node. The operator's own pods (`is_operator_pod`) tolerate the cordon, and come back
    /// if there is no better node: those that the marker lists are evicted, and others stay. So do pods that should have been
    /// gone by the time `overlooked`.
    pub fn of<'p>(
        pods: impl IntoIterator<Item = &'p PodItem>,
        is_operator_pod: impl Fn(&PodItem) -> bool,
        marker: Option<&Marker>,
        overlooked: Option<Timestamp>,
    ) -> Self {
        let mut plan = Self {
            overlooked,
            ..Self::default()
        };
        let listed = marker.map_or(&[][..], |marker| &marker.operator_pods);
        for pod in pods {
            let (ours, action) = (is_operator_pod(pod), drain_action(pod));
            let came_back =
                ours && !listed.is_empty() && !listed.iter().any(|uid| uid == pod.uid());
            let stays = match action {
                DrainAction::Stays => true,
                DrainAction::Stuck(_) => false,
                // A terminating webhook serves a little longer. Nobody has to wait for that: its budget has seen to
                // another one that is Ready, and a reboot ends its connections no worse than its own end does.
                DrainAction::Leaving => {
                    ours || overlooked.is_some_and(|before| gone_by(pod) <= before)
                }
                DrainAction::Evicted => came_back,
            };
            if stays {
                continue;
            }
            let key = PodKey::of(pod);
            match action {
                DrainAction::Stays => {}
                DrainAction::Leaving => plan.leaving.push((gone_by(pod), key)),
                DrainAction::Stuck(why) => plan.stuck.push((key, why)),
                DrainAction::Evicted if ours => plan.last.push(key),
                DrainAction::Evicted => plan.evict.push(key),
            }
            plan.owners.extend(owner(pod));
        }
        plan.last.sort_unstable();
        plan.turn_to_operator_pods(!listed.is_empty());
        plan.evict.sort_unstable();
        plan.leaving.sort_unstable();
        let rank = |why: &Stuck| *why != Stuck::Unmanaged;
        plan.stuck
            .sort_by(|(one, why), (other, its)| (rank(why), one).cmp(&(rank(its), other)));
        plan
    }

    /// Once no other pod is left, the operator's own are listed in the marker; those that are listed are evicted.
    fn turn_to_operator_pods(&mut self, are_listed: bool) {
        if !self.evict.is_empty() || !self.leaving.is_empty() || !self.stuck.is_empty() {
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

    /// The pods that are evicted, held or terminating.
    pub fn remaining(&self) -> impl Iterator<Item = &PodKey> {
        let leaving = self.leaving.iter().map(|(_, pod)| pod);
        leaving.chain(&self.evict).chain(&self.held)
    }

    /// Returns how many of the pods cannot be read.
    pub fn unreadable_pods(&self) -> usize {
        let unreadable = |why: &Stuck| matches!(why, Stuck::Unreadable(_));
        self.stuck.iter().filter(|(_, why)| unreadable(why)).count()
    }

    /// The pods that hold the drain up, each as a sentence.
    pub fn for_people(&self) -> impl Iterator<Item = String> {
        self.stuck.iter().map(|(pod, why)| {
            let told = why.told_of(&pod.namespace, &pod.name);
            match why {
                Stuck::Undisturbed(_) => format!("{told}, so the drain waits for the pod's end"),
                _ => told,
            }
        })
    }

    /// Also removes pods that hold the drain up.
    #[must_use]
    pub fn forced(mut self) -> Self {
        self.evict.extend(self.stuck.drain(..).map(|(pod, _)| pod));
        self.evict.sort_unstable();
        self
    }

    /// Does not evict the pods that ask not to be disrupted, the operator's own aside.
    pub fn respect<'p>(&mut self, pods: impl IntoIterator<Item = &'p PodItem>) {
        if self.evict_operator_pods {
            return;
        }
        let asking = pods
            .into_iter()
            .filter_map(|pod| Some((pod.uid(), pod.ok().and_then(asks_for)?)));
        let asking: BTreeMap<&str, &'static str> = asking.collect();
        let asks = |pod: &mut PodKey| asking.contains_key(pod.uid.as_str());
        let stay = self.evict.extract_if(.., asks).map(|pod| {
            let annotation = asking.get(pod.uid.as_str()).copied().unwrap_or_default();
            (pod, Stuck::Undisturbed(annotation))
        });
        self.stuck.extend(stay);
    }

    /// As long as one of these pods (UIDs) is left, others are not evicted.
    pub fn put_first(&mut self, first: &BTreeSet<String>) {
        if self.remaining().any(|pod| first.contains(&pod.uid)) {
            self.hold(|uid| !first.contains(uid));
        }
    }

    /// Does not evict the pods now of which this holds (UIDs).
    pub fn hold(&mut self, is_held: impl Fn(&str) -> bool) {
        self.held
            .extend(self.evict.extract_if(.., |pod| is_held(&pod.uid)));
    }

    /// Whether nothing is left to evict, to wait for, or to ask a person about.
    pub fn is_done(&self) -> bool {
        let pods = [&self.evict, &self.held, &self.last];
        let none_left = pods.iter().all(|pods| pods.is_empty()) && self.leaving.is_empty();
        none_left && self.stuck.is_empty()
    }
}

/// Returns what a drain does about this pod. One of a `DaemonSet` that is gone stays, too, and ends with the reboot.
pub fn drain_action(item: &PodItem) -> DrainAction {
    let pod = match &item.body {
        Ok(pod) => pod,
        Err(why) => return DrainAction::Stuck(Stuck::Unreadable(*why)),
    };
    let is_daemon =
        |owner: &Controller| owner.api_version == "apps/v1" && owner.kind == "DaemonSet";
    let of_daemon = pod.controller.as_ref().is_some_and(is_daemon);
    let is_over = pod.finished && pod.gone_by.is_some();
    if pod.is_mirror || is_over || (of_daemon && !pod.finished) {
        DrainAction::Stays
    } else if pod.gone_by.is_some() {
        DrainAction::Leaving
    } else if pod.finished || pod.controller.is_some() || pod.safe_to_evict {
        DrainAction::Evicted
    } else {
        DrainAction::Stuck(Stuck::Unmanaged)
    }
}

/// The first time after `now` at which one of these pods becomes overdue.
pub fn next_overdue<'p>(
    pods: impl Iterator<Item = &'p PodItem>,
    now: Timestamp,
) -> Option<Timestamp> {
    let leaving = pods.filter(|pod| drain_action(pod) == DrainAction::Leaving);
    let late = leaving.filter_map(|pod| gone_by(pod).checked_add(LATE).ok());
    late.filter(|at| *at > now).min()
}

/// Whether this pod, which terminates, should have ended long ago.
fn is_overdue(pod: &PodItem, now: Timestamp) -> bool {
    now.duration_since(gone_by(pod)) >= LATE
}

/// Returns what to tell people about a pod that should have ended.
pub fn overdue(namespace: &str, name: &str, by: Timestamp) -> String {
    format!(
        "the pod {namespace}/{name} should have ended by {by}: check its finalizers, and its node's kubelet"
    )
}

/// When the pod's termination grace period ends.
fn gone_by(pod: &PodItem) -> Timestamp {
    pod.ok()
        .and_then(|pod| pod.gone_by)
        .unwrap_or(Timestamp::MAX)
}

/// An obstacle to a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No drain could empty the node. Holds why.
    Never(String),
    /// It has so many pods that they are not looked at; see [`crate::kept`].
    TooManyPods,
    /// A budget allows no disruption now.
    Budget {
        why: String,
        /// The node has waited for budgets for as long as a drain may take.
        waited: bool,
    },
}

impl Obstacle {
    /// Describes the obstacle in a sentence.
    pub fn why(&self) -> &str {
        match self {
            Self::Never(why) | Self::Budget { why, .. } => why,
            Self::TooManyPods => TOO_MANY_PODS,
        }
    }
}

/// The annotation by which this pod, which is running, asks not to be disrupted.
fn asks_for(pod: &Pod) -> Option<&'static str> {
    pod.do_not_disrupt.filter(|_| pod.is_budgeted())
}

/// The pods (UIDs) of a node that is being drained, and when each was first seen. Times are durations since any fixed moment of a
/// monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    listed: Duration,
    first_seen: BTreeMap<String, Duration>,
}

impl Arrivals {
    /// Records the pods that are on the node now. Without `before`, they are those of the list that follows the cordon.
    pub fn record<'p>(
        before: Option<&Self>,
        pods: impl IntoIterator<Item = &'p PodItem>,
        now: Duration,
    ) -> Self {
        let first_seen = |uid: &str| before.and_then(|before| before.first_seen.get(uid));
        let pods = pods.into_iter().map(PodItem::uid);
        Self {
            listed: before.map_or(now, |before| before.listed),
            first_seen: pods
                .map(|uid| (uid.to_owned(), *first_seen(uid).unwrap_or(&now)))
                .collect(),
        }
    }

    /// Whether the drain does not wait for this pod: it tolerates the cordon, and came so late that another eviction would only
    /// bring the next one.
    pub fn is_left(&self, pod: &PodItem) -> bool {
        let is_late = |seen: &Duration| *seen > self.listed + SCHEDULER_LAG;
        pod.ok().is_some_and(|pod| pod.tolerates_cordon)
            && self.first_seen.get(pod.uid()).is_some_and(is_late)
    }

    /// Returns the pods that came so recently that they are not evicted yet, each with when it may be.
    pub fn recent(&self, now: Duration) -> BTreeMap<&str, Duration> {
        let arrived = self
            .first_seen
            .iter()
            .filter(|(_, seen)| **seen > self.listed);
        arrived
            .map(|(uid, seen)| (uid.as_str(), *seen + ARRIVAL_PAUSE))
            .filter(|(_, due)| *due > now)
            .collect()
    }
}

/// Returns what stands in the way of a drain of these pods of one node, if anything does; the operator's own pods
/// (`is_operator_pod`) are exempt. A drain that `respects` pods that ask not to be disrupted waits for their end.
pub fn obstacle<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &'p [impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool + Copy,
    respects: bool,
    now: Timestamp,
) -> Option<Obstacle> {
    let pods = || pods().filter(move |pod| !is_operator_pod(pod));
    let here = by_namespace(pods(), budgets);
    if is_incomparable(&here) {
        let most = comparisons(&here).max_by_key(|(_, compared)| *compared);
        return most.map(|(namespace, _)| Obstacle::Never(incomparable(namespace)));
    }
    let asking = || undisturbed(pods()).filter(|_| respects);
    let never = undrainable(pods(), &here, now).or_else(asking);
    never.map(Obstacle::Never).or_else(|| {
        Some(Obstacle::Budget {
            why: blocked(pods(), &here)?,
            waited: false,
        })
    })
}

/// The pods (UIDs) of a node whose eviction a budget refuses now, the operator's own (`is_operator_pod`) aside.
pub fn blocked_pods<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &'p [impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> BTreeSet<String> {
    let here = by_namespace(pods(), budgets);
    if is_incomparable(&here) {
        return BTreeSet::new();
    }
    let is_blocked = |item: &&PodItem| {
        let budgets = here.get(item.namespace()).map_or(&[][..], |(_, here)| here);
        let mut pairs = budgets
            .iter()
            .filter_map(|budget| budget.ok().zip(item.ok()));
        pairs.any(|(budget, pod)| budget.holds(pod))
    };
    let blocked = evicted(pods())
        .filter(|pod| !is_operator_pod(pod))
        .filter(is_blocked);
    blocked.map(|item| item.uid().to_owned()).collect()
}

/// The pods (UIDs) of a node whose grace period is longer than its drain, in seconds.
pub fn slow_pods<'p>(pods: impl Iterator<Item = &'p PodItem>, drain: i64) -> BTreeSet<String> {
    let ends = |pod: &PodItem| {
        let action = drain_action(pod);
        matches!(action, DrainAction::Evicted | DrainAction::Leaving)
    };
    let is_slow = |pod: &&PodItem| pod.ok().is_some_and(|it| it.grace > drain) && ends(pod);
    pods.filter(is_slow)
        .map(|pod| pod.uid().to_owned())
        .collect()
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

/// Returns how many comparisons a look at the pods of each namespace takes.
fn comparisons<'h>(here: &'h ByNamespace<'_>) -> impl Iterator<Item = (&'h str, usize)> {
    let each = |budget: &&Item<Budget>| 1 + budget.ok().map_or(0, |budget| budget.requirements);
    here.iter().map(move |(namespace, (pods, budgets))| {
        (*namespace, pods * budgets.iter().map(each).sum::<usize>())
    })
}

/// Whether the pods of a node and the budgets of their namespaces are too many to be compared.
fn is_incomparable(here: &ByNamespace<'_>) -> bool {
    comparisons(here)
        .map(|(_, compared)| compared)
        .sum::<usize>()
        > COMPARED_MAX
}

/// Returns what to tell people about a namespace whose budgets are too many for its pods on a node.
fn incomparable(namespace: &str) -> String {
    format!(
        "the PodDisruptionBudgets of the namespace {namespace} have too many selectors to compare them with each of its pods on \
         this node: delete some, or shorten their selectors"
    )
}

/// Returns why the pods of one node can never all be evicted; `None` if they can. Either a pod has no controller, or two
/// budgets, or a pod or a budget of its namespace cannot be read, or a pod should have ended by now.
fn undrainable<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
    time: Timestamp,
) -> Option<String> {
    let why = pods.into_iter().filter_map(|item| {
        let namespace = item.namespace();
        match drain_action(item) {
            DrainAction::Stuck(stuck) => Some(stuck.told_of(namespace, item.name())),
            DrainAction::Evicted => {
                let here = budgets.get(namespace).map_or(&[][..], |(_, here)| here);
                forbidden(item.ok()?, here)
            }
            DrainAction::Leaving if is_overdue(item, time) => {
                Some(overdue(namespace, item.name(), gone_by(item)))
            }
            DrainAction::Stays | DrainAction::Leaving => None,
        }
    });
    // The smallest one, so that the answer changes as rarely as possible.
    why.min()
}

/// Returns why the budgets of a pod's namespace never allow its eviction, whatever becomes of their pods; `None` if they may.
/// The rules are those of the API server's eviction.
fn forbidden(pod: &Pod, budgets: &[&Item<Budget>]) -> Option<String> {
    let mut unread = budgets
        .iter()
        .filter_map(|item| Some((item, item.body.as_ref().err()?)));
    if let Some((item, why)) = unread.next() {
        return Some(format!(
            "the PodDisruptionBudget {}/{} cannot be read ({why}), and might cover any pod of its namespace: repair or \
             delete it",
            item.namespace(),
            item.name()
        ));
    }
    if !pod.is_budgeted() {
        return None;
    }
    let mut selecting = budgets
        .iter()
        .filter(|item| item.ok().is_some_and(|it| it.covers(pod)));
    let (first, second) = (selecting.next()?, selecting.next()?);
    Some(format!(
        "the PodDisruptionBudgets {}/{} and {} select the same pods, and Kubernetes evicts no pod of two budgets: change one",
        first.namespace(),
        first.name(),
        second.name()
    ))
}

/// Returns why a budget allows no disruption now, although one of these pods of a node needs one; `None` if each allows one. A
/// pod that is not Ready, and that its budget [spares](Budget::spares), may be well once it is elsewhere, and the budget may
/// allow one then, so a budget that spares one of them is set aside.
fn blocked<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
) -> Option<String> {
    let mut evicted_from: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for item in evicted(pods) {
        if let Some(pod) = item.ok().filter(|pod| pod.is_budgeted()) {
            evicted_from.entry(item.namespace()).or_default().push(pod);
        }
    }
    let there = evicted_from
        .iter()
        .filter_map(|(namespace, pods)| Some((pods, &budgets.get(namespace)?.1)));
    let pairs = there.flat_map(|(pods, budgets)| budgets.iter().map(move |budget| (pods, *budget)));
    let why = pairs.filter_map(|(pods, item)| {
        let budget = item.ok().filter(|budget| budget.is_shut())?;
        let (mut any, mut all_held) = (false, true);
        for pod in pods.iter().filter(|pod| budget.covers(pod)) {
            (any, all_held) = (true, all_held && !budget.spares(pod));
        }
        (any && all_held).then(|| {
            format!(
                "the PodDisruptionBudget {}/{} allows no disruption of a pod on the node now ({})",
                item.namespace(),
                item.name(),
                budget.remedy
            )
        })
    });
    why.min()
}

/// The pods of a node that a drain would evict.
fn evicted<'p>(pods: impl IntoIterator<Item = &'p PodItem>) -> impl Iterator<Item = &'p PodItem> {
    pods.into_iter()
        .filter(|item| drain_action(item) == DrainAction::Evicted)
}

/// Returns which of these pods of a node asks not to be disrupted, if one does that would have to be evicted.
fn undisturbed<'p>(pods: impl IntoIterator<Item = &'p PodItem>) -> Option<String> {
    let asking = evicted(pods).filter_map(|item| {
        let stuck = Stuck::Undisturbed(item.ok().and_then(asks_for)?);
        Some(stuck.told_of(item.namespace(), item.name()))
    });
    let told = asking.min()?;
    Some(format!("{told}; the node waits until that pod has ended"))
}

#[cfg(test)]
mod tests;
