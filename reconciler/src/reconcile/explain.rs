//! What is said of nodes and fleet: log lines, Events, conditions.

use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::fleet::Counts;
use brupop_api::names;
use brupop_api::printable::printable;
use brupop_runtime::logs::Quota;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use kube::Resource as _;

use super::Reconciler;
use super::complaints::Subject;
use super::pass::Pass;
use super::requests::{Context, Key, Request};
use crate::apply::Call;
use brupop_core::cluster::Cluster;
use brupop_core::deadlines::back_off_text;
use brupop_core::decide::{Abort, Reason};
use brupop_core::drain::Obstacle;
use brupop_core::facts::NodeView;
use brupop_core::status::{self, DesiredCondition, DesiredFleetStatus, EventText};

/// An update has some twenty reasons, one after the other.
const REASONS_LOGGED: Quota = Quota::new(60, Duration::from_mins(1));

impl Reconciler {
    /// Says, once, that a node cannot be interpreted and is left alone.
    pub(super) fn skip(&mut self, cluster: &Cluster, view: &NodeView<'_>, why: &str) {
        let name = view.shadow_name;
        if !self.complaints.is_new(Subject::Node(name.to_owned()), why) {
            return;
        }
        tracing::error!(node = names::node_of_shadow(name), shadow = name, why, "left alone");
        let event = EventText {
            reason: "NotUnderstood",
            warning: true,
            note: format!("left alone: {why}"),
            action: "Observe".to_owned(),
        };
        self.publish_event(Context::of(cluster, view, "NotUnderstood", Some(event)));
    }

    /// Says, once, that a node cannot have a shadow.
    pub(super) fn refuse(&mut self, cluster: &Cluster, name: &str) {
        let note = format!(
            "its name has more than {} characters, so no shadow can be named after it",
            names::NODE_NAME_MAX
        );
        if !self.complaints.is_new(Subject::Node(name.to_owned()), &note) {
            return;
        }
        let long = names::node_of_shadow(name).unwrap_or(name).to_owned();
        tracing::error!(node = long, note, "left alone");
        let event = EventText { reason: "NameTooLong", warning: true, note, action: "Observe".to_owned() };
        let objects = cluster.node(name).map(|node| node.object_ref(&())).into_iter().collect();
        self.publish_event(Context { node: long, event: Some(event), objects, ..Context::default() });
    }

    /// Says why the node moves or not: by a log line when the reason changes, and by the condition once it no longer
    /// changes.
    pub(super) fn explain(&mut self, pass: &mut Pass<'_>, view: &NodeView<'_>, reason: &Reason<'_>) {
        let cluster = pass.cluster;
        let name = view.shadow_name;
        let Some(shadow) = cluster.shadow(name) else { return };
        if matches!(reason, Reason::NotLeading | Reason::NodeGone) {
            return;
        }
        if matches!(reason, Reason::Draining) {
            self.publish_refusal(cluster, view);
        }
        let mut message = reason.message().into_owned();
        if let Some(more) = self.detail(pass, name, reason) {
            message = format!("{message}; {more}");
        }
        let wanted = DesiredCondition::progressing(reason.status(), reason.as_str(), &message);
        let conditions = status::shadow_conditions(shadow);
        let stored = conditions.iter().find(|condition| condition.type_ == wanted.type_);
        let before = self.leading.reasons.insert(name.to_owned(), wanted.reason);
        if before.or(stored.map(|stored| stored.reason.as_str())) != Some(wanted.reason) {
            let context = Context::of(cluster, view, wanted.reason, EventText::of_reason(view, reason));
            let Context { node, version, state, .. } = &context;
            let (now, says) = (self.now(), &wanted.message);
            let quota = self.leading.said.entry(name.to_owned()).or_insert(REASONS_LOGGED);
            if let Some(left_out) = quota.take(now) {
                let left_out = (left_out > 0).then_some(left_out);
                tracing::info!(node, version, state, reason = wanted.reason, says, left_out, "Progressing");
            }
            self.publish_event(context);
        }
        let reason = wanted.reason;
        let overdue = view.time.slot_overdue.then(|| DesiredCondition::overdue(&wanted));
        let wanted: Vec<DesiredCondition> = [wanted].into_iter().chain(overdue).collect();
        if status::shadow_has(shadow, &wanted) {
            self.leading.debounced.forget(name);
            return;
        }
        if let Some(due) = self.leading.debounced.waits_until(name, wanted.clone(), self.now()) {
            pass.wake.by(due);
            return;
        }
        let status = status::shadow_patch(shadow, &wanted, &text(pass.now));
        let key = Key::Condition(name.to_owned());
        let request = Request {
            seen: key.version_in(cluster),
            key,
            call: Call::ApplyToShadow { name: name.to_owned(), status },
            begins_term: None,
            context: Context { node: name.to_owned(), reason, ..Context::default() },
        };
        self.send(pass, request);
    }

