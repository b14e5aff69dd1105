//! Keeps Secret, `caBundle` and what TLS serves in step, round by round.

use super::CertificateGeneration;
use super::cluster_store::{ClusterStore, RotationError};
use super::pass::{Passed, pass};
use crate::metrics::Metrics;
use brupop_runtime::errors::describe;
use brupop_runtime::tls::Resolver;
use brupop_runtime::{FailureLog, Health, Shutdown, only, patient, waits::doubled};
use futures::{StreamExt as _, future, stream};
use kube::runtime::watcher;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest time for one round with all its calls.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// Shortest time between two rounds, whatever happens.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest time between two rounds while certificates are not in order.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time between a repair of `caBundle` and the next: another tool may damage it each time.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// After this many rounds in a row that another replica was faster in, people are told.
const LOST_RACES: u32 = 4;

/// Keeps the certificates of one replica. Replicas agree through the Secret.
pub(crate) struct Rotator {
    pub(crate) store: ClusterStore,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
}

/// The state of a rotator between rounds.
#[derive(Default)]
struct RotationState {
    serving: Option<CertificateGeneration>,
    /// The `caBundle` that was last in place.
    bundle: Option<String>,
    failures: u32,
    log: FailureLog,
}

/// When the next round begins.
struct Wait {
    /// Not before this time, whatever happens.
    least: Duration,
    /// After this time, unless the configuration changes.
    most: Duration,
}

impl Rotator {
    /// Looks after the certificates until the shutdown is requested: when it is time, every few minutes, and whenever the
    /// configuration changes. The process is ready once everything has been in order for the first time. Later damage is
    /// repaired and logged.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let store = &self.store;
        let events = patient(|| watcher(store.configurations(), only(&store.configuration)));
        let changes = events.filter(|event| future::ready(event.is_ok()));
        let mut changes = std::pin::pin!(changes.chain(stream::pending()));
        let mut state = RotationState::default();
        loop {
            let round = async {
                let serving = state.serving.as_ref();
                let passing = pass(store, &store.names, store.lifetimes, serving);
                let passed = timeout(PASS_TIMEOUT, passing).await;
                let passed = passed.unwrap_or(Err(RotationError::Timeout));
                let outcome = passed.and_then(|passed| self.on_pass(passed, &mut state));
                let wait = self.on_outcome(outcome, &mut state);
                sleep(wait.least).await;
                let _ = timeout(wait.most.saturating_sub(wait.least), changes.next()).await;
            };
            tokio::select! {
                () = shutdown.requested() => return,
                () = round => {}
            }
        }
    }

    /// Serves the new certificate, if there is one, and remembers what is published.
    fn on_pass(
        &self,
        passed: Passed<RotationError>,
        state: &mut RotationState,
    ) -> Result<Wait, RotationError> {
        if let Some(generation) = passed.serve {
            self.resolver
                .serve(&generation.certificate, &generation.key)?;
            self.metrics
                .certificate_expiry
                .set(generation.not_after.as_second());
            tracing::info!(not_after = %generation.not_after, names = generation.names.join(","), "serving certificate");
            state.serving = Some(generation);
        }
        let published = passed.published?;
        let configuration = &self.store.configuration;
        let mut least = FIRST_PAUSE;
        if published.written && state.bundle.as_ref() == Some(&published.bundle) {
            self.metrics.ca_bundle_repairs.inc();
            least = REPAIR_PAUSE;
            tracing::warn!(
                configuration,
                "somebody else changed caBundle, and the webhook has restored it. If another tool keeps changing it, agents' \
                 reports are refused: configure that tool to leave caBundle out, or remove cert-manager's annotation"
            );
        } else if published.written {
            tracing::info!(configuration, "published the certificate authorities");
        }
        state.bundle = Some(published.bundle);
        let most = published.wait.try_into().unwrap_or_default();
        Ok(Wait { least, most })
    }

    /// Logs what people should know.
    fn on_outcome(&self, outcome: Result<Wait, RotationError>, state: &mut RotationState) -> Wait {
        match outcome {
            Ok(wait) => {
                if state.log.resolved() {
                    tracing::info!(
                        failures = state.failures,
                        "the certificates and caBundle are up to date again"
                    );
                }
                state.failures = 0;
                self.health.ready();
                wait
            }
            Err(error) => {
                let told =
                    !matches!(error, RotationError::Outrun(_)) || state.failures >= LOST_RACES;
                if told && state.log.is_new(&describe(&error)) {
                    tracing::warn!(
                        error = describe(&error),
                        secret = self.store.secret,
                        configuration = self.store.configuration,
                        "the certificates or caBundle could not be brought up to date; the webhook tries again"
                    );
                }
                state.failures = state.failures.saturating_add(1);
                self.metrics.certificate_failures.inc();
                let pause = doubled(FIRST_PAUSE, state.failures, LONGEST_PAUSE);
                Wait {
                    least: pause,
                    most: pause,
                }
            }
        }
    }
}
