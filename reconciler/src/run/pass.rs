//! One pass: observe, decide for each node, send what may be sent now.

use std::sync::Arc;
use std::time::Duration;

use brupop_api::fleet::VersionRecord;
use brupop_api::{Object, names};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Decision, Decisions, Reason, Step};
use brupop_core::facts::NodeView;
use brupop_core::leader::LeaderState;
use brupop_core::observe::observe;
use brupop_core::observe::pools_at;
use brupop_core::status::{self, EventText, halts};
use jiff::{Timestamp, Unit};

use crate::metrics::Series;
use crate::run::checks::{self, Check, Finding};
use crate::run::requests::{Body, Context, Request};
use crate::run::{Leading, Pass, Reconciler, Wake, text, until};
use crate::watches::LOOK_AGAIN;

impl Reconciler {
    /// One pass. Returns when to look again, if nothing changes until then.
    pub(crate) fn pass(&mut self) -> Option<Duration> {
        let wake = self.observe_then(|this, pass| {
            if this.ensure_term(pass) && this.knows_right_to_force(pass) {
                this.read_again(pass);
                this.check(pass);
                this.ask(pass);
                this.decide(pass);
                let gauges = std::mem::take(&mut pass.gauges);
                this.metrics.passed(Some(gauges));
                this.opt_in(pass);
            }
            pass.wake.0
        });
        wake.flatten()
    }

