//! One pass: observe, decide for each node, start what may start now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use brupop_api::Object;
use futures::FutureExt as _;
use jiff::{Timestamp, TimestampRound, Unit};

use super::complaints::Subject;
use super::requests::{self, Context, Key, Request};
use super::wake::Wake;
use super::{Answered, Reconciler};
use crate::apply::Call;
use crate::in_flight::Readiness;
use crate::metrics::LastPass;
use crate::{admission_probe, evict, other_operator};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Decision, Effect, FleetDecision, Reason, Slots};
use brupop_core::drain::DrainPlan;
use brupop_core::facts::NodeView;
use brupop_core::observe::{Leader, Now, Observed, observe};
use brupop_core::policy::Policy;
use brupop_core::status::EventText;

/// At most so many calls are under way at once. A call that has no room is decided anew when another one is answered.
const MAX_CALLS: usize = 32;
/// Conditions may start a call only below this number, so that they never crowd out real work.
const MAX_CALLS_BEFORE_CONDITION: usize = 24;
/// At most so many evictions are under way at once, in addition to other calls.
const MAX_EVICTIONS: usize = 32;

/// How a pod is removed from a node.
#[derive(Clone, Copy)]
enum Removal {
    /// By an eviction, which heeds budgets.
    Evict,
    /// By a deletion, which does not.
    Delete,
}

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
        let mut wake = Wake::default();
        let watches = Arc::clone(&self.watches);
        let mut cluster = match watches.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                if self.complaints.is_new(Subject::Fleet, &why) {
                    tracing::error!(why, "the fleet's object cannot be read, so nothing is done");
                }
                self.metrics.passed(None);
                return None;
            }
        };
        self.complaints.resolved(&Subject::Fleet);
        self.watch_pods(&mut cluster, &mut wake);
        let (mut denied, until) = self.leading.denials.hold(self.now(), |name| cluster.has_shadow(name));
        for (name, entry) in &mut cluster.entries {
            entry.denied = denied.remove(name);
        }
        if let Some(until) = until {
            wake.by(until);
        }
        let now = Timestamp::now();
        let rounding = TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Trunc);
        let now_text = now.round(rounding).unwrap_or(now).to_string();
        let own_node = self.caller.own_node.clone();
        let leader = Leader {
            term: self.leading.term.unwrap_or(0),
            enforced: self.leading.admission.holds().is_ok(),
            alone: self.leading.alone.holds().is_ok(),
            own_node: own_node.as_deref(),
        };
        let observed = observe(&cluster, &self.policy, &leader, Now { time: now, text: &now_text });
        wake.by_time(observed.next, now, self.now());
        let Policy { schedule, durations, .. } = &self.policy;
        self.opens = if schedule.is_open(now, durations.min_remaining) { None } else { schedule.opens(now) };
        wake.by_time(self.opens, now, self.now());
        let mut pass = Pass { cluster: &cluster, observed: &observed, now, wake };
        if self.ensure_term(&mut pass) {
            self.start_probe(&mut pass);
            self.look_around(&mut pass);
            let last_pass = self.decide(&mut pass);
            self.metrics.passed(Some(last_pass));
            self.opt_in(&mut pass);
        }
        pass.wake.at()
    }

    /// Is our term in the ledger? If not, starts the call that creates the ledger, or the one that writes a new term
    /// into it. Nothing else is written before that.
    fn ensure_term(&mut self, pass: &mut Pass<'_>) -> bool {
        let Pass { cluster, observed, .. } = *pass;
        if cluster.ledger().is_none() {
            let context = Context::default();
            let request =
                Request { key: Key::Ledger, call: Call::CreateFleet, seen: None, begins_term: None, context };
            self.send(pass, request);
            return false;
        }
        if self.leading.term.is_some() && self.leading.term == observed.fleet.ledger_term {
            return true;
        }
        let (term, write) = decide::new_term(cluster.status(), &observed.views);
        if let Some(request) = requests::ledger(cluster, &write, Some(term), None) {
            self.send(pass, request);
        }
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
        let tried_on = admission_probe::spread(&nodes, number).into_iter().map(str::to_owned).collect();
        let tried =
            admission_probe::try_out(self.caller.client.clone(), self.caller.namespace.clone(), tried_on);
        self.leading.calls.push(tried.map(Answered::Probe).boxed());
    }

    /// Looks for another operator, if it is time to.
    fn look_around(&mut self, pass: &mut Pass<'_>) {
        let Some(due) = self.leading.alone.due() else { return };
        if self.now() < due {
            pass.wake.by(due);
            return;
        }
        self.leading.alone.begin();
        let looked = other_operator::look(self.caller.client.clone(), self.caller.namespace.clone());
        self.leading.calls.push(looked.map(Answered::LookedAround).boxed());
    }

    /// Decides for the ledger and for each node, and starts what may start now.
    fn decide(&mut self, pass: &mut Pass<'_>) -> LastPass {
        let Observed { fleet, views, too_long, .. } = pass.observed;
        let FleetDecision { slots, nodes, counts } = decide::fleet(pass.observed);
        if let Some(write) = &slots.write {
            let event = EventText::of_halts(&slots.halted);
            if let Some(request) = requests::ledger(pass.cluster, write, None, event) {
                self.send(pass, request);
            }
        }
        self.look_at_next(pass, &slots);
        let mut last_pass = LastPass {
            limit: fleet.limit,
            admission_enforced: self.leading.admission.holds().is_ok(),
            other_operator: self.leading.alone.is_known() && self.leading.alone.holds().is_err(),
            skipped: self.unreadable_pods_and_budgets(pass.cluster),
            halted: count(fleet.versions.values().filter(|record| record.halted.is_some()).count()),
            ..LastPass::default()
        };
        for (view, decision) in views.iter().zip(&nodes) {
            last_pass.count(view, &decision.reason);
            if let Reason::NotUnderstood(why) = decision.reason {
                let of_shadow = pass.cluster.has_shadow(view.shadow_name)
                    && pass.cluster.shadow(view.shadow_name).is_none();
                last_pass.skip(if of_shadow { "BottlerocketShadow" } else { "Node" });
                self.skip(pass.cluster, view, why);
                continue;
            }
            self.execute(pass, view, decision);
            self.explain(pass, view, &decision.reason);
        }
        for name in too_long {
            last_pass.skip("Node");
            self.refuse(pass.cluster, name);
        }
        self.sum_up(pass, counts);
        self.forget(pass);
        last_pass
    }

    /// How many of the pods and budgets that are watched now cannot be read.
    fn unreadable_pods_and_budgets(&self, cluster: &Cluster) -> BTreeMap<&'static str, i64> {
        let of_drains: usize = cluster.drains().map(|plan| plan.unreadable.len()).sum();
        let budgets = self.leading.pods.unreadable_budgets();
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        BTreeMap::from([
            ("Pod", number(of_drains + cluster.unreadable_agents())),
            ("PodDisruptionBudget", number(budgets)),
        ])
    }

    /// Has the pods watched of nodes that are next, and of those that get a slot now. The watches begin with the next
    /// pass.
    fn look_at_next(&mut self, pass: &Pass<'_>, slots: &Slots<'_>) {
        let next = slots.preflight.iter().chain(&slots.taken);
        let names = next.map(|&index| pass.observed.views[index].shadow_name.to_owned());
        let look_at: BTreeSet<String> = names.collect();
        if look_at != self.leading.look_at {
            self.leading.look_at = look_at;
            self.watches.changed.notify_one();
        }
    }

    /// Carries out what was decided for a node, unless a call for it is under way or its result was not seen yet.
    fn execute(&mut self, pass: &mut Pass<'_>, view: &NodeView<'_>, decision: &Decision<'_>) {
        let Pass { cluster, observed, .. } = *pass;
        let name = view.shadow_name;
        let Some(effect) = &decision.effect else { return };
        let plan = cluster.drain(name);
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
        let both = [Key::Node(name.to_owned()), Key::Shadow(name.to_owned())];
        if both.iter().any(|key| !self.is_ready(pass, key)) {
            return;
        }
        if let Some(mut request) = requests::of(cluster, view, decision, &observed.fleet) {
            if let Some(event) = &mut request.context.event
                && let Some(more) = self.detail(pass, name, &decision.reason)
            {
                event.note = format!("{}; {more}", event.note);
            }
            self.send(pass, request);
        }
    }

    /// Starts as many removals of the plan's pods as are due and have room.
    fn remove_pods(&mut self, plan: &DrainPlan, removal: Removal, wake: &mut Wake) {
        let now = self.now();
        let room = MAX_EVICTIONS.saturating_sub(self.evicting.len());
        for pod in self.leading.evictions.due(plan, now).into_iter().take(room).cloned().collect::<Vec<_>>() {
            self.leading.evictions.begin(pod.clone());
            self.leading.returns.eviction_begins(&pod.uid);
            let client = self.caller.client.clone();
            self.evicting.spawn(async move {
                let answer = match removal {
                    Removal::Evict => evict::evict(client, &pod).await,
                    Removal::Delete => evict::delete(client, &pod).await,
                };
                (pod, answer)
            });
        }
        if let Some(next) = self.leading.evictions.next(plan, now) {
            wake.by(next);
        }
    }

    /// May a call of this key be made now? If not, the pass notes when it may.
    pub(super) fn is_ready(&self, pass: &mut Pass<'_>, key: &Key) -> bool {
        let version = key.version_in(pass.cluster);
        match self.leading.in_flight.readiness(key, version, self.now()) {
            Readiness::Ready => true,
            Readiness::Called => false,
            Readiness::Until(until) => {
                pass.wake.by(until);
                false
            }
        }
    }

    /// Starts a call, if no call of the same key is pending and there is room for it. Returns whether it was started.
    pub(super) fn send(&mut self, pass: &mut Pass<'_>, request: Request) -> bool {
        let most =
            if matches!(request.key, Key::Condition(_)) { MAX_CALLS_BEFORE_CONDITION } else { MAX_CALLS };
        if !self.is_ready(pass, &request.key) || self.leading.calls.len() >= most {
            return false;
        }
        if self.leading.idle_writes.would_repeat(&request.key, request.seen, || request.call.patch()) {
            return false;
        }
        self.leading.in_flight.begin(request.key.clone());
        let caller = self.caller.clone();
        let call = async move {
            let outcome = caller.make(&request.call).await;
            Answered::Request(Box::new(request), outcome)
        };
        self.leading.calls.push(call.boxed());
        true
    }

    /// Forgets what was remembered of shadows and nodes that are gone, and complaints that no longer hold.
    fn forget(&mut self, pass: &Pass<'_>) {
        let Pass { cluster, observed, .. } = *pass;
        let there = |name: &str| cluster.has_shadow(name);
        self.leading.reasons.retain(|name, _| there(name));
        self.leading.said.retain(|name, _| there(name));
        self.leading.debounced.retain(there);
        self.leading.in_flight.forget_unless(|key| key.exists_in(cluster));
        self.leading.idle_writes.forget_unless(|key| key.exists_in(cluster));
        self.complaints.prune(cluster, observed);
    }
}

