//! Takes in what came of requests: notes what to wait for, logs, counts, and publishes Events.

use std::time::Duration;

use brupop_api::Object;
use tokio::task::JoinError;

use super::calls::{Call, Context, Purpose};
use super::memory::in_flight::Wrote;
use super::{Completed, Reconciler};
use crate::checks::Finding;
use crate::evict::EvictionAnswer;
use crate::operation::{Operation, Reply};
use brupop_core::drain::PodKey;
use brupop_core::status::EventText;

/// No node is labelled for so long after one could not be: most likely none can.
const OPT_IN_PAUSE: Duration = Duration::from_secs(30);

impl Reconciler {
    pub(super) fn completed(&mut self, completed: Completed) {
        match completed {
            Completed::Call(call, reply) => self.replied(*call, reply),
            Completed::Probe(finding) => self.probe_completed(finding),
            Completed::LookedAround(looked) => self.looked_around(looked),
            Completed::AskedForForce(answer) => {
                let now = self.now();
                self.leading.may_force.found(answer, now);
            }
            Completed::WorkloadsRead(name, scales) => {
                let now = self.now();
                self.leading.drainer.workloads.end(&name, scales, now);
            }
            Completed::GateAnswer(query, answer) => {
                self.leading
                    .gates
                    .answered(&query, answer, self.epoch.elapsed());
            }
        }
    }

    fn replied(&mut self, call: Call, reply: Reply) {
        // That a node cannot be labelled says nothing of its updates.
        let reply = match reply {
            Reply::Denied(why) if call.purpose == Purpose::OptIn => Reply::Failed(why),
            reply => reply,
        };
        let now = self.now();
        let object = call.object.as_str();
        self.leading.memory.record_reply(&call.object, &reply, now);
        if !matches!(reply, Reply::Written { .. }) {
            self.metrics.wrote(object, reply.as_str());
        }
        let logged =
            matches!(reply, Reply::Removed) && self.leading.memory.may_log(&call.object, now);
        let in_flight = self.leading.memory.in_flight(&call.object);
        let Context { node, reason, .. } = &call.context;
        match reply {
            Reply::Written { version, .. } => self.written(call, version),
            Reply::Removed => {
                in_flight.removed(call.seen, now);
                call.context
                    .ended
                    .iter()
                    .for_each(|ended| self.metrics.ended(ended));
                if logged {
                    tracing::info!(node, reason, object, "removed");
                    self.publisher.publish(call.context);
                }
            }
            Reply::NotConfirmed => {
                tracing::debug!(
                    node,
                    reason,
                    "conflict: pods appeared on the node after it was seen drained"
                );
                in_flight.postponed(now);
            }
            Reply::Refused(why) | Reply::NodeDenied(why) => {
                log_refusal(in_flight.refused(call.seen, now), &call, &why);
            }
            Reply::Denied(why) => {
                log_refusal(in_flight.refused(call.seen, now), &call, &why);
                self.doubt_admission(&call, &why, now);
            }
            Reply::Failed(why) => self.failed(call, &why),
        }
    }

    /// Dry runs need a shadow. Where the webhook cannot be reached there may never be one, and this is all that tells.
    fn doubt_admission(&mut self, call: &Call, why: &str, now: Duration) {
        if let (Object::ShadowSpec(_), Ok(Operation::Create(_))) = (&call.object, &call.operation) {
            self.leading
                .admission
                .doubt(format!("a shadow could not be created: {why}"), now);
        }
    }

    /// A call failed; it is made again later.
    fn failed(&mut self, call: Call, why: &str) {
        let now = self.now();
        let news = self.leading.memory.in_flight(&call.object).failed(why, now);
        self.doubt_admission(&call, why, now);
        if call.purpose == Purpose::OptIn {
            self.leading.opt_in_from = now + OPT_IN_PAUSE;
            self.not_opted_in(call.context, why);
        } else if news {
            let Context {
                node,
                version,
                state,
                reason,
                ..
            } = &call.context;
            let object = call.object.as_str();
            tracing::warn!(
                node,
                version,
                state,
                reason,
                object,
                why,
                "a request failed; trying again"
            );
        }
    }

    /// A call changed its object, or nothing.
    fn written(&mut self, call: Call, version_written: Option<u64>) {
        let Call {
            object,
            operation,
            seen,
            purpose,
            context,
        } = call;
        let now = self.now();
        let Context {
            node,
            version,
            state,
            reason,
            ..
        } = &context;
        let in_flight = self.leading.memory.in_flight(&object);
        // Conditions change with the words of agents, and have a brake of their own.
        let written_for = if matches!(object, Object::Node(_) | Object::ShadowSpec(_)) {
            *reason
        } else {
            ""
        };
        let content = operation.ok().and_then(|operation| operation.content());
        let wrote = in_flight.written(written_for, seen, version_written, content, now);
        log_write_without_effect(wrote, &context, object.as_str());
        if matches!(wrote, Wrote::Nothing { .. }) {
            self.metrics.wrote(object.as_str(), "unchanged");
            return;
        }
        self.metrics.wrote(object.as_str(), "written");
        context
            .ended
            .iter()
            .for_each(|ended| self.metrics.ended(ended));
        let told = matches!(
            object,
            Object::Node(_) | Object::ShadowSpec(_) | Object::Ledger
        );
        match purpose {
            Purpose::BeginTerm(term) => {
                self.leading.term = Some(term);
                tracing::info!(term, "this process leads");
            }
            _ if told && self.leading.memory.may_log(&object, now) => {
                tracing::info!(
                    node,
                    version,
                    state,
                    reason,
                    object = object.as_str(),
                    "written"
                );
            }
            _ => {}
        }
        if purpose == Purpose::OptIn {
            self.leading.memory.opt_in.resolved();
        }
        self.publisher.publish(context);
    }

