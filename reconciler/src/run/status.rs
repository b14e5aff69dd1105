//! Messages to people: conditions and figures in statuses, Events, log lines. Statuses are written once they no longer change.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::conditions::{Condition, PROGRESSING};
use brupop_api::fleet::{BottlerocketFleetStatus, VersionRecord};
use brupop_api::pool::PrometheusGate;
use brupop_api::{BottlerocketPoolStatus, BottlerocketShadow, Object, State, names};
use brupop_core::cluster::Cluster;
use brupop_core::deadlines::{back_off_text, wait_text};
use brupop_core::decide::{Abort, Decision, Named, Reason};
use brupop_core::facts::NodeView;
use brupop_core::status::{self, Debounced, EventText};
use brupop_runtime::errors::describe;
use brupop_runtime::logs::Quota;
use jiff::Unit;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType};
use serde_json::Value;
use tokio::time::timeout;

use crate::run::requests::{Body, Context, Request};
use crate::run::{Pass, Reconciler, text};

/// Rate limit of log lines about one node: its agent can change the reason as often as it likes, and its kubelet have
/// the shadow made and deleted, or its Node unreadable now and then. An update has some twenty reasons, one after the other,
/// and a dozen writes.
const LINES_OF_NODE: Quota = Quota::new(60, Duration::from_mins(1));
/// The most Events that are under way at once; further ones are dropped.
const MAX_EVENTS: usize = 64;
/// Longest wait for the answer to an Event; after that it is dropped. A busy API server may need long.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Messages that this leader has written, or is about to write. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// By the name that the node's shadow has or would have.
    nodes: BTreeMap<String, ToldOfNode>,
    pools: BTreeMap<String, Debounced<BottlerocketPoolStatus>>,
    fleet: Debounced<BottlerocketFleetStatus>,
}

/// The messages about one node.
#[derive(Debug, Default)]
struct ToldOfNode {
    /// The reason that was last logged.
    reason: Option<&'static str>,
    lines: Option<Quota>,
    /// The reasons of its conditions. A change of a message does not restart the wait.
    conditions: Debounced<Vec<Cow<'static, str>>>,
    /// Messages of refused evictions in this drain, as they were published.
    refusals: BTreeSet<String>,
}

impl ToldOfNode {
    /// Takes one of the log lines about the node. Returns how many were left out before it; `None` if there is none to take.
    fn take_line(&mut self, now: Duration) -> Option<u64> {
        self.lines.get_or_insert(LINES_OF_NODE).take(now)
    }
}

impl Told {
    fn node(&mut self, name: &str) -> &mut ToldOfNode {
        self.nodes.entry(name.to_owned()).or_default()
    }

    /// Forgets nodes, shadows and pools that are gone, and drains that have ended.
    pub(crate) fn prune(&mut self, cluster: &Cluster) {
        self.pools
            .retain(|name, _| cluster.pools.contains_key(name));
        self.nodes.retain(|name, told| {
            let Some(record) = cluster.records.get(name) else {
                return false;
            };
            if record.shadow.is_none() {
                // Its kubelet can have the shadow made and deleted as often as it likes, by the opt-in label.
                let before = std::mem::take(told);
                (told.reason, told.lines) = (before.reason, before.lines);
            }
            if record.led.plan.is_none() {
                told.refusals.clear();
            }
            true
        });
    }
}

