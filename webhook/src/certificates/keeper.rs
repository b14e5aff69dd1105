//! Keeps Secret, `caBundle` and what TLS serves in step: reads, writes what [`super::plan`] says, waits.

mod cluster_store;

use super::objects::Bundles;
use super::pass::{Passed, Published, pass};
use super::{Generation, Policy, issue, jumped};
use crate::metrics::Metrics;
use brupop_api::Item;
use brupop_api::item::Unreadable;
use brupop_runtime::errors::describe;
use brupop_runtime::tls::{Resolver, TlsError};
use brupop_runtime::{Health, Shutdown, only, patient, waits::doubled};
use cluster_store::ClusterStore;
use futures::{Stream, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::time::Instant;

/// Longest time for one round with all its calls.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// After so many patches in a row that came too late because of another replica, people are told.
const LOST_RACES: u32 = 4;
/// Shortest time between two rounds, whatever happens.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest time between two rounds while certificates are not in order.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time between two looks at the wall clock, which may jump.
const TICK: Duration = Duration::from_secs(1);

/// Why certificates could not be brought in order this time.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// The Secret cannot be read or written.
    #[error("Secret {name}")]
    Secret {
        /// Its name.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The configuration cannot be read or written.
    #[error("ValidatingWebhookConfiguration {name}")]
    Configuration {
        /// Its name.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret is none that we could write back.
    #[error("Secret {name} cannot be read: {why}")]
    UnreadableSecret {
        /// Its name.
        name: String,
        /// Why not.
        why: Unreadable,
    },
    /// The configuration has other entries than ours.
    #[error("ValidatingWebhookConfiguration {name} cannot be read: {why}")]
    UnreadableConfiguration {
        /// Its name.
        name: String,
        /// Why not.
        why: Unreadable,
    },
    /// The certificate could not be made.
    #[error(transparent)]
    Issue(#[from] issue::IssueError),
    /// The certificate could not be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The generations could not be written as JSON.
    #[error("the generations could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// Other replicas were faster each time.
    #[error("Secret {0} is written by somebody else all the time")]
    Race(String),
    /// Somebody changed the configuration between our look at it and our patch.
    #[error("ValidatingWebhookConfiguration {0} was changed by somebody else at the same time")]
    Outrun(String),
    /// The API server does not answer.
    #[error("the API server takes longer than {}s", PASS_TIMEOUT.as_secs())]
    Timeout,
}

/// Where certificates are kept and published, and for which names they are.
#[derive(Clone, Debug)]
pub struct Places {
    /// Name of the Secret, in our namespace.
    pub secret: String,
    /// Name of the `ValidatingWebhookConfiguration`.
    pub configuration: String,
    /// DNS names and addresses the webhook is called by.
    pub names: Vec<String>,
}

impl KeeperError {
    /// Is the configuration not there?
    fn says_deleted(&self) -> bool {
        matches!(self, Self::Configuration { source, .. }
            if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404))
    }

    /// Should people be told, after so many failures in a row? Of a race that is lost, only if that does not end.
    fn worth_saying(&self, failures: u32) -> bool {
        !matches!(self, Self::Outrun(_)) || failures >= LOST_RACES
    }
}

/// Keeps the certificates of one replica. Replicas agree through the Secret.
pub struct Keeper {
    store: ClusterStore,
    policy: Policy,
    resolver: Arc<Resolver>,
    health: Health,
    metrics: Arc<Metrics>,
}

/// What a keeper knows from one round to the next.
#[derive(Default)]
struct Memory {
    serving: Option<Generation>,
    /// The `caBundle` that was last in place.
    bundle: Option<String>,
    failures: u32,
    said: bool,
    /// There is no configuration. When it comes back, the next round begins at once.
    deleted: bool,
}

impl Keeper {
    /// A keeper of the Secret in `namespace`. It puts the certificate to serve into `resolver`.
    pub fn new(
        client: Client,
        namespace: &str,
        places: Places,
        policy: Policy,
        resolver: Arc<Resolver>,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (configurations, namespace) = (Api::all(client.clone()), namespace.to_owned());
        let store = ClusterStore { client, namespace, configurations, places, policy };
        Self { store, policy, resolver, health, metrics }
    }

    /// Looks after the certificates until the shutdown is requested: when it is time, when the clock jumps, and whenever the
    /// configuration changes. The process is ready once everything has been in order for the first time. Later damage is
    /// repaired and logged.
    pub async fn run(&self, shutdown: Shutdown) {
        let ours = only(&self.store.places.configuration);
        let mut changes = std::pin::pin!(patient(watcher(self.store.configurations.clone(), ours)));
        let mut memory = Memory::default();
        loop {
            let passing = pass(&self.store, &self.store.places.names, self.policy, memory.serving.as_ref());
            let passed = tokio::select! {
                () = shutdown.requested() => return,
                passed = tokio::time::timeout(PASS_TIMEOUT, passing) => passed,
            };
            let passed = passed.unwrap_or(Err(KeeperError::Timeout));
            let outcome = passed.and_then(|passed| self.take_up(passed, &mut memory));
            let waiting = self.wait(
                self.judge(outcome, &mut memory),
                &mut changes,
                memory.failures == 0 || memory.deleted,
            );
            tokio::select! {
                () = shutdown.requested() => return,
                () = waiting => {}
            }
        }
    }

    /// Serves the new certificate, if there is one, and remembers what is published. Returns when to look again.
    fn take_up(&self, passed: Passed<KeeperError>, memory: &mut Memory) -> Result<Timestamp, KeeperError> {
        if let Some(generation) = passed.serve {
            self.resolver.serve(&generation.certificate, &generation.key)?;
            self.metrics.certificate_expiry.set(generation.not_after.as_second());
            tracing::info!(not_after = %generation.not_after, names = %generation.names.join(","), "serving certificate");
            memory.serving = Some(generation);
        }
        let Published { bundle, written, look_again } = passed.published?;
        let configuration = &self.store.places.configuration;
        if written && memory.bundle.as_ref() == Some(&bundle) {
            self.metrics.ca_bundle_repairs.inc();
            tracing::warn!(%configuration, "somebody else had changed caBundle; it is as it should be again");
        } else if written {
            tracing::info!(%configuration, "published the certificate authorities");
        }
        memory.bundle = Some(bundle);
        Ok(look_again)
    }

    /// Logs what people should know. Returns what to wait for.
    fn judge(&self, outcome: Result<Timestamp, KeeperError>, memory: &mut Memory) -> Wait {
        match outcome {
            Ok(look_again) => {
                if memory.said {
                    tracing::info!(failures = memory.failures, "certificates are in order again");
                }
                (memory.failures, memory.said, memory.deleted) = (0, false, false);
                self.health.ready();
                Wait::UntilClock(look_again)
            }
            Err(error) => {
                if !memory.said && error.worth_saying(memory.failures) {
                    memory.said = true;
                    tracing::warn!(error = &error as &dyn std::error::Error, "certificates are not in order");
                }
                memory.failures = memory.failures.saturating_add(1);
                memory.deleted = error.says_deleted();
                self.metrics.certificate_failures.inc();
                Wait::For(doubled(FIRST_PAUSE, memory.failures, LONGEST_PAUSE))
            }
        }
    }

    /// Waits until it is time, or the clock jumps, or, if `heed` is set, the configuration changes. It is not set while the API
    /// server refuses us: its events are no reason to ask it more often. Takes at least as long as the shortest pause.
    async fn wait(
        &self,
        wait: Wait,
        changes: &mut (impl Stream<Item = watcher::Result<watcher::Event<Item<Bundles>>>> + Unpin),
        heed: bool,
    ) {
        let floor = Instant::now() + FIRST_PAUSE;
        let timer = wait.over();
        let mut timer = std::pin::pin!(timer);
        loop {
            tokio::select! {
                () = &mut timer => break,
                change = changes.next() => match change {
                    Some(Ok(_)) if heed => break,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(error = describe(&error), "watch of the webhook configuration");
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
enum Wait {
    /// A time of the wall clock.
    UntilClock(Timestamp),
    /// A time span, whatever the wall clock says.
    For(Duration),
}

impl Wait {
    async fn over(self) {
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
    async fn a_clock_that_stands_still_while_time_passes_wakes_the_keeper() {
        // Tokio's time runs ahead, the wall clock does not: as if it had been set back again and again.
        let began = Instant::now();
        Wait::UntilClock(super::super::later(Timestamp::now(), super::super::LOOK_EVERY)).over().await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
