//! One pass: observe, decide for each node, start what may start now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, Object, names};
use futures::FutureExt as _;
use jiff::{Timestamp, TimestampRound, Unit};
use serde_json::json;

use super::calls::{self, Call, Context, Purpose};
use super::drainer::{Around, Drainer};
use super::wake::Wake;
use super::{Completed, Reconciler};
use crate::checks::{self, Check};
use crate::metrics::LastPass;
use crate::operation::Operation;
use crate::watches::LOOK_AGAIN;
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Allocation, Decisions, Reason};
use brupop_core::facts::Observed;
use brupop_core::leader::LeaderState;
use brupop_core::observe::{Now, observe, pools_at};
use brupop_core::phases;
use brupop_core::status::EventText;

/// What one pass saw at its beginning, and when to look again.
pub(super) struct Pass<'p> {
    pub(super) cluster: &'p Cluster,
    pub(super) observed: &'p Observed<'p>,
    pub(super) now: Timestamp,
    pub(super) wake: Wake,
}

impl Reconciler {
    /// One pass. Returns when to look again, if nothing changes until then.
    pub(super) fn pass(&mut self) -> Option<Duration> {
        let wake = self.observe_then(|this, pass| {
            if this.ensure_term(pass) && this.knows_right_to_force(pass) {
                this.start_probe(pass);
                this.look_around(pass);
                let gates = this.ask(pass);
                let last_pass = LastPass {
                    gates,
                    ..this.decide(pass)
                };
                this.metrics.passed(Some(last_pass));
                this.opt_in(pass);
            }
            pass.wake.at()
        });
        wake.flatten()
    }

