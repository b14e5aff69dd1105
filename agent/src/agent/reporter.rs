//! The known state of the shadow, and the reports to it.

use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item, Write};
use brupop_runtime::errors::describe;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};

use crate::retry::Retry;
use crate::shadow::{Seen, ShadowCopy};

/// Longest wait for an answer of the API server.
const TIMEOUT: Duration = Duration::from_secs(15);
/// This many reports in a row, with nothing else in between, are more than any update needs.
const REPORTS_ON_END: u32 = 8;
/// Pause after each further one: they are a bug, and must not become a flood.
const REPORTS_PAUSE: Duration = Duration::from_secs(45);

/// Speaks to the API server: reads this node's shadow, and patches its status.
#[derive(Debug)]
pub(super) struct Reporter {
    shadows: Api<Item<BottlerocketShadow>>,
    name: String,
    pub(super) copy: ShadowCopy,
    /// Reports that the API server did not take.
    failing: Retry,
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
            taken: 0,
        }
    }

    /// The newest shadow; read again if the watch does not bring what is known.
    pub(super) async fn newest(&mut self) -> Seen {
        if self.copy.must_reread() {
            match within_limit(self.shadows.get_opt(&self.name)).await {
                Ok(Some(Item {
                    body: Ok(shadow), ..
                })) => self.copy.on_answer(shadow),
                // Deleted, or not to be read: the watch will say so, in its order.
                Ok(_) => {}
                Err(error) => drop(self.failing.failed(&describe(&error))),
            }
        }
        self.copy.current.clone()
    }

    /// Patches the status.
    ///
    /// # Errors
    /// The patch was not taken. How long to wait before the next try.
    pub(super) async fn report(
        &mut self,
        write: &Write<'_>,
        shadow: &BottlerocketShadow,
    ) -> Result<Duration, Duration> {
        let observed = serde_json::to_value(shadow).unwrap_or_default();
        let patch = Patch::<BottlerocketShadow>::Json(write.patch(&observed));
        let params = PatchParams::default();
        match within_limit(self.shadows.patch_status(&self.name, &params, &patch)).await {
            Ok(answer) => {
                if let Ok(shadow) = answer.body {
                    self.copy.on_answer(shadow);
                }
                self.failing.resolved();
                tracing::info!(sets = ?write.sets, "wrote the shadow's status");
                Ok(self.pause_after_report())
            }
            Err(error) => {
                let wait = self.failing.failed(&describe(&error));
                if matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
                {
                    self.copy.reread_after(wait);
                }
                Err(wait)
            }
        }
    }

    fn pause_after_report(&mut self) -> Duration {
        self.taken = self.taken.saturating_add(1);
        if self.taken < REPORTS_ON_END {
            return Duration::ZERO;
        }
        tracing::warn!(
            reports = self.taken,
            "the API server accepts each status, but the shadow does not change; the agent reports less often"
        );
        REPORTS_PAUSE
    }

    /// The step is another than a report.
    pub(super) fn nothing_to_report(&mut self) {
        self.taken = 0;
    }
}

/// Awaits an answer of the API server, but not for long.
async fn within_limit<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(TIMEOUT, request)
        .await
        .unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}
