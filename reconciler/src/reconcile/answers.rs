//! Handles the answers to calls: notes what to wait for, logs, counts, and publishes Events.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use brupop_runtime::errors::describe;

use super::complaints::Subject;
use super::opt_in::OPT_IN_PAUSE;
use super::requests::{Context, Key, Request};
use super::{Answered, Reconciler};
use crate::admission_probe::Finding;
use crate::apply::{Call, Outcome};
use crate::evict::Answer;
use crate::other_operator::Looked;
use brupop_core::drain::PodKey;
use brupop_core::status::EventText;
use tokio::task::JoinError;

impl Reconciler {
    pub(super) fn answered(&mut self, answer: Answered) {
        match answer {
            Answered::Request(request, outcome) => self.done(*request, outcome),
            Answered::Probe(finding) => self.probe_answered(&finding),
            Answered::LookedAround(looked) => self.looked_around(&looked),
        }
    }

    fn done(&mut self, request: Request, outcome: Outcome) {
        let now = self.now();
        let Request { key, call, seen, begins_term, context } = request;
        let object = call.as_str();
        let denied = matches!(outcome, Outcome::Denied(_) | Outcome::NodeDenied(_));
        let opts_in = matches!(call, Call::LabelNode { .. });
        let Context { node, version, state, reason, .. } = &context;
        self.leading.denials.answered(&key, &call, &outcome, now);
        match outcome {
            Outcome::Written(version_written) => {
                self.complaints.resolved(&Subject::Call(key.clone()));
                if self.leading.idle_writes.written(&key, seen, version_written, || call.patch()) {
                    self.metrics.wrote(object, "unchanged");
                    if self.complaints.is_new(Subject::IdleWrite(key.clone()), "") {
                        let why = "somebody else holds a field, or a webhook puts it back";
                        tracing::warn!(
                            node,
                            reason,
                            object,
                            why,
                            "a write changed nothing; waiting for a change"
                        );
                    }
                    self.leading.in_flight.written(key, version_written, now);
                    return;
                }
                self.metrics.wrote(object, "written");
                self.complaints.resolved(&Subject::IdleWrite(key.clone()));
                self.leading.in_flight.written(key.clone(), version_written, now);
                if opts_in {
                    self.complaints.resolved(&Subject::OptIn);
                }
                if let Some(term) = begins_term {
                    self.leading.term = Some(term);
                    tracing::info!(term, "this process leads");
                } else if !matches!(key, Key::Condition(_) | Key::FleetStatus) {
                    tracing::info!(node, version, state, reason, object, "written");
                }
                self.publish_event(context);
            }
            Outcome::Removed => {
                self.metrics.wrote(object, "removed");
                tracing::info!(node, reason, object, "removed");
                self.leading.in_flight.removed(key, seen, now);
            }
            Outcome::NotConfirmed => {
                self.metrics.wrote(object, "not-confirmed");
                tracing::debug!(node, reason, "pods came after the node was seen empty");
                self.leading.in_flight.failed(key, now);
            }
            Outcome::Refused(why) | Outcome::Denied(why) | Outcome::NodeDenied(why) => {
                self.metrics.wrote(object, if denied { "denied" } else { "refused" });
                // One refusal comes from a stale view, and the next version of the object settles it. Repeated refusals
                // are a mistake of ours, or there is a rule against it.
                match self.leading.in_flight.refused(key, seen, now) {
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
            Outcome::Failed(why) => {
                self.metrics.wrote(object, "failed");
                self.leading.in_flight.failed(key.clone(), now);
                if opts_in {
                    self.leading.opt_in_from = now + OPT_IN_PAUSE;
                    return self.not_opted_in(context, &why);
                }
                if self.complaints.is_new(Subject::Call(key), &why) {
                    tracing::warn!(node, version, state, reason, object, why, "a call failed; trying again");
                }
            }
        }
    }

    pub(super) fn evicted(&mut self, joined: Result<(PodKey, Answer), JoinError>) {
        // These tasks are neither cancelled nor do they panic, so there is no error.
        let Ok((pod, answer)) = joined else { return };
        let now = self.now();
        self.metrics.evicted(answer.as_str());
        if self.leading.evictions.answered(&pod, &answer, now) {
            let PodKey { namespace, name, .. } = pod;
            match answer {
                Answer::Accepted | Answer::Gone => {
                    tracing::info!(namespace, name, "the pod can be evicted now");
                }
                Answer::Leaving => {
                    tracing::info!(namespace, name, "its namespace is being deleted, and the pod with it");
                }
                Answer::Blocked(why, _) => {
                    tracing::info!(namespace, name, why, "a budget holds up an eviction");
                }
                Answer::Failed(why) => {
                    tracing::warn!(namespace, name, why, "an eviction failed; trying again");
                }
            }
        }
    }

    fn probe_answered(&mut self, finding: &Finding) {
        let now = self.now();
        if self.leading.admission.found(finding, now) {
            match self.leading.admission.holds() {
                Ok(()) => tracing::info!("webhook and policy refuse what they must"),
                Err(why) => {
                    tracing::warn!(why, "no update starts: our admission rules are not seen to be in force");
                }
            }
        }
    }

    fn looked_around(&mut self, looked: &Looked) {
        let now = self.now();
        if self.leading.alone.found(looked, now)
            && let Err(why) = self.leading.alone.holds()
        {
            tracing::error!(why, "no update starts");
        }
    }

    /// Publishes an Event, if there is one, on each object that the call concerns.
    pub(super) fn publish_event(&mut self, context: Context) {
        let Some(event) = context.event else { return };
        for object in context.objects {
            self.publish_on(object, event.clone());
        }
    }

    fn publish_on(&mut self, object: ObjectReference, text: EventText) {
        while self.publishing.try_join_next().is_some() {}
        if self.publishing.len() >= super::MAX_EVENTS {
            tracing::debug!(reason = text.reason, "too many Events are on their way; one is lost");
            return;
        }
        let recorder = self.recorder.clone();
        let publish = async move {
            let (note, action) = text.printable();
            let event = Event {
                type_: if text.warning { EventType::Warning } else { EventType::Normal },
                reason: text.reason.to_owned(),
                note: Some(note),
                action,
                secondary: None,
            };
            let published =
                tokio::time::timeout(super::EVENT_TIMEOUT, recorder.publish(&event, &object)).await;
            let error = match published {
                Ok(Ok(())) => return,
                Ok(Err(error)) => describe(&error),
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::debug!(reason = event.reason, error, "an Event could not be published");
        };
        self.publishing.spawn(publish);
    }
}
