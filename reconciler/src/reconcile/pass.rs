//! One pass: observe, decide for each node, start what may start now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::fleet::VersionRecord;
use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, Object, names};
use futures::FutureExt as _;
use jiff::{Timestamp, TimestampRound, Unit};
use kube::Resource as _;
use serde_json::json;

use super::calls::{self, Call, Context, Purpose, version_of};
use super::drainer::{Around, Drainer};
use super::memory::MaySend;
use super::wake::Wake;
use super::{Completed, Reconciler};
use crate::leadership::leads_now;
use crate::metrics::LastPass;
use crate::operation::{Operation, Reply, resource_version};
use crate::watches::LOOK_AGAIN;
use crate::{checks, evict};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Decision, Effect, FleetDecision, Reason, Slots};
use brupop_core::drain::DrainPlan;
use brupop_core::facts::Observed;
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::known::Known;
use brupop_core::observe::{Leader, Now, observe, pools_at};
use brupop_core::phases;
use brupop_core::status::EventText;

/// The most requests that are under way at once. A request that has no room is decided again when another one is answered.
const MAX_REQUESTS: usize = 32;
/// Conditions may be sent only below this number, so that they never crowd out real work.
const MAX_REQUESTS_BEFORE_CONDITION: usize = 24;
/// The most evictions that are under way at once, in addition to other requests.
const MAX_EVICTIONS: usize = 32;

/// How a pod is removed from a node.
#[derive(Clone, Copy)]
enum Removal {
    /// By an eviction, which respects budgets.
    Evict,
    /// By a deletion, which does not.
    Delete,
}

/// What one pass saw at its beginning, and when to look again.
pub(super) struct Pass<'p> {
    pub(super) cluster: &'p Cluster,
    pub(super) known: &'p Known,
    pub(super) observed: &'p Observed<'p>,
    pub(super) now: Timestamp,
    pub(super) wake: Wake,
}

impl Reconciler {
    /// One pass. Returns when to look again, if nothing changes until then.
    pub(super) fn pass(&mut self) -> Option<Duration> {
        let mut known = std::mem::take(&mut self.leading.known);
        let wake = self.pass_on(&mut known);
        self.leading.known = known;
        wake
    }

