//! Emptying a node: out of load balancers, cordon, evict, and only then the grant.

use std::collections::BTreeMap;

use brupop_api::shadow::LastFailure;
use brupop_api::{Field, Marker, Value};

use super::{Abort, Case, Decision, DrainStep, Effect, Milestone, Reason, writes};
use crate::facts::NodeFacts;

impl<'a> Case<'_, 'a> {
    /// The next step on the way to an empty node; `None` once it is cordoned and no pod is left that has to go. Whether that
    /// is so is made sure of with the grant.
    pub(super) fn next_drain_step(self) -> Option<Decision<'a>> {
        let Self {
            fleet,
            view,
            node,
            shadow,
            ..
        } = self;
        let marker = node.marker.cloned().unwrap_or_else(|| Marker {
            shadow_uid: shadow.uid.to_owned(),
            attempt: shadow.spec.attempt.unwrap_or(0),
            ..Marker::default()
        });
        let marker = Marker {
            term: fleet.term,
            ..marker
        };
        if view.pods.too_many {
            return Some(self.abort(Abort::CannotDrain));
        }
        if marker.drain_started_at.is_none() {
            Some(self.begin_drain(marker))
        } else {
            self.drain_until_empty(marker)
        }
    }

    /// Up to the cordon, which starts the drain: checks that the node can be emptied, and takes it out of load
    /// balancers for as long as configured.
    fn begin_drain(self, marker: Marker) -> Decision<'a> {
        let Self {
            fleet, view, node, ..
        } = self;
        let now = || Some(fleet.now.to_owned());
        if !fleet.enforced {
            // Without the webhook we could empty the node, but neither grant its reboot nor give the update up.
            return Decision::wait(Reason::AdmissionNotEnforced);
        }
        if let Some(decision) = self.closed() {
            return decision;
        }
        if view.busy_control_plane.is_some() {
            return self.abort(Abort::PoolClosed);
        }
        if view.pods.undrainable.is_some() && !view.force {
            return self.abort(Abort::CannotDrain);
        }
        // What is begun goes on: a node that is out of load balancers does not wait there for a budget.
        let waits = !view.force && !view.pods.waited && marker.excluded_at.is_none();
        if let Some(why) = view.pods.blocked.filter(|_| waits) {
            return Decision::wait(Reason::BudgetAllowsNone(why));
        }
        if view.time.exclude && !node.excluded && marker.excluded_at.is_none() {
            let excluded = Marker {
                excluded_at: now(),
                ..marker
            };
            let sets = [(Field::ExcludedFromLoadBalancers, Value::Set)];
            let tests = [(Field::ExcludedFromLoadBalancers, Value::Absent)];
            let write = writes::mark(node, tests, sets, excluded);
            return Decision::write(write, Reason::Draining(DrainStep::LeavesLoadBalancers));
        }
        if marker.excluded_at.is_some() && !view.time.exclusion_over {
            return Decision::wait(Reason::Draining(DrainStep::LeavesLoadBalancers));
        }
        let cordoned = Marker {
            drain_started_at: now(),
            // A person's cordon never becomes ours.
            cordoned_at: (!node.unschedulable).then(|| fleet.now.to_owned()),
            tainted: true,
            ..self.noting_pods(marker)
        };
        cordon(node, cordoned).reaching(Milestone::Cordoned)
    }

    /// Notes the pods that are there at a cordon, beside those of an earlier one.
    fn noting_pods(self, marker: Marker) -> Marker {
        let pods = &self.view.pods;
        let scales = pods.scales.into_iter().flatten();
        let available = scales.filter_map(|(owner, scale)| {
            scale.as_ref().map(|scale| (owner.clone(), scale.available))
        });
        let mut evicted_owners: BTreeMap<String, u32> = available.collect();
        evicted_owners.extend(marker.evicted_owners);
        Marker {
            emptied: marker.emptied || !pods.drained,
            evicted_claims: marker.evicted_claims || pods.has_claims,
            evicted_owners,
            ..marker
        }
    }

    /// From the cordon on: evicts until no pod is left, and starts again if pods come back. `None` if none is left.
    fn drain_until_empty(self, marker: Marker) -> Option<Decision<'a>> {
        let Self {
            fleet, view, node, ..
        } = self;
        // A drained node that somebody uncordoned is drained again, with a deadline of its own.
        let overdue =
            view.time.drain_overdue && (marker.drained_at.is_none() || node.unschedulable);
        if !view.force && (overdue || self.is_hopeless(&marker)) {
            let blocked = view.pods.is_blocked;
            return Some(self.abort(if blocked {
                Abort::DrainBlocked
            } else {
                Abort::DrainTimedOut
            }));
        }
        if !node.unschedulable {
            // Somebody uncordoned it meanwhile: pods may have come, so it has not been seen empty.
            let now = || Some(fleet.now.to_owned());
            let again = Marker {
                cordoned_at: now(),
                drain_started_at: now(),
                drained_at: None,
                was_drained: marker.was_drained || marker.drained_at.is_some(),
                operator_pods: vec![],
                ..self.noting_pods(marker)
            };
            return Some(cordon(node, again).reaching(Milestone::CordonedAgain));
        }
        if marker.drained_at.is_none() {
            return self.evict(marker, overdue);
        }
        if !view.pods.known {
            return Some(Decision::wait(Reason::Draining(DrainStep::Evicts)));
        }
        if !view.pods.drained {
            // Pods have come since. Either somebody uncordoned the node and cordoned it again, unseen; or the pods
            // tolerate the cordon, so the deadline stays as it is.
            let again = Marker {
                drained_at: None,
                was_drained: true,
                ..marker
            };
            let tests = [(Field::Unschedulable, Value::Set)];
            return Some(Decision::write(
                writes::mark(node, tests, [], again),
                Reason::Draining(DrainStep::Evicts),
            ));
        }
        None
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
    fn evict(self, marker: Marker, overdue: bool) -> Option<Decision<'a>> {
        let Self { view, node, .. } = self;
        let pods = &view.pods;
        if !pods.operator_pods.is_empty() {
            let listed = Marker {
                operator_pods: pods.operator_pods.to_vec(),
                ..marker
            };
            return Some(Decision::write(
                writes::mark(node, [(Field::Unschedulable, Value::Set)], [], listed),
                Reason::Draining(DrainStep::Evicts),
            ));
        }
        if pods.drained {
            return None;
        }
        let effect = if overdue {
            Effect::Delete
        } else {
            Effect::Evict
        };
        Some(Decision::carry_out(
            effect,
            Reason::Draining(DrainStep::Evicts),
        ))
    }
}

