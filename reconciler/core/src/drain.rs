//! Plans a drain: which pods it evicts, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` decides, and in
//! which order.

mod obstacles;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::Marker;
use brupop_api::item::Unreadable;
use brupop_api::marker::OPERATOR_PODS_MAX;
use jiff::{SignedDuration, Timestamp};

use crate::objects::{Controller, Pod, PodItem};
use crate::workloads::owner;

use obstacles::is_budgeted;
pub use obstacles::{Budgets, LOOKS_AT_ONCE, blocked_pods, cost, matters, obstacle};

/// A pod that is still there so long after its grace period is overdue.
pub const LATE: SignedDuration = SignedDuration::from_secs(30);

/// A node whose pods nobody looks at, as what makes its drain impossible.
pub const TOO_MANY_PODS: &str =
    "it has too many pods, or too large ones, to look at (more than 2 MiB, some 2,000 pods)";

/// A scheduler may bind pods for so long after the cordon, because it has not seen it.
const SCHEDULER_LAG: Duration = Duration::from_mins(1);
/// A pod that came after the cordon is not evicted for so long, which limits how often its controller makes it again.
const ARRIVAL_PAUSE: Duration = Duration::from_secs(10);

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
                "{namespace}/{name} has no controller that would recreate it elsewhere: delete it by hand"
            ),
            Self::Unreadable(why) => {
                format!("the pod {namespace}/{name} cannot be read, for {why}: repair or delete it")
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
    /// Pods are left that a budget blocked when the drain began.
    pub first_left: bool,
    /// A budget blocks one of the pods now.
    pub is_blocked: bool,
    /// One of the pods uses a claim of a volume.
    pub has_claims: bool,
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
            plan.has_claims |= pod.ok().is_some_and(|pod| pod.has_claim);
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

    /// Notes whether pods (UIDs) are left that are evicted before all others. If they are `alone`, others are not evicted
    /// meanwhile.
    pub fn put_first(&mut self, first: &BTreeSet<String>, alone: bool) {
        if self.evict_operator_pods {
            return;
        }
        let leaving = self.leaving.iter().map(|(_, pod)| pod);
        self.first_left = self
            .evict
            .iter()
            .chain(&self.held)
            .chain(leaving)
            .any(|pod| first.contains(&pod.uid));
        if self.first_left && alone {
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
    } else if pod.finished || pod.controller.is_some() {
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
        "{namespace}/{name} should have ended by {by}: see its finalizers, and its node's kubelet"
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
    /// A sentence about it.
    pub fn why(&self) -> &str {
        match self {
            Self::Never(why) | Self::Budget { why, .. } => why,
            Self::TooManyPods => TOO_MANY_PODS,
        }
    }
}

/// The annotation by which this pod, which is running, asks not to be disrupted.
fn asks_for(pod: &Pod) -> Option<&'static str> {
    pod.do_not_disrupt.filter(|_| is_budgeted(pod))
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

#[cfg(test)]
mod tests;