    /// A pass on what is known, which it brings up to date.
    fn pass_on(&mut self, known: &mut Known) -> Option<Duration> {
        let mut wake = Wake::default();
        let (watches, policy) = (Arc::clone(&self.watches), Arc::clone(&self.policy));
        let cluster = match watches.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                self.cannot_read_fleet(&why);
                return None;
            }
        };
        self.fleet_log.resolved();
        let now = Timestamp::now();
        // Whose pods and workloads are watched depends on who owns a node.
        if !known.prepare_pools(&cluster, now, &self.policy) {
            return Some(self.now());
        }
        self.look_again_at_pools(&cluster, &mut wake);
        let (around, drainer) = self.around(now);
        drainer.watch(&around, &cluster, known, &mut wake);
        self.note_denials(known, &mut wake);
        known.note_cordons(&cluster, now);
        let rounding = TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Trunc);
        let now_text = now.round(rounding).unwrap_or(now).to_string();
        let own_node = self.api.own_node.clone();
        known.note_gates(&cluster, |query| self.leading.gates.state(query, self.now()));
        let pools = pools_at(&cluster, known, &policy, now);
        let leader = self.leader(own_node.as_deref());
        let observed = observe(&cluster, known, &pools, &policy, &leader, Now { time: now, text: &now_text });
        wake.by_time(observed.next, now, self.now());
        let mut pass = Pass { cluster: &cluster, known, observed: &observed, now, wake };
        if self.ensure_term(&mut pass) {
            self.start_probe(&mut pass);
            self.look_around(&mut pass);
            let gates = self.ask(&mut pass);
            let last_pass = LastPass { gates, ..self.decide(&mut pass) };
            self.metrics.passed(Some(last_pass));
            self.opt_in(&mut pass);
        }
        pass.wake.at()
    }

    /// Lists pools again from time to time, as long as some were given up: nothing else tells that there is room for them.
    fn look_again_at_pools(&mut self, cluster: &Cluster, wake: &mut Wake) {
        if !cluster.has_given_pools_up() {
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
            tracing::error!(why, "the BottlerocketFleet cannot be read, so nothing is done");
        }
        self.metrics.passed(None);
    }

    /// What this leader knows beside the cluster.
    fn leader<'a>(&self, own_node: Option<&'a str>) -> Leader<'a> {
        Leader {
            term: self.leading.term.unwrap_or(0),
            enforced: self.leading.admission.holds().is_ok(),
            alone: self.leading.alone.holds().is_ok(),
            own_node,
        }
    }

    /// Notes of each node why the API server takes no change of it.
    fn note_denials(&self, known: &mut Known, wake: &mut Wake) {
        let (denied, until) = self.leading.memory.denied(self.now());
        known.denied = denied;
        if let Some(until) = until {
            wake.by(until);
        }
    }

    /// Is our term in the ledger? If not, sends the request that creates the ledger, or the one that writes a new term
    /// into it. Nothing else is written before that.
    fn ensure_term(&mut self, pass: &mut Pass<'_>) -> bool {
        let Pass { cluster, observed, .. } = *pass;
        if cluster.fleet().is_none() {
            let fleet = json!(BottlerocketFleet::new(names::FLEET, BottlerocketFleetSpec::default()));
            let create = Ok(Operation::Create(fleet));
            self.send(pass, Call::about(cluster, Object::Ledger, create, Context::default()));
            return false;
        }
        if self.leading.term.is_some() && self.leading.term == observed.fleet.ledger_term {
            return true;
        }
        let (term, write) = decide::new_term(cluster.ledger(), &observed.views);
        let call = calls::ledger(cluster, &write, None);
        self.send(pass, Call { purpose: Purpose::BeginTerm(term), ..call });
        false
    }

    /// Starts the dry runs that prove our admission rules to be in force, if they are due and there is a node with a
    /// shadow to make them on.
    fn start_probe(&mut self, pass: &mut Pass<'_>) {
        let Some(due) = self.leading.admission.due() else { return };
        let nodes = pass.cluster.normal_nodes();
        if nodes.is_empty() {
            return;
        }
        if self.now() < due {
            pass.wake.by(due);
            return;
        }
        let number = self.leading.admission.begin();
        let tried_on = checks::spread(&nodes, number).into_iter().map(str::to_owned).collect();
        let (client, namespace) = (self.api.client.clone(), self.api.namespace.clone());
        let tried = checks::try_out_admission(client, namespace, tried_on);
        self.leading.under_way.push(tried.map(Completed::Probe).boxed());
    }

    /// Looks for another operator, if it is time to.
    fn look_around(&mut self, pass: &mut Pass<'_>) {
        let Some(due) = self.leading.alone.due() else { return };
        if self.now() < due {
            pass.wake.by(due);
            return;
        }
        self.leading.alone.begin();
        let looked = checks::look_for_other_operator(self.api.client.clone(), self.api.namespace.clone());
        self.leading.under_way.push(looked.map(Completed::LookedAround).boxed());
    }

    /// Labels the nodes that are to be opted in, if `AUTO_LABEL` wants it.
    pub(super) fn opt_in(&mut self, pass: &mut Pass<'_>) {
        let Pass { cluster, observed, now, .. } = *pass;
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
        let Observed { fleet, views, too_long, .. } = pass.observed;
        let FleetDecision { slots, nodes, counts } = decide::fleet(pass.observed);
        if let Some(write) = &slots.write {
            let event = EventText::of_halts(&slots.halted);
            let mut call = calls::ledger(pass.cluster, write, event);
            call.context.ended = phases::updates_of(fleet, views, &slots);
            self.send(pass, call);
        }
        self.preflight(pass, &slots);
        let mut last_pass = LastPass {
            at: pass.now,
            limit: fleet.total_limit(),
            admission_enforced: self.leading.admission.holds().is_ok(),
            other_operator: self.leading.alone.is_known() && self.leading.alone.holds().is_err(),
            skipped: self.unreadable(pass),
            halted: halted(fleet),
            not_opted_in: counts.not_opted_in,
            ..LastPass::default()
        };
        let reasons = nodes.iter().map(|decision| &decision.reason);
        last_pass.count(pass.cluster, fleet, views.iter().zip(reasons));
        for (view, decision) in views.iter().zip(&nodes) {
            if let Reason::NotUnderstood(why) = decision.reason {
                let of_shadow = pass.cluster.has_shadow(view.shadow_name)
                    && pass.cluster.shadow(view.shadow_name).is_none();
                last_pass.skip(if of_shadow { "BottlerocketShadow" } else { "Node" });
                self.leave_alone(pass.cluster, view, why);
                // Of a shadow that can be read: what stood there before says nothing any more.
                self.explain(pass, view, &decision.reason);
                continue;
            }
            self.leading.memory.look_after(view.shadow_name);
            self.execute(pass, view, decision);
            self.explain(pass, view, &decision.reason);
        }
        for name in too_long {
            last_pass.skip("Node");
            self.refuse_name(pass.cluster, name);
        }
        self.sum_up(pass, counts, &nodes);
        self.sum_up_pools(pass, &nodes);
        self.leading.memory.prune(pass.cluster, pass.known);
        last_pass
    }

    /// How many of the pods and budgets that are watched now, and of the pools, cannot be read or understood.
    fn unreadable(&self, pass: &Pass<'_>) -> BTreeMap<&'static str, i64> {
        let Pass { cluster, known, .. } = *pass;
        let of_drains: usize = known.drains.values().map(|drain| drain.plan.unreadable.len()).sum();
        let budgets = self.leading.drainer.unreadable_budgets();
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        BTreeMap::from([
            (
                "BottlerocketPool",
                number(cluster.pools.values().filter(|pool| pool.rules().is_none()).count()),
            ),
            ("Pod", number(of_drains + cluster.unreadable_agents())),
            ("PodDisruptionBudget", number(budgets)),
        ])
    }

    /// Has the pods watched of nodes that are next, and of those that get a slot now. The watches begin with the next
    /// pass.
    fn preflight(&mut self, pass: &Pass<'_>, slots: &Slots<'_>) {
        let next = slots.preflight.iter().chain(&slots.taken);
        let names = next.map(|&index| pass.observed.views[index].shadow_name.to_owned());
        if self.leading.drainer.preflight(names.collect()) {
            self.watches.changed.notify_one();
        }
    }

    /// Carries out what was decided for a node, unless a request for it is under way or its result was not seen yet.
    fn execute(&mut self, pass: &mut Pass<'_>, view: &NodeView<'_>, decision: &Decision<'_>) {
        let Pass { cluster, known, observed, .. } = *pass;
        let name = view.shadow_name;
        let Some(effect) = &decision.effect else { return };
        let plan = known.drain(name);
        if plan.is_none() && waits_for_pods(decision) {
            // The watch of its pods will wake the loop.
            return;
        }
        match (effect, plan) {
            (Effect::Evict, Some(plan)) => return self.remove_pods(plan, Removal::Evict, &mut pass.wake),
            (Effect::Delete, Some(plan)) => {
                // The operator's own pods are evicted even now: if their budget forbids it, they are needed.
                let removal = if plan.evict_operator_pods { Removal::Evict } else { Removal::Delete };
                return self.remove_pods(&plan.clone().forced(), removal, &mut pass.wake);
            }
            (Effect::Evict | Effect::Delete, None) => return,
            _ => {}
        }
        if !self.is_node_ready(pass, name) || !self.is_ready(pass, &Object::ShadowSpec(name.to_owned())) {
            return;
        }
        if let Some(mut call) = calls::of(cluster, view, decision, &observed.fleet) {
            if let Some(event) = &mut call.context.event
                && let Some(more) = self.detail(pass, view, &decision.reason)
            {
                event.note = format!("{}; {more}", event.note);
            }
            self.send(pass, call);
        }
    }

    /// Starts as many removals of the plan's pods as are due and have room.
    fn remove_pods(&mut self, plan: &DrainPlan, removal: Removal, wake: &mut Wake) {
        let now = self.now();
        let room = MAX_EVICTIONS.saturating_sub(self.evicting.len());
        for pod in self.leading.drainer.begin(plan, room, now, wake) {
            let (client, elected) = (self.api.client.clone(), self.elected.clone());
            self.evicting.spawn(async move {
                let answer = match removal {
                    // The loop was held up since this was decided.
                    _ if leads_now(&elected).is_none() => {
                        evict::EvictionAnswer::Failed("this process no longer leads".to_owned())
                    }
                    Removal::Evict => evict::evict(client, &pod).await,
                    Removal::Delete => evict::delete(client, &pod).await,
                };
                (pod, answer)
            });
        }
    }

    /// Pods have changed: does anything else follow from them than before?
    pub(super) fn drains_changed(&mut self) -> bool {
        let watches = Arc::clone(&self.watches);
        let Ok(cluster) = watches.cluster() else { return true };
        if !self.leading.known.is_of(&cluster) {
            return true;
        }
        let known = std::mem::take(&mut self.leading.known);
        let (around, drainer) = self.around(Timestamp::now());
        let changed = drainer.look_at_pods(&around, &cluster, &known);
        self.leading.known = known;
        changed
    }

    /// May a call about the Node of this shadow be made now? If not, the pass notes when it may.
    fn is_node_ready(&mut self, pass: &mut Pass<'_>, shadow: &str) -> bool {
        names::node_of_shadow(shadow).is_none_or(|node| self.is_ready(pass, &Object::Node(node.to_owned())))
    }

    /// May a call about this object be made now? If not, the pass notes when it may.
    fn is_ready(&mut self, pass: &mut Pass<'_>, object: &Object<String>) -> bool {
        let (version, now) = (version_of(object, pass.cluster), self.now());
        if let Object::ShadowSpec(name) = object
            && let of_node = pass.cluster.node(name).and_then(|node| resource_version(node.meta()))
            && let Some(until) = self.leading.memory.node_lags(name, of_node, now)
        {
            pass.wake.by(until);
            return false;
        }
        match self.leading.memory.in_flight(object).readiness(version, now) {
            MaySend::Ready => true,
            MaySend::UnderWay => false,
            MaySend::Until(until) => {
                pass.wake.by(until);
                false
            }
        }
    }

    /// May one more condition be under way?
    pub(super) fn has_room_for_conditions(&self) -> bool {
        self.leading.under_way.len() < MAX_REQUESTS_BEFORE_CONDITION
    }

    /// Makes a call, if none about its object is under way, there is room for it, and it would not once more change
    /// nothing.
    pub(super) fn send(&mut self, pass: &mut Pass<'_>, call: Call) {
        let most = if matches!(call.object, Object::ShadowStatus(_) | Object::PoolStatus(_)) {
            MAX_REQUESTS_BEFORE_CONDITION
        } else {
            MAX_REQUESTS
        };
        if !self.is_ready(pass, &call.object) || self.leading.under_way.len() >= most {
            return;
        }
        let in_flight = self.leading.memory.in_flight(&call.object);
        if in_flight.would_repeat(call.seen, || call.operation.as_ref().ok()?.content()) {
            return;
        }
        in_flight.sent();
        let api = self.api.clone();
        let sent = async move {
            let reply = match &call.operation {
                Ok(operation) => api.send(&call.object, operation).await,
                Err(misfit) => Reply::Failed(misfit.to_string()),
            };
            Completed::Call(Box::new(call), reply)
        };
        self.leading.under_way.push(sent.boxed());
    }

    /// What a drainer needs to know at this time, and the drainer.
    fn around(&mut self, time: Timestamp) -> (Around<'_>, &mut Drainer) {
        let Self { api, watches, policy, .. } = self;
        let around = Around { api, watches, policy, now: self.epoch.elapsed(), time };
        (around, &mut self.leading.drainer)
    }
}

