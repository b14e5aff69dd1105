//! Publishes Events, a few at a time.

use std::time::Duration;

use brupop_core::status::EventText;
use brupop_runtime::errors::describe;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::calls::Context;

/// The most Events that are under way at once; further ones are dropped.
const MAX_EVENTS: usize = 64;
/// Longest wait for the answer to an Event; after that it is dropped. A busy API server may need long.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Publishes Events.
pub(super) struct Publisher {
    recorder: Recorder,
    under_way: JoinSet<()>,
}

impl Publisher {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            under_way: JoinSet::new(),
        }
    }

    /// Publishes the Event of this context, if there is one, on each of its objects.
    pub(super) fn publish(&mut self, context: Context) {
        let Some(event) = context.event else { return };
        for object in context.objects {
            self.publish_on(object, event.clone());
        }
    }

    /// Waits until none is under way.
    pub(super) async fn finish(&mut self) {
        while self.under_way.join_next().await.is_some() {}
    }

    fn publish_on(&mut self, object: ObjectReference, text: EventText) {
        while self.under_way.try_join_next().is_some() {}
        if self.under_way.len() >= MAX_EVENTS {
            tracing::debug!(
                reason = text.reason,
                "too many Events are being published; one is dropped"
            );
            return;
        }
        let recorder = self.recorder.clone();
        self.under_way.spawn(async move {
            let (note, action) = text.printable();
            let event = Event {
                type_: if text.warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: text.reason.to_owned(),
                note: Some(note),
                action,
                secondary: None,
            };
            let error = match timeout(EVENT_TIMEOUT, recorder.publish(&event, &object)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => describe(&error),
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::debug!(
                reason = event.reason,
                error,
                "an Event could not be published"
            );
        });
    }
}
