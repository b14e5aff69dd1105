//! What a drain that fails has failed on: what is noted of it, whether that is still so, and who is evicted first then.

use std::collections::BTreeSet;

use brupop_api::Item;
use brupop_api::crds::OBSTACLE_MAX;
use brupop_api::printable::printable;
use brupop_api::shadow::{DrainObstacle, Failures, ObstacleKind};
use jiff::{SignedDuration, Timestamp};

use super::budgets::{is_budgeted, is_shut, selects, spares};
use super::{DrainAction, DrainPlan, Obstacle, PodKey, drain_action, gone_by, identity};
use crate::objects::{Budget, PodItem};
use crate::times;

/// A pod that is still there so long after its grace period is overdue.
pub const LATE: SignedDuration = SignedDuration::from_secs(30);
/// What a drain failed on holds its node up for so long at most: nobody knows of it whether the next drain would fail, too.
const NOTED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// When a node is looked at, how long a drain of it may take, and how its last one failed.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'f> {
    /// The time.
    pub time: Timestamp,
    /// How long a drain may take.
    pub deadline: SignedDuration,
    /// Are pods respected that ask not to be disrupted?
    pub respects: bool,
    /// Failed attempts since the last success.
    pub failures: Option<&'f Failures>,
}

impl<'f> Circumstances<'f> {
    /// What the last drain failed on, and until when that counts, if it still does.
    fn noted(&self) -> Option<(&'f DrainObstacle, Timestamp)> {
        let failures = self.failures?;
        let obstacle = failures.obstacle.as_ref()?;
        let at = obstacle.at.as_ref().unwrap_or(&failures.at);
        let until = times::read(Some(at))?.checked_add(NOTED_FOR).ok()?;
        (self.time < until).then_some((obstacle, until))
    }

    /// When time alone changes what stands in the way of a drain of these pods, for the next time.
    pub fn changes_at<'p>(&self, pods: impl Iterator<Item = &'p PodItem>) -> Option<Timestamp> {
        let leaving = pods.filter(|pod| drain_action(pod, false) == DrainAction::Leaving);
        let late = leaving.filter_map(|pod| gone_by(pod).checked_add(LATE).ok());
        late.chain(self.noted().map(|(_, until)| until)).filter(|at| *at > self.time).min()
    }
}

/// Should this pod, which terminates, have ended long ago?
pub(super) fn is_overdue(pod: &PodItem, time: Timestamp) -> bool {
    time.duration_since(gone_by(pod)) >= LATE
}

/// What to tell people about a pod that should have ended.
pub fn overdue(namespace: &str, name: &str, by: Timestamp) -> String {
    format!("{namespace}/{name} should have ended by {by}: see its finalizers, and its node's kubelet")
}

/// The owner of this pod, fit for an object that people read.
fn owner_of(pod: &PodItem) -> String {
    printable(&identity(pod), OBSTACLE_MAX).into_owned()
}

/// Is this pod, which a drain would evict or wait for, one of those that are noted, perhaps with this budget?
fn concerns(noted: &DrainObstacle, pod: &PodItem, budget: Option<&Item<Budget>>) -> bool {
    match noted.kind {
        ObstacleKind::Overdue => pod.uid() == noted.of,
        ObstacleKind::Refused | ObstacleKind::GracePeriod | ObstacleKind::ComesBack => {
            pod.body.is_ok() && owner_of(pod) == noted.of
        }
        ObstacleKind::Budget => budget.is_some_and(|budget| covers(budget, pod)),
    }
}

/// The budget that is noted, if one is.
fn named<'b>(noted: &DrainObstacle, budgets: &'b [impl AsRef<Item<Budget>>]) -> Option<&'b Item<Budget>> {
    let budget = (noted.kind == ObstacleKind::Budget).then_some(&noted.of);
    let (namespace, name) = budget?.split_once('/')?;
    budgets.iter().map(AsRef::as_ref).find(|budget| budget.namespace() == namespace && budget.name() == name)
}

fn covers(budget: &Item<Budget>, pod: &PodItem) -> bool {
    budget.namespace() == pod.namespace()
        && budget.ok().zip(pod.ok()).is_some_and(|(budget, pod)| selects(budget, pod))
}

/// Does this budget allow no disruption now, although the pod needs one?
fn holds(item: &Item<Budget>, pod: &PodItem) -> bool {
    let needs_it = |budget| pod.ok().is_some_and(|pod| is_budgeted(pod) && !spares(budget, pod));
    covers(item, pod) && item.ok().filter(|budget| is_shut(budget)).is_some_and(needs_it)
}