    /// Brings what is known up to date, which sends nothing, and lets `act` decide on it. Returns its result; `None` if the fleet
    /// cannot be read.
    pub(crate) fn observe_then<T>(
        &mut self,
        act: impl FnOnce(&mut Self, &mut Pass<'_>) -> T,
    ) -> Option<T> {
        let mut wake = Wake::default();
        let (watches, policy) = (Arc::clone(&self.watches), Arc::clone(&self.policy));
        let mut cluster = match watches.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                if self.fleet_log.is_new(&why) {
                    let says = "the BottlerocketFleet cannot be read, so nothing is done";
                    tracing::error!(why, "{says}");
                }
                self.metrics.passed(None);
                return None;
            }
        };
        self.fleet_log.resolved();
        let (time, now) = (Timestamp::now(), self.now());
        let mut leader = std::mem::take(&mut self.leading.state);
        // The owner of a node decides whose pods are watched and which workloads are read.
        leader.prepare(&mut cluster, time, &self.policy);
        self.look_again_at_pools(&cluster, &mut wake);
        self.bring_up_to_date(&mut leader);
        let mut drainer = std::mem::take(&mut self.leading.drainer);
        drainer.watch(self, &mut cluster, &leader, (now, time), &mut wake);
        self.leading.drainer = drainer;
        let requests = &self.leading.requests;
        requests.record_denials(&mut cluster, now, &mut wake);
        let text = text(time, Unit::Millisecond);
        leader.record_gates(&cluster, |query| self.leading.gates.gates.state(query, now));
        let pools = pools_at(&cluster, &leader, &policy, time);
        let observed = observe(&cluster, &leader, &pools, &policy, &text);
        wake.by(observed.clock.next.map(|at| now + until(time, at)));
        let mut pass = Pass {
            cluster: &cluster,
            observed: &observed,
            now: time,
            wake,
            gauges: Series::default(),
        };
        let result = act(self, &mut pass);
        leader.ahead = observed.clock.ahead;
        self.leading.state = leader;
        Some(result)
    }

    /// Lists pools again from time to time, as long as one was left out: nothing else tells that there is room for it.
    fn look_again_at_pools(&mut self, cluster: &Cluster, wake: &mut Wake) {
        let (now, due) = (self.now(), self.leading.pools_again);
        let is_left_out = cluster.pool_left_out.is_some();
        if is_left_out && now < due {
            return wake.by(due);
        }
        self.leading.pools_again = now + LOOK_AGAIN;
        if is_left_out {
            self.watches.refresh_pools();
        }
    }

    /// Brings up to date what checks say.
    fn bring_up_to_date(&self, leader: &mut LeaderState) {
        leader.enforced = self.leading.admission.holds().is_ok();
        leader.alone = self.leading.alone.holds().is_ok();
        leader.may_force = self.leading.may_force.holds().is_ok();
        leader.own_node.clone_from(&self.api.own_node);
    }

    /// Reads objects again whose watches stay behind the answers to our requests.
    fn read_again(&mut self, pass: &mut Pass<'_>) {
        let (overdue, next) = pass.cluster.overdue(self.now());
        pass.wake.by(next);
        for object in overdue {
            let request = Request::new(pass.cluster, object, Body::Read, Context::default());
            self.send(pass, request);
        }
    }

    /// Returns whether our term is in the ledger. If it is not, sends the request that creates the ledger, or the one that writes
    /// a new term into it. Nothing else is written before that.
    fn ensure_term(&mut self, pass: &mut Pass<'_>) -> bool {
        let (cluster, fleet) = (pass.cluster, &pass.observed.fleet);
        if cluster.fleet().is_none() {
            self.send(pass, Request::create_fleet(cluster));
            return false;
        }
        if fleet.term > 0 && Some(fleet.term) == fleet.ledger_term {
            return true;
        }
        let (term, write) = decide::new_term(cluster.ledger(), &pass.observed.views);
        if let Some(request) = Request::to_ledger(cluster, &write, None) {
            let term = Some(term);
            self.send(pass, Request { term, ..request });
        }
        false
    }

    /// Starts the checks that are due: dry runs on nodes with a shadow, which prove our admission rules to be in force, and a
    /// look for another operator.
    fn check(&mut self, pass: &mut Pass<'_>) {
        let (client, namespace) = (self.api.client.clone(), self.api.namespace.clone());
        let nodes = pass.cluster.normal_nodes();
        if !nodes.is_empty() {
            let (client, namespace) = (client.clone(), namespace.clone());
            let tried = |number| {
                checks::try_out_admission(client, namespace, checks::spread(&nodes, number))
            };
            self.begin(pass, "admission", |it| &mut it.admission, tried);
        }
        let looked = |_| checks::look_for_other_operator(client, namespace);
        self.begin(pass, "other operator", |it| &mut it.alone, looked);
    }

    /// Asks from time to time, if a pool wants it, whether pods may be deleted. Returns whether there is an answer, or nobody
    /// needs one: a new leader must not give a drain up that it may end by force.
    pub(crate) fn knows_right_to_force(&mut self, pass: &mut Pass<'_>) -> bool {
        if !pass.cluster.wants_force() {
            return true;
        }
        let client = self.api.client.clone();
        let asked = |_| checks::ask_for_force(client);
        self.begin(pass, "right to delete pods", |it| &mut it.may_force, asked);
        self.leading.may_force.is_answered()
    }

    /// Makes this check, which has a number, if it is due.
    fn begin<F: Future<Output = Finding> + Send + 'static>(
        &mut self,
        pass: &mut Pass<'_>,
        check: &'static str,
        of: fn(&mut Leading) -> &mut Check,
        make: impl FnOnce(usize) -> F,
    ) {
        let now = self.now();
        let Some(number) = of(&mut self.leading).begin(now, &mut pass.wake) else {
            return;
        };
        self.start(make(number), move |this, finding| {
            let (now, known) = (this.now(), of(&mut this.leading));
            match (known.found(finding, now), known.holds()) {
                (false, _) => {}
                (true, Ok(())) => tracing::info!(check, "the check holds"),
                (true, Err(why)) => tracing::warn!(check, why, "the check does not hold"),
            }
        });
    }

    /// Labels the nodes that are to be opted in, if `AUTO_LABEL` wants it.
    fn opt_in(&mut self, pass: &mut Pass<'_>) {
        let (cluster, observed, time, now) = (pass.cluster, pass.observed, pass.now, self.now());
        if !self.policy.auto_label {
            return;
        }
        if now < self.leading.requests.opt_in_from {
            return pass.wake.by(self.leading.requests.opt_in_from);
        }
        let (unmanaged, next) = cluster.unmanaged_nodes(self.policy.min_node_age, time);
        pass.wake.by(next.map(|at| now + until(time, at)));
        for node in &unmanaged {
            if let Some(write) = decide::opt_in(&observed.fleet, node)
                && let Some(request) = Request::opt_in(cluster, node, &write)
            {
                self.send(pass, request);
            }
        }
    }

    /// Decides for the ledger and for each node, and sends what may be sent now.
    fn decide(&mut self, pass: &mut Pass<'_>) {
        let (cluster, observed) = (pass.cluster, pass.observed);
        let (fleet, views) = (&observed.fleet, &observed.views);
        let decisions = observed.decide();
        let nodes = &decisions.nodes;
        if let Some(write) = &decisions.write
            && let event = EventText::of_halts(&decisions.halted)
            && let Some(mut request) = Request::to_ledger(cluster, write, event)
        {
            request.context.ended = status::updates_of(fleet, views, &decisions);
            self.send(pass, request);
        }
        self.preflight(pass, &decisions);
        let halts = halts(observed);
        self.tell(pass, nodes, &halts);
        for (view, decision) in views.iter().zip(nodes) {
            let name = view.shadow_name;
            if decision.reason.is_not_understood() {
                let of_shadow = cluster.has_shadow(name) && cluster.shadow(name).is_none();
                let kind = if of_shadow {
                    "BottlerocketShadow"
                } else {
                    "Node"
                };
                pass.gauges.skip(kind, 1);
            } else {
                self.execute(pass, view, decision);
                self.read_evicted(view, &mut pass.wake);
            }
            self.explain(pass, view, &decision.reason);
        }
        for name in &observed.too_long {
            pass.gauges.skip("Node", 1);
            let most = names::NODE_NAME_MAX;
            let why = format!(
                "its name has more than {most} characters, so no shadow can be named after it"
            );
            self.explain(pass, &NodeView::nothing(name), &Reason::NotUnderstood(&why));
        }
        self.leading.drainer.workloads.prune();
        self.sum_up(pass, nodes, &halts);
        self.sum_up_pools(pass, nodes);
        self.leading.requests.prune(cluster);
        self.leading.told.prune(cluster);
    }

    /// Tells in metrics what was decided, and how many objects cannot be read or understood: pools, and pods and budgets that are
    /// watched now. Nodes and shadows follow, one by one.
    fn tell(&self, pass: &mut Pass<'_>, nodes: &[Decision<'_>], halts: &[&VersionRecord]) {
        let (cluster, observed, gauges) = (pass.cluster, pass.observed, &mut pass.gauges);
        let reasons = nodes.iter().map(|decision| &decision.reason);
        let nodes = observed.views.iter().zip(reasons);
        gauges.count_nodes(cluster, &observed.fleet, nodes, pass.now);
        gauges.tell_halts(halts);
        let enforced = self.leading.admission.holds().is_ok();
        let other = matches!(self.leading.alone.known(), Some(Err(_)));
        gauges.set("brupop_admission_enforced", &[], enforced);
        gauges.set("brupop_other_operator", &[], other);
        gauges.set("brupop_slots_limit", &[], observed.fleet.total_limit());
        gauges.set("brupop_nodes_not_opted_in", &[], observed.not_opted_in);
        let at = pass.now.as_second();
        gauges.set("brupop_last_pass_timestamp_seconds", &[], at);
        let records = cluster.records.values();
        let drains = records.filter_map(|it| it.led.plan.as_ref());
        let pods: usize = drains.map(|plan| plan.unreadable_pods()).sum();
        let pools = cluster.pools.values();
        let pools = pools.filter(|pool| pool.rules().is_none()).count();
        let budgets = self.leading.drainer.unreadable_budgets();
        gauges.skip("BottlerocketPool", pools);
        gauges.skip("BottlerocketShadow", 0);
        gauges.skip("Node", 0);
        gauges.skip("Pod", pods + cluster.unreadable_agents());
        gauges.skip("PodDisruptionBudget", budgets);
    }

    /// Carries out what was decided for a node, unless a request for it is under way.
    fn execute(&mut self, pass: &mut Pass<'_>, view: &NodeView<'_>, decision: &Decision<'_>) {
        let (cluster, name) = (pass.cluster, view.shadow_name);
        let Some(step) = decision.step else { return };
        match (step, cluster.drain(name)) {
            (Step::Evict, Some(plan)) => return self.remove_pods(plan, true, &mut pass.wake),
            (Step::DeletePods, Some(plan)) => {
                // The operator's own are evicted even now: if their budget forbids it, they are needed.
                let (by_eviction, forced) = (plan.evict_operator_pods, plan.clone().forced());
                return self.remove_pods(&forced, by_eviction, &mut pass.wake);
            }
            (Step::Cordon | Step::CordonAgain, Some(plan)) => {
                // Their marker notes how many pods of these are available.
                let owners = plan.owners.iter().map(|owner| (owner, 0));
                self.read_workloads(name, owners, &mut pass.wake);
                let record = cluster.records.get(name);
                if record.is_none_or(|record| record.led.scales.is_none()) {
                    return;
                }
            }
            // The watch of its pods will wake the loop.
            (Step::Evict | Step::DeletePods, None) => return,
            (step, None) if step.empties() => return,
            _ => {}
        }
        // A decision about a shadow rests on its Node, too.
        let node = names::node_of_shadow(name).map(|node| Object::Node(node.to_owned()));
        let shadow = Object::ShadowSpec(name.to_owned());
        for object in node.iter().chain([&shadow]) {
            if !self.is_ready(cluster, object, &mut pass.wake) {
                return;
            }
        }
        let (fleet, reason) = (&pass.observed.fleet, &decision.reason);
        if let Some(mut request) = Request::of_step(cluster, view, step, reason, fleet) {
            if let Some(event) = &mut request.context.event
                && let Some(more) = self.detail(pass, view, reason)
            {
                event.note = format!("{}; {more}", event.note);
            }
            self.send(pass, request);
        }
    }

    /// Has the pods watched of nodes that are next, and of those that get a slot now. The watches begin with the next
    /// pass.
    pub(crate) fn preflight(&mut self, pass: &Pass<'_>, decisions: &Decisions<'_>) {
        let next = decisions.preflight.iter().chain(&decisions.taken);
        let names = next.map(|&index| pass.observed.views[index].shadow_name.to_owned());
        if self.leading.drainer.preflight(names.collect()) {
            self.watches.changed.notify_one();
        }
    }

    /// Returns whether anything else follows from the pods, which have changed, than before.
    pub(crate) fn drains_changed(&mut self) -> bool {
        let watches = Arc::clone(&self.watches);
        let Ok(cluster) = watches.cluster() else {
            return true;
        };
        if !self.leading.state.is_of(&cluster) {
            return true;
        }
        let state = std::mem::take(&mut self.leading.state);
        let mut drainer = std::mem::take(&mut self.leading.drainer);
        let (now, time) = (self.now(), Timestamp::now());
        let changed = drainer.look_at_pods(self, &cluster, &state, (now, time));
        (self.leading.state, self.leading.drainer) = (state, drainer);
        changed
    }
}
