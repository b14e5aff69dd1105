//! Keeps Secret, `caBundle` and what TLS serves in step: reads, writes what [`super::plan`] says, waits.

mod cluster_store;
mod error;

use super::objects::Bundles;
use super::pass::{Passed, Published, pass};
use super::repairs::Repairs;
use super::{CertificateGeneration, Lifetimes, jumped};
use crate::metrics::Metrics;
use brupop_api::Item;
use brupop_runtime::errors::describe;
use brupop_runtime::tls::Resolver;
use brupop_runtime::{FailureLog, Health, Shutdown, only, patient, waits::doubled};
use cluster_store::ClusterStore;
use error::RotationError;
use futures::{Stream, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time for one round with all its calls.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// Shortest time between two rounds, whatever happens.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest time between two rounds while certificates are not in order.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time between two looks at the wall clock, which may jump.
const TICK: Duration = Duration::from_secs(1);

/// Where certificates are kept and published, and for which names they are.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// Name of the Secret, in our namespace.
    pub(crate) secret: String,
    /// Name of the `ValidatingWebhookConfiguration`.
    pub(crate) configuration: String,
    /// DNS names and addresses the webhook is called by.
    pub(crate) names: Vec<String>,
}

/// Keeps the certificates of one replica. Replicas agree through the Secret.
pub(crate) struct Rotator {
    store: ClusterStore,
    lifetimes: Lifetimes,
    resolver: Arc<Resolver>,
    health: Health,
    metrics: Arc<Metrics>,
}

/// What a rotator knows from one round to the next.
#[derive(Default)]
struct RotationState {
    serving: Option<CertificateGeneration>,
    /// The `caBundle` that was last in place.
    bundle: Option<String>,
    repairs: Repairs,
    failures: u32,
    log: FailureLog,
    /// There is no configuration. When it comes back, the next round begins at once.
    deleted: bool,
}

