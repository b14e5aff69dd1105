//! A look at the pods of one node: what a drain has to do, and what stands in its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::{Item, Marker};
use brupop_core::cluster::Entry;
use brupop_core::deadlines::DrainTime;
use brupop_core::drain::{
    self, DrainAction, DrainPlan, LATE, Obstacle, drain_action, identity, next_overdue,
};
use brupop_core::known::Ahead;
use brupop_core::objects::{Budget, PodItem, is_operator_pod};
use brupop_core::rules::Rules;
use brupop_core::workloads::returns::Returns;
use brupop_core::workloads::{Workload, owner};
use jiff::Timestamp;

use super::Around;
use crate::watches::WorkloadWatches;

/// What follows from the pods of a node. It is computed again only when something changes from which it follows.
pub(super) struct NodePods {
    pub(super) from: Basis,
    /// When time alone changes it.
    pub(super) until: Option<Duration>,
    /// The workloads of the pods.
    pub(super) workloads: Vec<Workload>,
    /// `None` as long as a workload is not known.
    pub(super) drain: Option<NodeDrain>,
    /// The pods (UIDs) that a budget blocked when the drain began.
    first: BTreeSet<String>,
}

/// What a drain has to do, and what stands in its way.
#[derive(PartialEq, Eq)]
pub(super) struct NodeDrain {
    pub(super) plan: Arc<DrainPlan>,
    pub(super) obstacle: Option<Obstacle>,
}

/// From what it follows.
#[derive(PartialEq, Eq)]
pub(super) struct Basis {
    /// Of pods, budgets and workloads; see [`PodWatches`](crate::watches::PodWatches).
    revisions: [u64; 3],
    marker: Option<Marker>,
    time: DrainTime,
    /// Does the node's drain respect pods that ask not to be disrupted?
    respects: bool,
    /// Are pods deleted that are left at the drain's deadline?
    force: bool,
}

impl Basis {
    pub(super) fn of(
        entry: Option<&Entry>,
        revisions: [u64; 3],
        (rules, may_force): (&Rules, bool),
        (ahead, now): (&Ahead, Timestamp),
    ) -> Self {
        let marker = entry.and_then(Entry::marker);
        let node_uid = entry
            .and_then(|entry| entry.node.as_ref())
            .map_or("", |node| node.uid());
        Self {
            revisions,
            marker: marker.cloned(),
            time: DrainTime::of(ahead, (node_uid, marker), rules.durations.drain, now),
            respects: rules.respect_do_not_disrupt,
            force: may_force && rules.wants_force,
        }
    }

    /// Is the update as far as it was, so that at most pods, budgets and workloads are others?
    pub(super) fn is_as_far_as(&self, other: &Self) -> bool {
        let Self {
            revisions: _,
            marker,
            time,
            respects,
            force,
        } = self;
        (marker, time) == (&other.marker, &other.time)
            && (respects, force) == (&other.respects, &other.force)
    }

    /// When the drain began, if it has.
    pub(super) fn begun(&self) -> Option<&str> {
        self.marker.as_ref()?.drain_started_at.as_deref()
    }
}

impl NodePods {
    /// All that decisions depend on.
    pub(super) fn leads_to(&self) -> (&Option<NodeDrain>, Option<Duration>, &[Workload]) {
        (&self.drain, self.until, &self.workloads)
    }
}

/// A look at the pods of one node.
pub(super) struct Look<'l> {
    pub(super) name: &'l str,
    pub(super) around: &'l Around<'l>,
    pub(super) pods: &'l [Arc<PodItem>],
    pub(super) budgets: &'l [Arc<Item<Budget>>],
    pub(super) workloads: &'l WorkloadWatches,
}

impl Look<'_> {
    pub(super) fn at(
        &self,
        from: Basis,
        before: Option<&NodePods>,
        returns: &mut Returns,
    ) -> NodePods {
        let &Self {
            name,
            around,
            budgets,
            workloads,
            ..
        } = self;
        let &Around { api, now, time, .. } = around;
        let ours = |pod: &PodItem| is_operator_pod(pod, &api.namespace);
        let pods = || self.pods.iter().map(AsRef::as_ref);
        let marker = from.marker.as_ref();
        let overlooked = (from.force && from.time.is_over)
            .then(|| time.checked_sub(LATE).ok())
            .flatten();
        let mut plan = DrainPlan::of(pods(), ours, marker, overlooked);
        if from.respects {
            plan.respect(pods());
        }
        let evicted = || pods().filter(|pod| !ours(pod) && drain_action(pod) != DrainAction::Stays);
        let until = leave(&mut plan, returns, name, marker, &evicted, budgets, now);
        let blocked = from
            .begun()
            .map(|_| drain::blocked_pods(pods, budgets, ours))
            .unwrap_or_default();
        plan.is_blocked = !blocked.is_empty();
        let same_drain = before.filter(|before| before.from.begun() == from.begun());
        let first = same_drain.map_or(blocked, |before| before.first.clone());
        plan.put_first(&first, !from.force && !from.time.first_over);
        let after =
            |at: Timestamp| now + Duration::try_from(at.duration_since(time)).unwrap_or_default();
        let until = [
            until,
            next_overdue(pods(), time).map(after),
            from.time.next.map(after),
        ]
        .into_iter()
        .flatten()
        .min();
        plan.note_available(|owner| workloads.found(owner));
        // A drain that has begun does not wait until workloads that appear meanwhile are known.
        let known = from.begun().is_some()
            || pods()
                .filter_map(owner)
                .all(|owner| workloads.found(&owner).is_some());
        let drain = known.then(|| {
            let obstacle = drain::obstacle(pods, budgets, ours, from.respects, time);
            NodeDrain {
                plan: Arc::new(plan),
                obstacle,
            }
        });
        let workloads: BTreeSet<_> = pods()
            .filter_map(|pod| Workload::parse(&owner(pod)?))
            .collect();
        NodePods {
            from,
            until,
            workloads: workloads.into_iter().collect(),
            drain,
            first,
        }
    }
}

/// Notes in the plan whose pods have come back each time, and whether a budget covers what would be left for that. Returns
/// when to look again.
fn leave<'p, P: Iterator<Item = &'p PodItem>>(
    plan: &mut DrainPlan,
    returns: &mut Returns,
    shadow: &str,
    marker: Option<&Marker>,
    pods: &impl Fn() -> P,
    budgets: &[Arc<Item<Budget>>],
    now: Duration,
) -> Option<Duration> {
    let began = marker.and_then(|marker| marker.drain_started_at.as_deref());
    let stay = pods().filter(|pod| pod.ok().is_none_or(|pod| pod.gone_by.is_none()));
    let left = marker.map_or(&[][..], |marker| &marker.left_owners);
    let stay = stay.filter(|pod| !left.contains(&identity(pod)));
    let found = returns.observe(
        shadow,
        began,
        stay.map(|pod| (pod.uid().to_owned(), identity(pod))),
        now,
    );
    plan.hold(&found.held);
    plan.returning = found.owners;
    if !left.is_empty() || !plan.returning.is_empty() {
        let is_left = |pod: &&PodItem| {
            [left, &plan.returning]
                .iter()
                .any(|them| them.contains(&identity(pod)))
        };
        plan.needed = drain::covered(pods().filter(is_left), budgets);
    }
    found.next
}