    /// What this process knows beyond the reason. The text changes no more often than the reason.
    pub(super) fn detail(&self, pass: &Pass<'_>, name: &str, reason: &Reason<'_>) -> Option<String> {
        let Pass { cluster, now, .. } = *pass;
        match reason {
            Reason::Draining | Reason::Aborting(Abort::DrainTimedOut) => {
                let held_up = || self.leading.evictions.held_up_by(cluster.drain(name)?, now);
                held_up().or_else(|| left(cluster, name))
            }
            Reason::RebootGranted | Reason::Rebooting | Reason::RebootOverdue => left(cluster, name),
            Reason::Aborting(Abort::PodsComeBack) => cluster.drain(name)?.needed.clone(),
            Reason::Aborting(Abort::NodeChangesDenied) => cluster.entries.get(name)?.denied.clone(),
            Reason::Aborting(Abort::CannotDrain) => match cluster.entries.get(name)?.obstacle.as_ref()? {
                Obstacle::Never(why) => Some(why.clone()),
                Obstacle::Now { .. } => None,
            },
            Reason::Aborting(Abort::WorkloadsUnavailable | Abort::WorkloadsUnavailableAmongOthers) => {
                cluster.entries.get(name)?.evicted.clone().flatten()
            }
            Reason::OutsideWindow => Some(self.opens.map_or_else(
                || "it never opens again (SCHEDULER_CRON_EXPRESSION)".to_owned(),
                |opens| format!("it opens at {opens}"),
            )),
            Reason::BackingOff => {
                let shadow = cluster.shadow(name)?;
                let base = self.policy.durations.back_off_base;
                back_off_text(shadow.spec.failures.as_ref()?, base, shadow.metadata.uid.as_deref()?)
            }
            _ => None,
        }
    }

    /// Publishes, once for each answer, why evictions of a drain are refused.
    fn publish_refusal(&mut self, cluster: &Cluster, view: &NodeView<'_>) {
        let name = view.shadow_name;
        let Some(plan) = cluster.drain(name) else { return };
        let Some((pod, why)) = self.leading.evictions.refusal(plan) else { return };
        if self.complaints.is_new(Subject::Drain(name.to_owned(), why.to_owned()), why) {
            let event = EventText::of_refusal(view, pod, why);
            self.publish_event(Context::of(cluster, view, Reason::Draining.as_str(), Some(event)));
        }
    }

    /// Writes the fleet's limit, counts and conditions, once they no longer change.
    pub(super) fn sum_up(&mut self, pass: &mut Pass<'_>, counts: Counts) {
        let Pass { cluster, observed, .. } = *pass;
        let Some(ledger) = cluster.ledger() else { return };
        let versions = observed.fleet.versions;
        let halted = versions.iter().filter(|(_, record)| record.halted.is_some());
        let halted: Vec<&str> = halted.map(|(version, _)| version.as_str()).collect();
        let (admission, alone) = (&self.leading.admission, &self.leading.alone);
        let wanted = DesiredFleetStatus {
            limit: observed.fleet.limit,
            counts,
            halted: (!halted.is_empty()).then(|| printable(&halted.join(","), MESSAGE_MAX).into_owned()),
            halt: DesiredCondition::halted(&self.caller.namespace, versions, observed.fleet.acknowledged),
            admission: admission.is_known().then(|| DesiredCondition::admission(admission.holds())),
            other_operator: alone.is_known().then(|| DesiredCondition::other_operator(alone.holds())),
        };
        if wanted.is_stored_in(&ledger.fleet) {
            self.leading.debounced_fleet.forget(names::FLEET);
            return;
        }
        if let Some(due) = self.leading.debounced_fleet.waits_until(names::FLEET, wanted.clone(), self.now())
        {
            pass.wake.by(due);
            return;
        }
        let call = Call::ApplyToFleet(wanted.patch(&ledger.fleet, observed.fleet.now));
        let event = wanted.new_obstacle(&ledger.fleet).map(EventText::of_other_operator);
        let objects = vec![ledger.fleet.object_ref(&())];
        let (key, context) = (Key::FleetStatus, Context { event, objects, ..Context::default() });
        let seen = key.version_in(cluster);
        self.send(pass, Request { key, call, seen, begins_term: None, context });
    }
}

/// What is said of pods that stay on the node of this shadow, for they came back each time.
fn left(cluster: &Cluster, name: &str) -> Option<String> {
    let marker = cluster.entries.get(name)?.marker()?;
    (!marker.left_owners.is_empty()).then(|| status::left_pods(&marker.left_owners))
}

/// The time as conditions record it, in whole seconds.
fn text(now: Timestamp) -> String {
    now.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc)).unwrap_or(now).to_string()
}