/// Cordons the node, unless it is cordoned, and taints it if the marker says so.
fn cordon<'a>(node: &NodeFacts<'a>, marker: Marker) -> Decision<'a> {
    let tests = [(Field::Unschedulable, Value::flag(node.unschedulable))];
    let mut sets = vec![];
    if !node.unschedulable {
        sets.push((Field::Unschedulable, Value::Set));
    }
    if marker.tainted && !node.tainted {
        sets.push((Field::UpdatingTaint, Value::Set));
    }
    // An empty node is what autoscalers remove.
    let missing = writes::autoscaler_annotations(node)
        .into_iter()
        .filter(|(_, words)| words.is_none())
        .map(|(field, _)| field);
    let tests: Vec<_> = tests
        .into_iter()
        .chain(missing.clone().map(|field| (field, Value::Absent)))
        .collect();
    sets.extend(missing.map(|field| (field, Value::Set)));
    let marker = Marker {
        do_not_disrupt: marker.do_not_disrupt || node.do_not_disrupt.is_none(),
        scale_down_disabled: marker.scale_down_disabled || node.scale_down_disabled.is_none(),
        kept_since: None,
        ..marker
    };
    Decision::write(
        writes::mark(node, tests, sets, marker),
        Reason::Draining(DrainStep::Cordons),
    )
}