    /// Brings what is known up to date, which sends nothing, and lets `act` decide on it. Returns its result; `None` if the fleet
    /// cannot be read.
    pub(super) fn observe_then<T>(
        &mut self,
        act: impl FnOnce(&mut Self, &mut Pass<'_>) -> T,
    ) -> Option<T> {
        let mut wake = Wake::default();
        let (watches, policy) = (Arc::clone(&self.watches), Arc::clone(&self.policy));
        let mut cluster = match watches.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                self.cannot_read_fleet(&why);
                return None;
            }
        };
        self.fleet_log.resolved();
        let now = Timestamp::now();
        let mut leader = std::mem::take(&mut self.leading.state);
        // Whose pods are watched, and which workloads are read, depends on who owns a node.
        leader.prepare_pools(&mut cluster, now, &self.policy);
        self.look_again_at_pools(&cluster, &mut wake);
        self.bring_up_to_date(&mut leader);
        let (around, drainer) = self.around(now);
        drainer.watch(&around, &mut cluster, &leader, &mut wake);
        self.record_denials(&mut cluster, &mut wake);
        cluster.record_cordons(now);
        let rounding = TimestampRound::new()
            .smallest(Unit::Millisecond)
            .mode(jiff::RoundMode::Trunc);
        let now_text = now.round(rounding).unwrap_or(now).to_string();
        leader.record_gates(&cluster, |query| {
            self.leading.gates.state(query, self.now())
        });
        let pools = pools_at(&cluster, &leader, &policy, now);
        let observed = observe(
            &cluster,
            &leader,
            &pools,
            &policy,
            Now {
                time: now,
                text: &now_text,
            },
        );
        wake.by_time(observed.next, now, self.now());
        let mut pass = Pass {
            cluster: &cluster,
            observed: &observed,
            now,
            wake,
        };
        let result = act(self, &mut pass);
        leader.ahead = observed.ahead;
        self.leading.state = leader;
        Some(result)
    }

    /// Lists pools again from time to time, as long as one was left out: nothing else tells that there is room for it.
    fn look_again_at_pools(&mut self, cluster: &Cluster, wake: &mut Wake) {
        if cluster.pool_left_out.is_none() {
            self.leading.pools_again = self.now() + LOOK_AGAIN;
        } else if self.now() >= self.leading.pools_again {
            self.leading.pools_again = self.now() + LOOK_AGAIN;
            self.watches.refresh_pools();
        } else {
            wake.by(self.leading.pools_again);
        }
    }

    /// Without the fleet nothing may be decided.
    fn cannot_read_fleet(&mut self, why: &str) {
        if self.fleet_log.is_new(why) {
            tracing::error!(
                why,
                "the BottlerocketFleet cannot be read, so nothing is done"
            );
        }
        self.metrics.passed(None);
    }

    /// Brings up to date what checks and the ledger say.
    fn bring_up_to_date(&self, leader: &mut LeaderState) {
        leader.term = self.leading.term.unwrap_or(0);
        leader.enforced = self.leading.admission.holds().is_ok();
        leader.alone = self.leading.alone.holds().is_ok();
        leader.may_force = self.leading.may_force.holds().is_ok();
        leader.own_node.clone_from(&self.api.own_node);
    }

    /// Records of each node why the API server takes no change of it.
    fn record_denials(&self, cluster: &mut Cluster, wake: &mut Wake) {
        let (mut denied, until) = self.leading.memory.denied(self.now());
        for (name, record) in &mut cluster.records {
            record.led.denied = denied.remove(name).unwrap_or_default();
        }
        if let Some(until) = until {
            wake.by(until);
        }
    }

    /// Returns whether our term is in the ledger. If it is not, sends the request that creates the ledger, or the one that writes a new term
    /// into it. Nothing else is written before that.
    fn ensure_term(&mut self, pass: &mut Pass<'_>) -> bool {
        let Pass {
            cluster, observed, ..
        } = *pass;
        if cluster.fleet().is_none() {
            let fleet = json!(BottlerocketFleet::new(
                names::FLEET,
                BottlerocketFleetSpec::default()
            ));
            let create = Ok(Operation::Create(fleet));
            self.send(
                pass,
                Call::about(cluster, Object::Ledger, create, Context::default()),
            );
            return false;
        }
        if self.leading.term.is_some() && self.leading.term == observed.fleet.ledger_term {
            return true;
        }
        let (term, write) = decide::new_term(cluster.ledger(), &observed.views);
        if let Some(mut call) = calls::ledger(cluster, &write, None) {
            call.purpose = Purpose::BeginTerm(term);
            self.send(pass, call);
        }
        false
    }

    /// Whether this check is due. If it is due later, the loop wakes then.
    fn is_due(&self, check: &Check, pass: &mut Pass<'_>) -> bool {
        let Some(due) = check.due() else {
            return false;
        };
        let is_due = due <= self.now();
        if !is_due {
            pass.wake.by(due);
        }
        is_due
    }

    /// Starts the dry runs that prove our admission rules to be in force, if they are due and there is a node with a
    /// shadow to make them on.
    fn start_probe(&mut self, pass: &mut Pass<'_>) {
        if !self.is_due(&self.leading.admission, pass) {
            return;
        }
        let nodes = pass.cluster.normal_nodes();
        if nodes.is_empty() {
            return;
        }
        let number = self.leading.admission.begin();
        let tried_on = checks::spread(&nodes, number)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let (client, namespace) = (self.api.client.clone(), self.api.namespace.clone());
        let tried = checks::try_out_admission(client, namespace, tried_on);
        self.leading
            .under_way
            .push(tried.map(Completed::Probe).boxed());
    }

    /// Looks for another operator, if it is time to.
    fn look_around(&mut self, pass: &mut Pass<'_>) {
        if !self.is_due(&self.leading.alone, pass) {
            return;
        }
        self.leading.alone.begin();
        let looked =
            checks::look_for_other_operator(self.api.client.clone(), self.api.namespace.clone());
        self.leading
            .under_way
            .push(looked.map(Completed::LookedAround).boxed());
    }

    /// Asks from time to time, if a pool wants it, whether pods may be deleted. Returns whether there is an answer, or nobody
    /// needs one: a new leader must not give a drain up that it may end by force.
    pub(super) fn knows_right_to_force(&mut self, pass: &mut Pass<'_>) -> bool {
        if !pass.cluster.wants_force() {
            return true;
        }
        if self.is_due(&self.leading.may_force, pass) {
            self.leading.may_force.begin();
            let asked = checks::ask_for_force(self.api.client.clone());
            self.leading
                .under_way
                .push(asked.map(Completed::AskedForForce).boxed());
        }
        self.leading.may_force.is_answered()
    }

    /// Labels the nodes that are to be opted in, if `AUTO_LABEL` wants it.
    pub(super) fn opt_in(&mut self, pass: &mut Pass<'_>) {
        let Pass {
            cluster,
            observed,
            now,
            ..
        } = *pass;
        if !self.policy.auto_label {
            return;
        }
        if self.now() < self.leading.opt_in_from {
            pass.wake.by(self.leading.opt_in_from);
            return;
        }
        let (unmanaged, next) = cluster.unmanaged_nodes(self.policy.durations.min_node_age, now);
        pass.wake.by_time(next, now, self.now());
        for node in &unmanaged {
            if let Some(write) = decide::opt_in(&observed.fleet, node)
                && let Some(call) = calls::opt_in(cluster, node, &write)
            {
                self.send(pass, call);
            }
        }
    }

    /// Decides for the ledger and for each node, and starts what may start now.
    fn decide(&mut self, pass: &mut Pass<'_>) -> LastPass {
        let Observed {
            fleet,
            views,
            too_long,
            ..
        } = pass.observed;
        let Decisions { allocation, nodes } = pass.observed.decide();
        if let Some(write) = &allocation.write
            && let event = EventText::of_halts(&allocation.halted)
            && let Some(mut call) = calls::ledger(pass.cluster, write, event)
        {
            call.context.ended = phases::updates_of(fleet, views, &allocation);
            self.send(pass, call);
        }
        self.preflight(pass, &allocation);
        let mut last_pass = LastPass {
            at: pass.now,
            limit: fleet.total_limit(),
            admission_enforced: self.leading.admission.holds().is_ok(),
            other_operator: self.leading.alone.is_known() && self.leading.alone.holds().is_err(),
            skipped: self.unreadable(pass),
            not_opted_in: pass.observed.not_opted_in,
            ..LastPass::default()
        };
        let reasons = nodes.iter().map(|decision| &decision.reason);
        last_pass.count(pass.cluster, fleet, views.iter().zip(reasons));
        for (view, decision) in views.iter().zip(&nodes) {
            if let Reason::NotUnderstood(why) = decision.reason {
                let of_shadow = pass.cluster.has_shadow(view.shadow_name)
                    && pass.cluster.shadow(view.shadow_name).is_none();
                last_pass.skip(if of_shadow {
                    "BottlerocketShadow"
                } else {
                    "Node"
                });
                self.leave_alone(pass.cluster, view, why);
                // Of a shadow that can be read: what stood there before says nothing any more.
                self.explain(pass, view, &decision.reason);
                continue;
            }
            self.leading.memory.look_after(view.shadow_name);
            self.execute(pass, view, decision);
            self.read_evicted(view, &mut pass.wake);
            self.explain(pass, view, &decision.reason);
        }
        for name in too_long {
            last_pass.skip("Node");
            self.refuse_name(pass.cluster, name);
        }
        self.leading.drainer.workloads.prune();
        self.sum_up(pass, &nodes);
        self.sum_up_pools(pass, &nodes);
        self.leading.memory.prune(pass.cluster);
        last_pass
    }

    /// How many of the pods and budgets that are watched now, and of the pools, cannot be read or understood.
    fn unreadable(&self, pass: &Pass<'_>) -> BTreeMap<&'static str, i64> {
        let cluster = pass.cluster;
        let drains = cluster
            .records
            .values()
            .filter_map(|it| it.led.drain.as_ref());
        let of_drains: usize = drains.map(|drain| drain.plan.unreadable.len()).sum();
        let budgets = self.leading.drainer.unreadable_budgets();
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        BTreeMap::from([
            (
                "BottlerocketPool",
                number(
                    cluster
                        .pools
                        .values()
                        .filter(|pool| pool.rules().is_none())
                        .count(),
                ),
            ),
            ("Pod", number(of_drains + cluster.unreadable_agents())),
            ("PodDisruptionBudget", number(budgets)),
        ])
    }

    /// Has the pods watched of nodes that are next, and of those that get a slot now. The watches begin with the next
    /// pass.
    pub(super) fn preflight(&mut self, pass: &Pass<'_>, allocation: &Allocation<'_>) {
        let next = allocation.preflight.iter().chain(&allocation.taken);
        let names = next.map(|&index| pass.observed.views[index].shadow_name.to_owned());
        if self.leading.drainer.preflight(names.collect()) {
            self.watches.changed.notify_one();
        }
    }

    /// Returns whether anything else follows from the pods, which have changed, than before.
    pub(super) fn drains_changed(&mut self) -> bool {
        let watches = Arc::clone(&self.watches);
        let Ok(cluster) = watches.cluster() else {
            return true;
        };
        if !self.leading.state.is_of(&cluster) {
            return true;
        }
        let state = std::mem::take(&mut self.leading.state);
        let (around, drainer) = self.around(Timestamp::now());
        let changed = drainer.look_at_pods(&around, &cluster, &state);
        self.leading.state = state;
        changed
    }

    /// What a drainer needs to know at this time, and the drainer.
    fn around(&mut self, time: Timestamp) -> (Around<'_>, &mut Drainer) {
        let Self {
            api,
            watches,
            policy,
            ..
        } = self;
        let around = Around {
            api,
            watches,
            policy,
            now: self.epoch.elapsed(),
            time,
        };
        (around, &mut self.leading.drainer)
    }
}
