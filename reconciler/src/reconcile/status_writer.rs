//! What is said of nodes: log lines, Events, conditions.

use brupop_api::conditions::{Condition, PROGRESSING};
use brupop_api::{BottlerocketShadow, Object, State, names};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::Value;

use super::Reconciler;
use super::calls::{Call, Context};
use super::memory::Step;
use super::pass::Pass;
use crate::operation::Operation;
use brupop_core::cluster::Cluster;
use brupop_core::deadlines::sentences::{
    back_off_text, exclusion_text, given_up_text, verify_text, workloads_text,
};
use brupop_core::deadlines::{EXCLUDED, TRANSITION};
use brupop_core::decide::{
    Abort, DrainStep, MonitorStep, Named, Reason, StagingStep, TOO_MANY_PODS,
};
use brupop_core::drain::Obstacle;
use brupop_core::facts::NodeView;
use brupop_core::status::{self, DesiredCondition, EventText};

impl Reconciler {
    /// Says, once, that a node cannot be interpreted and is left alone.
    pub(super) fn leave_alone(&mut self, cluster: &Cluster, view: &NodeView<'_>, why: &str) {
        let name = view.shadow_name;
        if !self
            .leading
            .memory
            .leave_alone(name, why, self.epoch.elapsed())
        {
            return;
        }
        tracing::error!(
            node = names::node_of_shadow(name),
            shadow = name,
            why,
            "this node is left alone"
        );
        let event = EventText {
            reason: "NotUnderstood",
            warning: true,
            note: format!("this node is left alone: {why}"),
            action: "Observe".to_owned(),
        };
        self.publisher
            .publish(Context::of(cluster, view, "NotUnderstood", Some(event)));
    }

    /// Says, once, that a node cannot have a shadow.
    pub(super) fn refuse_name(&mut self, cluster: &Cluster, name: &str) {
        let note = format!(
            "its name has more than {} characters, so no shadow can be named after it",
            names::NODE_NAME_MAX
        );
        if !self
            .leading
            .memory
            .leave_alone(name, &note, self.epoch.elapsed())
        {
            return;
        }
        let long = names::node_of_shadow(name).unwrap_or(name).to_owned();
        tracing::error!(node = long, note, "this node is left alone");
        let event = EventText {
            reason: "NameTooLong",
            warning: true,
            note,
            action: "Observe".to_owned(),
        };
        let objects = cluster
            .node(name)
            .map(|node| node.object_ref())
            .into_iter()
            .collect();
        self.publisher.publish(Context {
            node: long,
            event: Some(event),
            objects,
            ..Context::default()
        });
    }

    /// Says why the node moves or not: by a log line when the reason changes, and by the condition once it no longer
    /// changes.
    pub(super) fn explain(
        &mut self,
        pass: &mut Pass<'_>,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
    ) {
        let cluster = pass.cluster;
        let name = view.shadow_name;
        let Some(shadow) = cluster.shadow(name) else {
            return self.explain_without_shadow(cluster, view, reason);
        };
        if matches!(reason, Reason::NotLeading | Reason::NodeGone(_)) {
            return;
        }
        if matches!(reason, Reason::Draining(_)) {
            self.publish_refusal(pass, view);
        }
        if let Reason::Aborting(why) = reason {
            self.leading.memory.node(name).explained.given_up = Some(*why);
        }
        let goal = shadow.spec.state;
        // Until when is known once the step has begun.
        if matches!(reason, Reason::Monitoring(MonitorStep::InService))
            && goal != State::MonitoringUpdate
        {
            return;
        }
        // A step has begun once its write is stored. The API server, or the webhook, may refuse it for long.
        let reason = match reason {
            Reason::Finishing if goal == State::MonitoringUpdate => {
                &Reason::Monitoring(MonitorStep::InService)
            }
            reason => reason,
        };
        let mut message = match reason {
            Reason::Staging(StagingStep::Begins(version)) if goal == State::Idle => {
                status::not_stored_yet(version)
            }
            reason => reason.message().into_owned(),
        };
        if let Some(more) = self.detail(pass, view, reason) {
            message = format!("{message}; {more}");
        }
        if let Some(back) = status::going_back(view) {
            message = format!("{message}; {back}");
        }
        if let Some(left) = status::left_by_people(view).filter(|_| reason.has_no_update()) {
            message = format!("{message}; {left}");
        }
        let fleet = &pass.observed.fleet;
        let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
        let remedy = reason.remedy(&Named {
            node: names::node_of_shadow(name).unwrap_or_default(),
            pool,
            version: view.shadow.and_then(|it| it.update()).unwrap_or_default(),
            namespace: &self.api.namespace,
            failure: shadow
                .spec
                .last_failure
                .as_ref()
                .map(|failed| failed.reason.as_str()),
        });
        let progressing = DesiredCondition::progressing(reason, &message, &remedy);
        self.log_reason(cluster, view, reason, &progressing);
        let overdue = view
            .time
            .slot_overdue
            .then(|| DesiredCondition::overdue(&progressing));
        let available = view
            .shadow
            .as_ref()
            .and_then(DesiredCondition::update_available);
        let (why, reason) = (reason, progressing.reason);
        let wanted: Vec<DesiredCondition> = [progressing]
            .into_iter()
            .chain(overdue)
            .chain(available)
            .collect();
        let now = self.now();
        let has_slot = pass.observed.fleet.slots.contains_key(name);
        let step = step(shadow, has_slot, why);
        let explained = &mut self.leading.memory.node(name).explained;
        if status::shadow_has(shadow, pool, &wanted) {
            explained.stored(step, has_slot);
            return;
        }
        if let Some(due) = explained.waits_until(&wanted, step, now) {
            pass.wake.by(due);
            return;
        }
        // When there is room again, a request has been answered, and that makes a pass.
        if !self.has_room_for_conditions() {
            return;
        }
        let status = status::shadow_patch(shadow, pool, &wanted, &text(pass.now));
        let context = Context {
            node: name.to_owned(),
            reason,
            ..Context::default()
        };
        self.apply(pass, Object::ShadowStatus(name.to_owned()), status, context);
    }