/// Does this decision have to wait until the node's pods are known? So do changes of the Node that empty it. Taking
/// back a grant does not wait: while a grant stands, nobody watches the pods. Nor does adopting a cordon: the node may
/// only have to be put back into service.
fn waits_for_pods(decision: &Decision<'_>) -> bool {
    let of_node = match &decision.effect {
        Some(Effect::Write(write)) => matches!(write.object, Object::Node(_)),
        Some(Effect::Grant { .. }) => true,
        _ => false,
    };
    let empties = [Reason::ExcludedFromLoadBalancers, Reason::Cordoning, Reason::Draining];
    of_node && empties.contains(&decision.reason)
}

/// The versions that are halted: pool, or nothing for the whole fleet, and version.
fn halted(fleet: &FleetFacts<'_>) -> Vec<(String, String)> {
    let is_halted = |record: &VersionRecord| record.halted.is_some();
    let in_fleet = fleet.versions.iter().filter(|(_, record)| is_halted(record));
    let in_pools = fleet.pool_versions.iter().filter(|(_, record)| is_halted(record));
    let in_pools = in_pools.filter_map(|(name, _)| name.split_once('/'));
    let in_fleet = in_fleet.map(|(version, _)| ("", version.as_str()));
    let owned = |(pool, version): (&str, &str)| (pool.to_owned(), version.to_owned());
    in_fleet.chain(in_pools).map(owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::{holds_up, reconciler};
    use brupop_api::Write;
    use brupop_core::drain::PodKey;
    use tokio::sync::{mpsc::unbounded_channel, watch};

    #[tokio::test]
    async fn a_process_that_no_longer_leads_evicts_nothing() {
        let (wrote, mut writes) = unbounded_channel();
        let (_, elected) = watch::channel(None);
        let mut reconciler = reconciler(holds_up(wrote, std::sync::mpsc::channel().1), elected);
        let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let plan = DrainPlan { evict: vec![pod], ..DrainPlan::default() };
        reconciler.remove_pods(&plan, Removal::Evict, &mut Wake::default());
        let (_, answer) = reconciler.evicting.join_next().await.unwrap().unwrap();
        assert_eq!((answer.as_str(), writes.try_recv().ok()), ("failed", None));
    }

    #[test]
    fn only_emptying_waits_until_pods_are_known() {
        let write = |object| Write { object, tests: vec![], sets: vec![] };
        let (node, shadow) = (|| write(Object::Node("n")), || write(Object::ShadowSpec("brs-n")));
        for (effect, reason, waits) in [
            (Effect::Write(node()), Reason::ExcludedFromLoadBalancers, true),
            (Effect::Write(node()), Reason::Cordoning, true),
            (Effect::Write(node()), Reason::Starting("2.0.0"), false),
            (Effect::Write(node()), Reason::Draining, true),
            (Effect::Write(node()), Reason::ReturningToService, false),
            (Effect::Write(shadow()), Reason::Draining, false),
            (Effect::Grant { confirm: node(), grant: shadow() }, Reason::Draining, true),
            (Effect::Evict, Reason::Draining, false),
        ] {
            let decision = Decision { effect: Some(effect), reason, milestone: None };
            assert_eq!(waits_for_pods(&decision), waits, "{decision:?}");
        }
    }
}
