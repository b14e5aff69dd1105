//! What is said of fleet and pools: their statuses.

use brupop_api::{NodeCounts, Object};
use brupop_core::decide::{Decision, Reason, TooManyFailures};
use brupop_core::rules::GateQuery;
use brupop_core::status::{self, DesiredCondition, DesiredFleetStatus, Progress};
use kube::Resource as _;

use super::Reconciler;
use super::calls::Context;
use super::pass::Pass;
use super::status_writer::text;

impl Reconciler {
    /// Writes the fleet's figures and conditions, once they no longer change.
    pub(super) fn sum_up<'p>(&mut self, pass: &mut Pass<'p>, nodes: &[Decision<'p>]) {
        let Pass {
            cluster, observed, ..
        } = *pass;
        let Some(fleet) = cluster.fleet() else { return };
        let busy_nodes = cluster.busy_nodes(observed.fleet.slots);
        let (admission, alone) = (&self.leading.admission, &self.leading.alone);
        let progress = Progress::of_fleet(observed, nodes);
        let wanted = DesiredFleetStatus {
            counts: NodeCounts {
                unavailable_limit: observed.fleet.total_limit(),
                ..progress.counts
            },
            not_opted_in_nodes: observed.not_opted_in,
            updated: progress.updated_condition("no node is opted in"),
            halted: status::halted_versions(observed.fleet.versions),
            halt: DesiredCondition::halted(&self.api.namespace, &observed.fleet),
            halt_holds_nodes: nodes.iter().any(|it| {
                matches!(
                    it.reason,
                    Reason::VersionHalted(TooManyFailures::Version(_))
                )
            }),
            idle: DesiredCondition::idle(busy_nodes),
            admission: admission
                .is_known()
                .then(|| DesiredCondition::admission(admission.holds())),
            other_operator: alone
                .is_known()
                .then(|| DesiredCondition::other_operator(alone.holds())),
        };
        if wanted.is_stored_in(&fleet.object) {
            self.leading.memory.debounced_fleet.forget();
            return;
        }
        let now = self.now();
        if let Some(due) = self
            .leading
            .memory
            .debounced_fleet
            .waits_until(wanted.clone(), now)
        {
            pass.wake.by(due);
            return;
        }
        let status = wanted.patch(&fleet.object, observed.fleet.now);
        let event = wanted.new_obstacle(&fleet.object);
        let objects = vec![fleet.object.object_ref(&())];
        self.apply(
            pass,
            Object::FleetStatus,
            status,
            Context {
                event,
                objects,
                ..Context::default()
            },
        );
    }

    /// Writes the statuses of the pools, once they no longer change.
    pub(super) fn sum_up_pools(&mut self, pass: &mut Pass<'_>, nodes: &[Decision<'_>]) {
        let cluster = pass.cluster;
        let unanswered = |query: &GateQuery| self.leading.gates.failure(query);
        let wanted = status::pools(
            pass.observed,
            nodes,
            unanswered,
            self.leading.may_force.holds().is_ok(),
        );
        for ((name, pool), wanted) in cluster.pools.iter().zip(wanted) {
            let now = self.now();
            let debounced = &mut self.leading.memory.pool(name).debounced;
            if wanted.is_stored_in(pool) {
                debounced.forget();
                continue;
            }
            if let Some(due) = debounced.waits_until(wanted.clone(), now) {
                pass.wake.by(due);
                continue;
            }
            let status = wanted.patch(pool, &text(pass.now));
            self.apply(
                pass,
                Object::PoolStatus(name.clone()),
                status,
                Context::default(),
            );
        }
    }
}