/// Does this decision have to wait until the node's pods are known? So do changes of the Node that empty it. Taking
/// back a grant does not wait: while a grant stands, nobody watches the pods. Nor does adopting a cordon: the node may
/// only have to be put back into service.
fn waits_for_pods(decision: &Decision<'_>) -> bool {
    let of_node = match &decision.effect {
        Some(Effect::Write(write)) => matches!(write.object, Object::Node(_)),
        Some(Effect::ConfirmDrained(_) | Effect::Grant { .. }) => true,
        _ => false,
    };
    let empties = [Reason::ExcludedFromLoadBalancers, Reason::Cordoning, Reason::Draining];
    of_node && empties.contains(&decision.reason)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::Write;

    #[test]
    fn a_grant_is_taken_back_and_a_cordon_adopted_whether_the_pods_are_known_or_not() {
        let write = |object| Write { object, tests: vec![], sets: vec![] };
        let (node, shadow) = (|| write(Object::Node("n")), || write(Object::ShadowSpec("brs-n")));
        for (effect, reason, waits) in [
            (Effect::Write(node()), Reason::ExcludedFromLoadBalancers, true),
            (Effect::Write(node()), Reason::Cordoning, true),
            (Effect::Write(node()), Reason::Starting("2.0.0"), false),
            (Effect::Write(node()), Reason::Draining, true),
            (Effect::ConfirmDrained(node()), Reason::Draining, true),
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