impl Reconciler {
    /// Tells in metrics what was decided, and how many objects cannot be read or understood: pools, and pods and budgets that are
    /// watched now. Nodes and shadows follow, one by one.
    pub(super) fn tell(
        &self,
        pass: &mut Pass<'_>,
        nodes: &[Decision<'_>],
        halts: &[&VersionRecord],
    ) {
        let (cluster, observed, gauges) = (pass.cluster, pass.observed, &mut pass.gauges);
        let reasons = nodes.iter().map(|decision| &decision.reason);
        let nodes = observed.views.iter().zip(reasons);
        gauges.count_nodes(cluster, &observed.fleet, nodes, observed.clock.now);
        gauges.tell_halts(halts);
        let enforced = self.leading.admission.holds().is_ok();
        let other = matches!(self.leading.alone.known(), Some(Err(_)));
        gauges.set("brupop_admission_enforced", &[], enforced);
        gauges.set("brupop_other_operator", &[], other);
        gauges.set("brupop_slots_limit", &[], observed.fleet.total_limit());
        gauges.set("brupop_nodes_not_opted_in", &[], observed.not_opted_in);
        let at = observed.clock.now.as_second();
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

    /// Whether a line may be logged about what came of a request about this object.
    pub(crate) fn may_log(&mut self, object: &Object<String>, now: Duration) -> bool {
        let Some(shadow) = object.shadow() else {
            return true;
        };
        self.leading.told.node(&shadow).take_line(now).is_some()
    }

    /// Says why the node moves or not: by a log line when the reason changes, and by the condition once it no longer
    /// changes.
    pub(crate) fn explain(
        &mut self,
        pass: &mut Pass<'_>,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
    ) {
        let (cluster, fleet) = (pass.cluster, &pass.observed.fleet);
        let name = view.shadow_name;
        let Some(shadow) = cluster.shadow(name) else {
            // A quota or a rule may refuse it, or it cannot be read.
            if matches!(reason, Reason::NodeChangesDenied(_)) || reason.is_not_understood() {
                let told = status::progressing(reason, &reason.message(), "");
                self.log_reason(cluster, view, reason, &told);
            } else {
                self.leading.told.node(name).reason = None;
            }
            return;
        };
        let goal = shadow.spec.state;
        let in_service = Reason::Monitoring;
        let reason = match reason {
            Reason::NotLeading | Reason::NodeGone | Reason::NodeReplaced => return,
            // The deadline is known once the step has begun.
            Reason::Monitoring if goal != State::MonitoringUpdate => return,
            // A step has begun once its write is stored. The API server, or the webhook, may refuse it for long.
            Reason::Finishing if goal == State::MonitoringUpdate => &in_service,
            reason => reason,
        };
        if *reason == Reason::Draining {
            self.publish_refusal(pass, view);
        }
        let message = self.message(pass, view, reason, goal);
        let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
        let failure = shadow.spec.last_failure.as_ref();
        let remedy = reason.remedy(&Named {
            node: names::node_of_shadow(name).unwrap_or_default(),
            pool,
            version: view.shadow.and_then(|it| it.update()).unwrap_or_default(),
            namespace: &self.api.namespace,
            failure: failure.map(|failed| failed.reason.as_str()),
        });
        let progressing = status::progressing(reason, &message, &remedy);
        self.log_reason(cluster, view, reason, &progressing);
        let overdue = view.time.slot_overdue;
        let overdue = overdue.then(|| status::overdue(&progressing));
        let available = view.shadow.as_ref();
        let available = available.and_then(status::update_available);
        let word = reason.as_str();
        let wanted = [Some(progressing), overdue, available];
        let wanted: Vec<Condition> = wanted.into_iter().flatten().collect();
        let reasons = wanted.iter().map(|told| told.reason.clone()).collect();
        let now = self.now();
        let told = self.leading.told.node(name);
        if status::shadow_has(shadow, pool, &wanted) {
            return told.conditions.forget();
        }
        if let Some(due) = told.conditions.waits_until(reasons, now) {
            return pass.wake.by(due);
        }
        // When there is room again, a request has been answered, and that makes a pass.
        if self.has_room_for_conditions() {
            let status = status::shadow_patch(
                shadow,
                pool,
                &wanted,
                &text(pass.observed.clock.now, Unit::Second),
            );
            let context = Context {
                node: name.to_owned(),
                reason: word,
                ..Context::default()
            };
            self.apply(pass, Object::ShadowStatus(name.to_owned()), status, context);
        }
    }

    /// Returns all that is said of a reason but its remedy.
    fn message(
        &self,
        pass: &Pass<'_>,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
        goal: State,
    ) -> String {
        let mut message = match reason {
            Reason::StagingBegins(version) if goal == State::Idle => {
                status::not_stored_yet(version)
            }
            reason => reason.message().into_owned(),
        };
        let left = status::left_by_people(view).filter(|_| reason.has_no_update());
        let (detail, back) = (self.detail(pass, view, reason), status::going_back(view));
        let more = [detail, back, left.map(str::to_owned)];
        for more in more.into_iter().flatten() {
            message = format!("{message}; {more}");
        }
        message
    }

    /// Logs the reason and publishes its Event, if it is another than the last one that was logged or, before that, stored.
    fn log_reason(
        &mut self,
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
        wanted: &Condition,
    ) {
        let (name, now, word) = (view.shadow_name, self.now(), reason.as_str());
        let told = self.leading.told.node(name);
        let stored = || Some(&*told_progress(cluster.shadow(name)?)?.reason);
        if told.reason.or_else(stored) == Some(word) {
            told.reason = Some(word);
            return;
        }
        // Without a line it is told in a later pass.
        let Some(left_out) = told.take_line(now) else {
            return;
        };
        told.reason = Some(word);
        let event = EventText::of_reason(view, reason, &wanted.message);
        let context = Context::of(cluster, view, word, event);
        let (left_out, says) = ((left_out > 0).then_some(left_out), &wanted.message);
        let (node, version, state) = (&context.node, &context.version, context.state);
        let reason = word;
        tracing::info!(node, version, state, reason, says, left_out, "Progressing");
        self.publish(context.event, context.about);
    }

    /// Returns what this process knows beyond the reason. The text changes no more often than the reason.
    pub(crate) fn detail(
        &self,
        pass: &Pass<'_>,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
    ) -> Option<String> {
        let (now, fleet) = (pass.observed.clock.now, &pass.observed.fleet);
        let (name, ahead) = (view.shadow_name, fleet.ahead);
        let record = pass.cluster.records.get(name)?;
        let (led, shadow) = (&record.led, record.shadow());
        let pool = || fleet.pool_of(view);
        let transition = || {
            let text = shadow?.spec.state_transition_timestamp.as_deref();
            ahead.read(shadow?.metadata.uid.as_deref()?, text, now)
        };
        match reason {
            Reason::Draining | Reason::Aborting(Abort::DrainBlocked | Abort::DrainTimedOut) => {
                led.held_up_by.clone()
            }
            Reason::StagingBegins(_) => {
                let spec = &shadow.filter(|it| it.spec.state != State::Idle)?.spec;
                let since = spec.state_transition_timestamp.as_deref()?;
                Some(format!("it was asked to at {since}"))
            }
            Reason::Aborting(Abort::NodeChangesDenied) => led.denied().map(str::to_owned),
            Reason::Aborting(Abort::CannotDrain) => Some(led.obstacle.as_ref()?.why().to_owned()),
            Reason::BackingOff => {
                let (shadow, base) = (shadow?, self.policy.back_off_base);
                let uid = shadow.metadata.uid.as_deref()?;
                let failure = shadow.spec.last_failure.as_ref();
                failure.and_then(|it| back_off_text(it, base, uid, ahead, now))
            }
            Reason::Monitoring | Reason::WorkloadsUnavailable(_) => {
                wait_text(pool()?, reason, transition()?)
            }
            Reason::LeavingLoadBalancers => {
                let since = record.marker()?.excluded_at.as_deref();
                let since = ahead.read(&view.node?.uid, since, now)?;
                wait_text(pool()?, reason, since)
            }
            _ => None,
        }
    }

    /// Publishes, once for each answer, why evictions of a drain have been refused for long.
    fn publish_refusal(&mut self, pass: &Pass<'_>, view: &NodeView<'_>) {
        let plan = pass.cluster.drain(view.shadow_name);
        let (evictions, now) = (&self.leading.drainer.evictions, self.now());
        let refusal = plan.and_then(|plan| evictions.lasting_refusal(plan, now));
        let Some((pod, why)) = refusal else { return };
        let told = self.leading.told.nodes.entry(view.shadow_name.to_owned());
        if told.or_default().refusals.insert(why.to_owned()) {
            let event = EventText::of_refusal(view, pod, why);
            let word = Reason::Draining.as_str();
            let context = Context::of(pass.cluster, view, word, Some(event));
            self.publish(context.event, context.about);
        }
    }

    /// Writes the fleet's figures and conditions, once they no longer change.
    pub(crate) fn sum_up<'p>(
        &mut self,
        pass: &mut Pass<'p>,
        nodes: &[Decision<'p>],
        halts: &[&VersionRecord],
    ) {
        let (cluster, observed) = (pass.cluster, pass.observed);
        let Some(fleet) = cluster.fleet() else { return };
        let (admission, alone) = (&self.leading.admission, &self.leading.alone);
        let wanted = status::fleet(
            cluster,
            observed,
            nodes,
            admission.known(),
            alone.known(),
            halts,
            &self.api.namespace,
        );
        let now = self.now();
        let debounced = &mut self.leading.told.fleet;
        if status::fleet_has(&fleet.object, &wanted) {
            return debounced.forget();
        }
        if let Some(due) = debounced.waits_until(wanted.clone(), now) {
            return pass.wake.by(due);
        }
        let status = status::fleet_patch(&fleet.object, &wanted, observed.fleet.now);
        let context = Context {
            event: status::new_obstacle(&wanted, &fleet.object),
            about: Some(fleet.object.object_ref(&())),
            ..Context::default()
        };
        self.apply(pass, Object::FleetStatus, status, context);
    }

    /// Writes the statuses of the pools, once they no longer change.
    pub(crate) fn sum_up_pools(&mut self, pass: &mut Pass<'_>, nodes: &[Decision<'_>]) {
        let cluster = pass.cluster;
        let unanswered = |query: &PrometheusGate| self.leading.gates.failure(query);
        let may_force = self.leading.may_force.holds().is_ok();
        let wanted = status::pools(pass.observed, nodes, unanswered, may_force);
        for ((name, pool), wanted) in cluster.pools.iter().zip(wanted) {
            let now = self.now();
            let debounced = self.leading.told.pools.entry(name.clone()).or_default();
            if status::pool_has(pool, &wanted) {
                debounced.forget();
            } else if let Some(due) = debounced.waits_until(wanted.clone(), now) {
                pass.wake.by(due);
            } else {
                let status =
                    status::pool_patch(pool, &wanted, &text(pass.observed.clock.now, Unit::Second));
                let object = Object::PoolStatus(name.clone());
                self.apply(pass, object, status, Context::default());
            }
        }
    }

    fn apply(
        &mut self,
        pass: &mut Pass<'_>,
        object: Object<String>,
        status: Value,
        context: Context,
    ) {
        let request = Request::new(pass.cluster, object, Body::Apply(status), context);
        self.send(pass, request);
    }

    /// Publishes this Event on this object, if there are both.
    pub(crate) fn publish(&mut self, event: Option<EventText>, about: Option<ObjectReference>) {
        let (Some(text), Some(about)) = (event, about) else {
            return;
        };
        while self.events.try_join_next().is_some() {}
        let reason = text.reason;
        if self.events.len() >= MAX_EVENTS {
            tracing::debug!(reason, "too many Events are under way; one is dropped");
            return;
        }
        let (note, action) = text.printable();
        let (normal, warning) = (EventType::Normal, EventType::Warning);
        let event = Event {
            type_: if text.warning { warning } else { normal },
            reason: reason.to_owned(),
            note: Some(note),
            action,
            secondary: None,
        };
        let recorder = self.recorder.clone();
        self.events.spawn(async move {
            let error = match timeout(EVENT_TIMEOUT, recorder.publish(&event, &about)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => describe(&error),
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::debug!(reason, error, "an Event could not be published");
        });
    }
}

/// Returns why the node moves or not, as it was last told.
fn told_progress(shadow: &BottlerocketShadow) -> Option<&Condition> {
    let mut conditions = status::shadow_conditions(shadow).iter();
    conditions.find(|told| told.type_ == PROGRESSING)
}

#[cfg(test)]
mod tests;
