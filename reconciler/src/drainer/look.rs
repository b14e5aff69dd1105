//! A look at the pods of one node: what a drain has to do, and what stands in its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::{Item, Marker};
use brupop_core::cluster::NodeRecord;
use brupop_core::deadlines::DrainTime;
use brupop_core::drain::{
    self, Arrivals, DrainAction, DrainPlan, LATE, Obstacle, PodKey, drain_action, next_overdue,
};
use brupop_core::leader::Ahead;
use brupop_core::objects::{Budget, PodItem, is_operator_pod};
use brupop_core::rules::Rules;
use jiff::Timestamp;

use super::Around;

/// What follows from the pods of a node. It is computed again only when something changes from which it follows.
pub(crate) struct NodePods {
    pub(crate) from: Basis,
    /// When time alone changes it.
    pub(crate) until: Option<Duration>,
    pub(crate) drain: NodeDrain,
    /// The pods (UIDs) that a budget blocked when the drain began.
    first: BTreeSet<String>,
    /// The pods that came during the drain, if it has begun.
    arrivals: Option<Arrivals>,
}

/// What a drain has to do, and what stands in its way.
#[derive(PartialEq, Eq)]
pub(crate) struct NodeDrain {
    pub(crate) plan: Arc<DrainPlan>,
    pub(crate) obstacle: Option<Obstacle>,
}

/// From what it follows.
#[derive(PartialEq, Eq)]
pub(crate) struct Basis {
    /// Of pods and budgets; see [`PodWatches`](crate::watches::PodWatches).
    revisions: [u64; 2],
    marker: Option<Marker>,
    time: DrainTime,
    /// Whether the node's drain respects pods that ask not to be disrupted.
    respects: bool,
    /// Whether pods that are left at the drain's deadline are deleted.
    force: bool,
}

impl Basis {
    pub(crate) fn of(
        record: Option<&NodeRecord>,
        revisions: [u64; 2],
        (rules, may_force): (&Rules, bool),
        (ahead, now): (&Ahead, Timestamp),
    ) -> Self {
        let marker = record.and_then(NodeRecord::marker);
        let node_uid = record
            .and_then(|record| record.node.as_ref())
            .map_or("", |node| node.uid.as_str());
        Self {
            revisions,
            marker: marker.cloned(),
            time: DrainTime::of(ahead, (node_uid, marker), rules.durations.drain, now),
            respects: rules.respect_do_not_disrupt,
            force: may_force && rules.wants_force,
        }
    }

    /// Whether the update is as far as it was, so that at most pods and budgets are others.
    pub(crate) fn is_as_far_as(&self, other: &Self) -> bool {
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
    pub(crate) fn begun(&self) -> Option<&str> {
        self.marker.as_ref()?.drain_started_at.as_deref()
    }
}

impl NodePods {
    /// All that decisions depend on.
    pub(crate) fn leads_to(&self) -> (&NodeDrain, Option<Duration>) {
        (&self.drain, self.until)
    }
}

/// A look at the pods of one node.
pub(crate) struct Look<'l> {
    pub(crate) around: &'l Around<'l>,
    pub(crate) pods: &'l [Arc<PodItem>],
    pub(crate) budgets: &'l [Arc<Item<Budget>>],
}

impl Look<'_> {
    pub(crate) fn at(&self, from: Basis, before: Option<&NodePods>) -> NodePods {
        let &Self {
            around, budgets, ..
        } = self;
        let &Around { api, now, time, .. } = around;
        let ours = |pod: &PodItem| is_operator_pod(pod, &api.namespace);
        let same_drain = before.filter(|before| before.from.begun() == from.begun());
        let arrivals = from.begun().map(|_| {
            let before = same_drain.and_then(|before| before.arrivals.as_ref());
            Arrivals::record(before, self.pods.iter().map(AsRef::as_ref), now)
        });
        let is_left = |pod: &PodItem| arrivals.as_ref().is_some_and(|it| it.is_left(pod));
        let (left, pods): (Vec<&PodItem>, Vec<&PodItem>) = self
            .pods
            .iter()
            .map(AsRef::as_ref)
            .partition(|pod| is_left(pod));
        let pods = || pods.iter().copied();
        let marker = from.marker.as_ref();
        let overlooked = (from.force && from.time.is_over)
            .then(|| time.checked_sub(LATE).ok())
            .flatten();
        let mut plan = DrainPlan::of(pods(), ours, marker, overlooked);
        if from.respects {
            plan.respect(pods());
        }
        let would_go = |pod: &&PodItem| {
            matches!(
                drain_action(pod),
                DrainAction::Evicted | DrainAction::Unmanaged
            )
        };
        plan.left = left.into_iter().filter(would_go).map(PodKey::of).collect();
        let recent = arrivals
            .as_ref()
            .map_or_else(Default::default, |arrivals| arrivals.recent(now));
        plan.hold(|uid| recent.contains_key(uid));
        let blocked = from
            .begun()
            .map(|_| drain::blocked_pods(pods, budgets, ours))
            .unwrap_or_default();
        plan.is_blocked = !blocked.is_empty();
        let first = same_drain.map_or(blocked, |before| before.first.clone());
        plan.put_first(&first, !from.force && !from.time.first_over);
        let after =
            |at: Timestamp| now + Duration::try_from(at.duration_since(time)).unwrap_or_default();
        let until = [
            recent.into_values().min(),
            next_overdue(pods(), time).map(after),
            from.time.next.map(after),
        ]
        .into_iter()
        .flatten()
        .min();
        let obstacle = drain::obstacle(pods, budgets, ours, from.respects, time);
        let drain = NodeDrain {
            plan: Arc::new(plan),
            obstacle,
        };
        NodePods {
            from,
            until,
            drain,
            first,
            arrivals,
        }
    }
}
