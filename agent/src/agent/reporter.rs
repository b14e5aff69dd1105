//! What is known of the shadow, and the reports on it.

use std::time::Duration;

use brupop_api::{BottlerocketShadow, Field, Item, Value, Write};
use brupop_runtime::errors::{describe, status_message};
use brupop_runtime::waits::{doubled, jittered};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use tokio::time::Instant;

use super::Pause;
use crate::retry::Retry;
use crate::shadow::{Seen, ShadowCopy};

/// Shortest wait after a refused report, until the shadow is looked at again. A change that the watch brings ends it.
const REREAD_MIN: Duration = Duration::from_secs(1);
/// Longest such wait, after many refused reports.
const REREAD_MAX: Duration = Duration::from_secs(45);
/// This many reports in a row, with nothing else in between, are more than any update needs.
const REPORTS_ON_END: u32 = 8;

/// Speaks to the API server: reads this node's shadow, and patches its status.
#[derive(Debug)]
pub(super) struct Reporter {
    shadows: Api<Item<BottlerocketShadow>>,
    name: String,
    pub(super) copy: ShadowCopy,
    /// Reports that the API server did not take.
    failing: Retry,
    /// Reports in a row that were refused because the shadow had changed.
    refused: u32,
    /// The last of them was not followed by another look at the shadow.
    must_read: bool,
    /// Reports in a row that were taken.
    taken: u32,
}

impl Reporter {
    pub(super) fn new(client: Client, namespace: &str, node: &str) -> Self {
        Self {
            shadows: Api::namespaced(client, namespace),
            name: brupop_api::names::shadow_name(node),
            copy: ShadowCopy::default(),
            failing: Retry::new("writing the shadow's status"),
            refused: 0,
            must_read: false,
            taken: 0,
        }
    }

    /// The newest shadow; read again if reports are refused although the watch brings nothing, or if it does not bring what is
    /// known.
    pub(super) async fn newest(&mut self) -> Seen {
        let doubtful = self
            .copy
            .doubtful_from()
            .is_some_and(|from| from <= Instant::now());
        if (std::mem::take(&mut self.must_read) || doubtful)
            && let Some(known) = self.copy.current()
        {
            self.copy.doubt_later();
            match self.shadows.get_opt(&self.name).await {
                Ok(Some(Item {
                    body: Ok(shadow), ..
                })) if shadow.metadata.uid == known.metadata.uid => {
                    self.copy.on_answer(shadow);
                }
                // Deleted, made again, or not to be read: the watch will say so, in its order.
                Ok(_) => {}
                Err(error) => {
                    self.failing.failed(&describe(&error));
                }
            }
        }
        self.copy.current()
    }

    /// Patches the status. What to wait for then; an error, if the patch was not taken.
    pub(super) async fn report(
        &mut self,
        write: &Write<'_>,
        shadow: &BottlerocketShadow,
    ) -> Result<Pause, Pause> {
        let observed = serde_json::to_value(shadow).unwrap_or_default();
        let patch = match write.patch(&observed) {
            Ok(patch) => Patch::<BottlerocketShadow>::Json(patch),
            Err(misfit) => {
                let reason = format!(
                    "the agent made a status that does not fit the shadow; this is a bug: {misfit}"
                );
                return Err(Pause::ShadowOr(self.failing.failed(&reason)));
            }
        };
        match self
            .shadows
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await
        {
            Ok(answer) => {
                if let Ok(shadow) = answer.body {
                    self.copy.on_answer(shadow);
                }
                self.failing.resolved();
                self.refused = 0;
                log_report(write);
                Ok(self.after_report())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                self.refused = self.refused.saturating_add(1);
                self.must_read = self.refused > 1;
                let reason = status_message(&status);
                tracing::debug!(code = status.code, %reason, "the shadow has changed meanwhile");
                if self.refused > 2 {
                    // The shadow was read again, and the report was refused again: this is no mere race.
                    self.failing.failed(&reason);
                }
                let wait = doubled(REREAD_MIN, self.refused - 1, REREAD_MAX);
                Err(Pause::ShadowOr(jittered(wait, 0.2)))
            }
            Err(error) => Err(Pause::ShadowOr(self.failing.failed(&describe(&error)))),
        }
    }

    /// Slows down reports that follow each other without end: they are a bug, and must not become a flood.
    fn after_report(&mut self) -> Pause {
        self.taken = self.taken.saturating_add(1);
        if self.taken < REPORTS_ON_END {
            return Pause::None;
        }
        tracing::warn!(
            reports = self.taken,
            "the API server accepts each status, but the shadow does not keep it; the agent reports less often"
        );
        Pause::For(jittered(REREAD_MAX, 0.2))
    }

    /// The step is another than a report.
    pub(super) fn nothing_to_report(&mut self) {
        self.taken = 0;
    }
}

/// Logs a report that the API server took.
fn log_report(write: &Write<'_>) {
    let state = write
        .sets
        .iter()
        .find_map(|(field, value)| match (field, value) {
            (Field::CurrentState, Value::State(state)) => Some(state.as_str()),
            _ => None,
        });
    let problem = write
        .sets
        .iter()
        .find_map(|(field, value)| match (field, value) {
            (Field::StatusProblem, Value::Problem(problem)) => Some(problem.as_str()),
            _ => None,
        });
    let message = write
        .sets
        .iter()
        .find_map(|(field, value)| match (field, value) {
            (Field::StatusMessage, Value::Text(message)) => Some(message.as_ref()),
            _ => None,
        });
    let fields: Vec<String> = write
        .sets
        .iter()
        .map(|(field, _)| format!("{field:?}"))
        .collect();
    tracing::info!(
        state,
        problem,
        says = message,
        fields = fields.join(","),
        "wrote the shadow's status"
    );
}