impl Rotator {
    /// A rotator of the Secret in `namespace`. It puts the certificate to serve into `resolver`.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        targets: Targets,
        lifetimes: Lifetimes,
        resolver: Arc<Resolver>,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (configurations, namespace) = (Api::all(client.clone()), namespace.to_owned());
        let store = ClusterStore {
            client,
            namespace,
            configurations,
            targets,
            lifetimes,
        };
        Self {
            store,
            lifetimes,
            resolver,
            health,
            metrics,
        }
    }

    /// Looks after the certificates until the shutdown is requested: when it is time, when the clock jumps, and whenever the
    /// configuration changes. The process is ready once everything has been in order for the first time. Later damage is
    /// repaired and logged.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let ours = only(&self.store.targets.configuration);
        let mut changes = std::pin::pin!(patient(watcher(self.store.configurations.clone(), ours)));
        let mut state = RotationState::default();
        loop {
            let passing = pass(
                &self.store,
                &self.store.targets.names,
                self.lifetimes,
                state.serving.as_ref(),
            );
            let passed = tokio::select! {
                () = shutdown.requested() => return,
                passed = tokio::time::timeout(PASS_TIMEOUT, passing) => passed,
            };
            let passed = passed.unwrap_or(Err(RotationError::Timeout));
            let outcome = passed.and_then(|passed| self.on_pass(passed, &mut state));
            let wait = self.on_outcome(outcome, &mut state);
            let soonest = Instant::now() + FIRST_PAUSE;
            let floor = state
                .repairs
                .next()
                .map_or(soonest, |next| next.max(soonest));
            let waiting = self.wait(
                wait,
                &mut changes,
                state.failures == 0 || state.deleted,
                floor,
            );
            tokio::select! {
                () = shutdown.requested() => return,
                () = waiting => {}
            }
        }
    }

    /// Serves the new certificate, if there is one, and remembers what is published. Returns when to look again.
    fn on_pass(
        &self,
        passed: Passed<RotationError>,
        state: &mut RotationState,
    ) -> Result<Timestamp, RotationError> {
        if let Some(generation) = passed.serve {
            self.resolver
                .serve(&generation.certificate, &generation.key)?;
            self.metrics
                .certificate_expiry
                .set(generation.not_after.as_second());
            tracing::info!(not_after = %generation.not_after, names = %generation.names.join(","), "serving certificate");
            state.serving = Some(generation);
        }
        let Published {
            bundle,
            written,
            injector,
            look_again,
        } = passed.published?;
        let configuration = &self.store.targets.configuration;
        if written && state.bundle.as_ref() == Some(&bundle) {
            self.metrics.ca_bundle_repairs.inc();
            state.repairs = state.repairs.with_one(Instant::now());
            if state.repairs.next().is_none() {
                tracing::warn!(%configuration, "somebody else had changed caBundle; the webhook has written it again");
            } else {
                tracing::warn!(%configuration, annotation = injector,
                    "somebody else changes caBundle again and again, so the webhook repairs it once a minute only, and agents' \
                     reports are refused meanwhile: remove the annotation, or let the other tool leave caBundle out");
            }
        } else if written {
            tracing::info!(%configuration, "published the certificate authorities");
        }
        state.bundle = Some(bundle);
        Ok(look_again)
    }

    /// Logs what people should know. Returns what to wait for.
    fn on_outcome(
        &self,
        outcome: Result<Timestamp, RotationError>,
        state: &mut RotationState,
    ) -> Sleep {
        match outcome {
            Ok(look_again) => {
                if state.log.resolved() {
                    tracing::info!(
                        failures = state.failures,
                        "the certificates and caBundle are up to date again"
                    );
                }
                (state.failures, state.deleted) = (0, false);
                self.health.ready();
                Sleep::UntilClock(look_again)
            }
            Err(error) => {
                if error.is_worth_logging(state.failures) && state.log.is_new(&describe(&error)) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the certificates or caBundle could not be brought up to date; the webhook tries again"
                    );
                }
                state.failures = state.failures.saturating_add(1);
                state.deleted = error.is_deleted();
                self.metrics.certificate_failures.inc();
                Sleep::For(doubled(FIRST_PAUSE, state.failures, LONGEST_PAUSE))
            }
        }
    }

    /// Waits until it is time, or the clock jumps, or, if `follows` is set, the configuration changes. It is not set while the API
    /// server refuses us: its events are no reason to ask it more often. Does not end before `floor`.
    async fn wait(
        &self,
        wait: Sleep,
        changes: &mut (impl Stream<Item = watcher::Result<watcher::Event<Item<Bundles>>>> + Unpin),
        follows: bool,
        floor: Instant,
    ) {
        let timer = wait.elapse();
        let mut timer = std::pin::pin!(timer);
        loop {
            tokio::select! {
                () = &mut timer => break,
                change = changes.next() => match change {
                    Some(Ok(_)) if follows => break,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(error = describe(&error), "the watch of the webhook configuration failed");
                    }
                    // A watch does not end; if it does, there is still the clock.
                    None => {
                        timer.await;
                        break;
                    }
                },
            }
        }
        tokio::time::sleep_until(floor).await;
    }
}

/// What to wait for.
enum Sleep {
    /// A time of the wall clock.
    UntilClock(Timestamp),
    /// A time span, whatever the wall clock says.
    For(Duration),
}

impl Sleep {
    async fn elapse(self) {
        let until = match self {
            Self::For(pause) => return tokio::time::sleep(pause).await,
            Self::UntilClock(until) => until,
        };
        let (began, clock) = (Instant::now(), Timestamp::now());
        loop {
            tokio::time::sleep(TICK.min(FIRST_PAUSE.max(until_then(until)))).await;
            let passed = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
            let now = Timestamp::now();
            if now >= until {
                return;
            }
            if jumped(clock, passed, now) {
                return tracing::warn!(expected = %super::later(clock, passed), %now, "the wall clock jumped");
            }
        }
    }
}

fn until_then(then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(Timestamp::now())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_set_back_wakes_the_rotator() {
        // Tokio's time runs ahead, the wall clock does not: as if it had been set back again and again.
        let began = Instant::now();
        Sleep::UntilClock(super::super::later(
            Timestamp::now(),
            super::super::LOOK_EVERY,
        ))
        .elapse()
        .await;
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
    }
}