/// What a drain with this plan fails on if it fails now, without a time. `is_refused` finds pods whose eviction is refused,
/// though not by a budget.
pub fn failing_on<'p, P: Iterator<Item = &'p PodItem>>(
    plan: &DrainPlan,
    pods: impl Fn() -> P,
    budgets: &[impl AsRef<Item<Budget>>],
    is_refused: impl Fn(&PodKey) -> bool,
    time: Timestamp,
) -> Option<DrainObstacle> {
    let noted = |kind, of| DrainObstacle { kind, of, at: None };
    let find = |key: &PodKey| pods().find(|pod| pod.uid() == key.uid);
    let of_owner = |kind, key| Some(noted(kind, owner_of(find(key)?)));
    let comes_back = || {
        let owner = plan.needed_by.as_ref().or_else(|| plan.returning.first())?;
        Some(noted(ObstacleKind::ComesBack, printable(owner, OBSTACLE_MAX).into_owned()))
    };
    let overdue = || {
        let (by, key) = plan.leaving.first()?;
        (time.duration_since(*by) >= LATE).then(|| noted(ObstacleKind::Overdue, key.uid.clone()))
    };
    let refused = || of_owner(ObstacleKind::Refused, plan.evict.iter().find(|pod| is_refused(pod))?);
    let shut = || {
        let evicted: BTreeSet<&str> = plan.evict.iter().map(|pod| pod.uid.as_str()).collect();
        pods().filter(|pod| evicted.contains(pod.uid())).find_map(|pod| {
            let budget = budgets.iter().map(AsRef::as_ref).find(|budget| holds(budget, pod))?;
            Some(noted(ObstacleKind::Budget, format!("{}/{}", budget.namespace(), budget.name())))
        })
    };
    let still_ending = || of_owner(ObstacleKind::GracePeriod, &plan.leaving.last()?.1);
    comes_back().or_else(overdue).or_else(refused).or_else(shut).or_else(still_ending)
}

/// What the last drain failed on, if that is still so of these pods of the node.
pub(super) fn still<'p>(
    pods: impl Iterator<Item = &'p PodItem>,
    budgets: &[impl AsRef<Item<Budget>>],
    now: &Circumstances<'_>,
) -> Option<Obstacle> {
    let (noted, until) = now.noted()?;
    let (of, budget) = (&noted.of, named(noted, budgets));
    let is_leaving = |pod: &&PodItem| drain_action(pod, false) == DrainAction::Leaving;
    let mut pods =
        pods.filter(|pod| drain_action(pod, false) != DrainAction::Stays && concerns(noted, pod, budget));
    let mut staying = || pods.find(|pod| !is_leaving(pod));
    let name = |pod: &PodItem| format!("{}/{}", pod.namespace(), pod.name());
    let why = match noted.kind {
        ObstacleKind::Budget => {
            let budget = budget?;
            let is_shut = pods.any(|pod| !is_leaving(&pod) && holds(budget, pod));
            let budget = format!("the PodDisruptionBudget {of}");
            return is_shut.then_some(Obstacle::Now { budget, for_long: false });
        }
        ObstacleKind::Overdue => {
            let pod = pods.find(is_leaving)?;
            return Some(Obstacle::Never(overdue(pod.namespace(), pod.name(), gone_by(pod))));
        }
        ObstacleKind::GracePeriod => {
            let graces = pods.filter_map(|pod| Some((pod.ok()?.grace_period, pod)));
            let (grace, pod) = graces.max_by_key(|(grace, _)| *grace)?;
            let deadline = now.deadline.as_secs();
            if grace < deadline {
                return None;
            }
            let name = name(pod);
            format!(
                "{name} may take {grace} s to end (terminationGracePeriodSeconds), and its drain {deadline} s: raise \
                 DRAIN_DEADLINE_SECONDS, or spec.drain.timeout of its pool, above that"
            )
        }
        ObstacleKind::Refused => {
            format!("the eviction of pods of {of} was refused, and {} is there", name(staying()?))
        }
        ObstacleKind::ComesBack => {
            format!(
                "pods of {of} came back each time that they were evicted, and {} is there",
                name(staying()?)
            )
        }
    };
    Some(Obstacle::Never(format!(
        "its last drain failed, and it is not drained again before {until} while this is so: {why}"
    )))
}

impl DrainPlan {
    /// Evicts no other pods as long as pods are there on which an earlier drain failed.
    pub fn put_first<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p PodItem>,
        budgets: &[impl AsRef<Item<Budget>>],
        failures: Option<&Failures>,
    ) {
        let Some(noted) = failures.and_then(|failures| failures.obstacle.as_ref()) else { return };
        if self.evict_operator_pods {
            return;
        }
        let budget = named(noted, budgets);
        let first: BTreeSet<&str> =
            pods.filter(|pod| concerns(noted, pod, budget)).map(PodItem::uid).collect();
        let leaving = self.leaving.iter().map(|(_, pod)| pod);
        if self.evict.iter().chain(&self.held).chain(leaving).any(|pod| first.contains(pod.uid.as_str())) {
            let others = self.evict.extract_if(.., |pod| !first.contains(pod.uid.as_str()));
            self.held.extend(others);
        }
    }
}

#[cfg(test)]
mod tests;