    /// Says why a node gets no shadow: a quota or a rule may refuse it.
    fn explain_without_shadow(
        &mut self,
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
    ) {
        if matches!(reason, Reason::NodeChangesDenied(_)) {
            let told = DesiredCondition::progressing(reason, &reason.message(), "");
            self.log_reason(cluster, view, reason, &told);
        } else {
            self.leading.memory.node(view.shadow_name).explained.reason = None;
        }
    }

    /// Logs the reason and publishes its Event, if it is another than the last one that was logged or, before that, stored.
    fn log_reason(
        &mut self,
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
        wanted: &DesiredCondition,
    ) {
        let name = view.shadow_name;
        let now = self.now();
        let explained = &mut self.leading.memory.node(name).explained;
        let before = explained.reason.replace(wanted.reason);
        let stored = || Some(told_progress(cluster.shadow(name)?)?.reason.as_str());
        if before.or_else(stored) == Some(wanted.reason) {
            return;
        }
        let logged = explained.quota.take(now);
        let context = Context::of(
            cluster,
            view,
            wanted.reason,
            EventText::of_reason(view, reason, &wanted.message),
        );
        if let Some(left_out) = logged {
            let (left_out, says) = ((left_out > 0).then_some(left_out), &wanted.message);
            let Context {
                node,
                version,
                state,
                ..
            } = &context;
            tracing::info!(
                node,
                version,
                state,
                reason = wanted.reason,
                says,
                left_out,
                "Progressing"
            );
        }
        self.publisher.publish(context);
    }

