//! Emptying a node: out of load balancers, cordon, evict, and only then the grant.

use brupop_api::Marker;
use brupop_api::shadow::LastFailure;

use super::step::{Assessment, Case, Step};
use super::{Abort, DrainStep, Reason};

const EVICTS: Reason<'static> = Reason::Draining(DrainStep::Evicts);

impl<'a> Case<'_, 'a> {
    /// The next step on the way to an empty node; `None` once it is cordoned and no pod is left that has to go. Whether that
    /// is so is made sure of with the grant.
    pub(super) fn next_drain_step(self) -> Option<Assessment<'a>> {
        if self.view.pods.too_many {
            return Some(Assessment::abort(Abort::CannotDrain));
        }
        match self.node.marker() {
            Some(marker) if marker.drain_started_at.is_some() => self.drain_until_empty(marker),
            marker => Some(self.begin_drain(marker.is_some_and(|it| it.excluded_at.is_some()))),
        }
    }

    /// Up to the cordon, which starts the drain: checks that the node can be emptied, and excludes it from load balancers for as
    /// long as configured, unless it is excluded already.
    fn begin_drain(self, is_excluded: bool) -> Assessment<'a> {
        let Self {
            fleet, view, node, ..
        } = self;
        if !fleet.enforced {
            // Without the webhook we could empty the node, but neither grant its reboot nor give the update up.
            return Assessment::wait(Reason::AdmissionNotEnforced);
        }
        if let Some(closed) = self.closed() {
            return closed;
        }
        if view.busy_control_plane.is_some() {
            return Assessment::abort(Abort::PoolClosed);
        }
        if view.pods.undrainable.is_some() && !view.force {
            return Assessment::abort(Abort::CannotDrain);
        }
        // What is begun goes on: a node that is out of load balancers does not wait there for a budget.
        let waits = !view.force && !view.pods.waited && !is_excluded;
        if let Some(why) = view.pods.blocked.filter(|_| waits) {
            return Assessment::wait(Reason::BudgetAllowsNone(why));
        }
        let leaves = Reason::Draining(DrainStep::LeavesLoadBalancers);
        if view.time.exclude && !node.excluded && !is_excluded {
            return Assessment::take(Step::Exclude, leaves);
        }
        if is_excluded && !view.time.exclusion_over {
            return Assessment::wait(leaves);
        }
        Assessment::take(Step::Cordon, Reason::Draining(DrainStep::Cordons))
    }

    /// From the cordon on: evicts until no pod is left, and starts again if pods come back. `None` if none is left.
    fn drain_until_empty(self, marker: &Marker) -> Option<Assessment<'a>> {
        let Self { view, node, .. } = self;
        // A drained node that somebody uncordoned is drained again, with a deadline of its own.
        let overdue =
            view.time.drain_overdue && (marker.drained_at.is_none() || node.unschedulable);
        if !view.force && (overdue || self.is_hopeless(marker)) {
            return Some(Assessment::abort(if view.pods.is_blocked {
                Abort::DrainBlocked
            } else {
                Abort::DrainTimedOut
            }));
        }
        if !node.unschedulable {
            // Somebody uncordoned it meanwhile: pods may have come, so it has not been seen empty.
            return Some(Assessment::take(
                Step::CordonAgain,
                Reason::Draining(DrainStep::Cordons),
            ));
        }
        if marker.drained_at.is_none() {
            return self.evict(overdue);
        }
        if !view.pods.known {
            return Some(Assessment::wait(EVICTS));
        }
        // Pods have come since. Either somebody uncordoned the node and cordoned it again, unseen; or the pods tolerate the
        // cordon, so the deadline stays as it is.
        (!view.pods.drained).then(|| Assessment::take(Step::DrainAgain, EVICTS))
    }

    /// Whether the pods that a budget blocked first have had their part of the time, and the last drain failed on a budget,
    /// too. Then other pods are left in peace.
    fn is_hopeless(self, marker: &Marker) -> bool {
        let Self { view, shadow, .. } = self;
        let blocked_before =
            |failures: &LastFailure| failures.reason == Abort::DrainBlocked.as_str();
        marker.drained_at.is_none()
            && view.time.first_over
            && view.pods.first_left
            && view.pods.is_blocked
            && shadow.spec.last_failure.is_some_and(blocked_before)
            && !view.is_retried()
    }

    /// The node is cordoned and not yet recorded as drained.
    fn evict(self, overdue: bool) -> Option<Assessment<'a>> {
        let pods = &self.view.pods;
        if !pods.operator_pods.is_empty() {
            return Some(Assessment::take(Step::ListOperatorPods, EVICTS));
        }
        if pods.drained {
            return None;
        }
        let step = if overdue {
            Step::DeletePods
        } else {
            Step::Evict
        };
        Some(Assessment::take(step, EVICTS))
    }
}