    /// Says that a node could not be labelled. The same answer is said once for all nodes, since it is mostly the same
    /// for all.
    fn not_opted_in(&mut self, context: Context, why: &str) {
        let event = EventText::of_no_opt_in(why);
        if self.leading.memory.opt_in.is_new(&event.note) {
            let (node, says) = (&context.node, &event.note);
            tracing::warn!(
                node,
                why,
                says,
                "a node was not labelled; trying again, later each time"
            );
            self.publisher.publish(Context {
                event: Some(event),
                ..context
            });
        }
    }

    pub(super) fn evicted(&mut self, joined: Result<(PodKey, EvictionAnswer), JoinError>) {
        // These tasks are neither cancelled nor do they panic, so there is no error.
        let Ok((pod, answer)) = joined else { return };
        let now = self.now();
        self.metrics.evicted(answer.as_str());
        if !self.leading.drainer.answered(&pod, &answer, now) {
            return;
        }
        let PodKey {
            namespace, name, ..
        } = pod;
        match answer {
            EvictionAnswer::Accepted | EvictionAnswer::Gone => {
                tracing::info!(namespace, name, "the pod can be evicted now");
            }
            EvictionAnswer::Leaving => {
                tracing::info!(
                    namespace,
                    name,
                    "the pod's namespace is being deleted, and the pod with it"
                );
            }
            EvictionAnswer::Blocked(why, _) => {
                tracing::info!(
                    namespace,
                    name,
                    why,
                    "a PodDisruptionBudget blocks an eviction"
                );
            }
            EvictionAnswer::Refused(why) | EvictionAnswer::Failed(why) => {
                tracing::warn!(namespace, name, why, "an eviction failed; trying again");
            }
        }
    }

    fn probe_completed(&mut self, finding: Finding) {
        let now = self.now();
        if self.leading.admission.found(finding, now) {
            match self.leading.admission.holds() {
                Ok(()) => tracing::info!("webhook and policy refused the dry runs, as they must"),
                Err(why) => {
                    tracing::warn!(
                        why,
                        "no update starts: dry runs did not show that webhook and policy are enforced"
                    );
                }
            }
        }
    }

    fn looked_around(&mut self, looked: Finding) {
        let now = self.now();
        if self.leading.alone.found(looked, now)
            && let Err(why) = self.leading.alone.holds()
        {
            tracing::error!(why, "no update starts");
        }
    }
}

/// Says, once, that writes have no effect, or none that lasts.
fn log_write_without_effect(wrote: Wrote, Context { node, reason, .. }: &Context, object: &str) {
    let (why, what) = match wrote {
        Wrote::Nothing { first: true } => (
            "somebody else owns a field, or a webhook restores it",
            "a write changed nothing; waiting until the object changes",
        ),
        Wrote::Again { first: true } => (
            "somebody undoes it each time, or the API server does not keep all of it",
            "the same was written many times; writing less often",
        ),
        Wrote::Change | Wrote::Nothing { first: false } | Wrote::Again { first: false } => return,
    };
    tracing::warn!(node, reason, object, why, "{what}");
}

/// One refusal comes from a stale view, and the next version of the object settles it. Repeated refusals are a mistake of
/// ours, or there is a rule against it.
fn log_refusal(in_a_row: u32, call: &Call, why: &str) {
    let object = call.object.as_str();
    let Context {
        node,
        version,
        state,
        reason,
        ..
    } = &call.context;
    match in_a_row {
        1 => tracing::debug!(node, reason, object, why, "refused"),
        3 => tracing::error!(
            node,
            version,
            state,
            reason,
            object,
            why,
            "refused three times in a row"
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::{holds_up, reconciler};
    use brupop_core::phases::Ended;
    use jiff::Timestamp;
    use kube::api::Preconditions;
    use tokio::sync::{mpsc::unbounded_channel, watch};

    #[tokio::test]
    async fn a_node_that_is_removed_after_its_update_is_counted() {
        let (wrote, _writes) = unbounded_channel();
        let (_, elected) = watch::channel(None);
        let mut reconciler = reconciler(holds_up(wrote, std::sync::mpsc::channel().1), elected);
        let name = "brs-a".to_owned();
        let operation = Ok(Operation::Delete(Preconditions::default()));
        let context = Context {
            ended: vec![Ended::Removed],
            ..Context::default()
        };
        let (object, purpose) = (Object::ShadowSpec(name), Purpose::Other);
        reconciler.replied(
            Call {
                object,
                operation,
                seen: Some(1),
                purpose,
                context,
            },
            Reply::Removed,
        );
        let text = reconciler.metrics.render(None, 0, Timestamp::UNIX_EPOCH);
        assert!(
            text.contains("brupop_updated_nodes_removed_total 1"),
            "{text}"
        );
    }
}