    /// What this process knows beyond the reason. The text changes no more often than the reason.
    pub(super) fn detail(
        &self,
        pass: &Pass<'_>,
        view: &NodeView<'_>,
        reason: &Reason<'_>,
    ) -> Option<String> {
        let Pass { cluster, now, .. } = *pass;
        let (name, ahead) = (view.shadow_name, pass.observed.fleet.ahead);
        let led = &cluster.records.get(name)?.led;
        let transition = |shadow: &BottlerocketShadow| {
            let text = shadow.spec.state_transition_timestamp.as_deref();
            ahead.read([shadow.metadata.uid.as_deref()?, TRANSITION], text, now)
        };
        match reason {
            Reason::Draining(DrainStep::Evicts)
            | Reason::Aborting(Abort::DrainBlocked | Abort::DrainTimedOut) => {
                led.drain.as_ref()?.held_up_by.clone()
            }
            Reason::Staging(StagingStep::Begins(_)) => {
                let spec = &cluster.shadow(name)?.spec;
                let since = spec
                    .state_transition_timestamp
                    .as_deref()
                    .filter(|_| spec.state != State::Idle)?;
                Some(format!("it was asked to at {since}"))
            }
            Reason::Aborting(Abort::NodeChangesDenied) => led
                .denied
                .node
                .clone()
                .or_else(|| led.denied.shadow.clone()),
            Reason::Aborting(Abort::CannotDrain) => match led.obstacle.as_ref()? {
                Obstacle::Never(why) => Some(why.clone()),
                Obstacle::TooManyPods => Some(TOO_MANY_PODS.to_owned()),
                Obstacle::Budget { .. } => None,
            },
            Reason::BackingOff => {
                let shadow = cluster.shadow(name)?;
                let (spec, base) = (&shadow.spec, self.policy.durations.back_off_base);
                let uid = shadow.metadata.uid.as_deref()?;
                let failed = |failures| back_off_text(failures, base, uid, ahead, now);
                spec.last_failure.as_ref().and_then(failed).or_else(|| {
                    // A leader that was not there reads it from the condition that an earlier one has written.
                    let told = || {
                        let told = told_progress(shadow).filter(|told| tells_why(&told.reason))?;
                        Abort::told_by(&told.message)
                    };
                    let why = self.leading.memory.given_up(name).or_else(told);
                    let why = why.map(|why| format!("({why:?}): {why}"));
                    given_up_text(
                        spec.version.as_deref()?,
                        why.as_deref(),
                        transition(shadow)?,
                    )
                })
            }
            Reason::Monitoring(MonitorStep::InService) => verify_text(
                pass.observed.fleet.pool_of(view)?,
                transition(cluster.shadow(name)?)?,
            ),
            Reason::WorkloadsUnavailable(_) => workloads_text(
                pass.observed.fleet.pool_of(view)?,
                transition(cluster.shadow(name)?)?,
            ),
            Reason::Draining(DrainStep::LeavesLoadBalancers) => {
                let since = cluster.records.get(name)?.marker()?.excluded_at.as_deref();
                let since = ahead.read([&view.node?.uid, EXCLUDED], since, now)?;
                exclusion_text(pass.observed.fleet.pool_of(view)?, since)
            }
            _ => None,
        }
    }

    /// Publishes, once for each answer, why evictions of a drain have been refused for long.
    fn publish_refusal(&mut self, pass: &Pass<'_>, view: &NodeView<'_>) {
        let name = view.shadow_name;
        let Some(plan) = pass.cluster.drain(name) else {
            return;
        };
        let Some((pod, why)) = self.leading.drainer.lasting_refusal(plan) else {
            return;
        };
        if self.leading.memory.refused(name, why) {
            let event = EventText::of_refusal(view, pod, why);
            self.publisher.publish(Context::of(
                pass.cluster,
                view,
                Reason::Draining(DrainStep::Evicts).as_str(),
                Some(event),
            ));
        }
    }

    pub(super) fn apply(
        &mut self,
        pass: &mut Pass<'_>,
        object: Object<String>,
        status: Value,
        context: Context,
    ) {
        let call = Call::about(pass.cluster, object, Ok(Operation::Apply(status)), context);
        self.send(pass, call);
    }
}

/// What the reason means for the update of its node, whose condition may say something older.
fn step(shadow: &BottlerocketShadow, has_slot: bool, reason: &Reason<'_>) -> Step {
    let told = || Reason::of_word(&told_progress(shadow)?.reason);
    let told_moving = || told().is_some_and(|told| told.is_moving());
    if has_slot && reason.begins_step() {
        Step::Begins(reason.as_str())
    } else if !has_slot && !reason.is_moving() && told_moving() {
        Step::Ended
    } else {
        Step::Other
    }
}

/// The time as conditions record it, in whole seconds.
pub(super) fn text(now: Timestamp) -> String {
    now.round(
        TimestampRound::new()
            .smallest(Unit::Second)
            .mode(RoundMode::Trunc),
    )
    .unwrap_or(now)
    .to_string()
}

/// Why the node moves or not, as it was last told.
fn told_progress(shadow: &BottlerocketShadow) -> Option<&Condition> {
    status::shadow_conditions(shadow)
        .iter()
        .find(|told| told.type_ == PROGRESSING)
}

/// Whether this reason's message names in our own words why an update was given up. Others quote hosts.
fn tells_why(reason: &str) -> bool {
    matches!(
        Reason::of_word(reason),
        Some(Reason::Aborting(_) | Reason::BackingOff)
    )
}
