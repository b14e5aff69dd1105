//! Keeps Secret, `caBundle` and what TLS serves in step: reads, writes what [`plan`] says, waits.

use super::{Action, Generation, Policy, bundle, issue, kept, plan, stored};
use crate::metrics::Metrics;
use brupop_runtime::tls::{Resolver, TlsError};
use brupop_runtime::{Health, Shutdown};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Times a renewal is tried while other replicas write the Secret, too.
const RACES: usize = 8;
/// Longest time for one pass with all its calls.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// Patches in a row that may come too late because of another replica before it is a matter for people.
const LOST_RACES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
    /// Is it for people to know, after this many failures in a row? Lost races only if they do not end.
    fn worth_saying(&self, failures: u32) -> bool {
        !matches!(self, Self::Outrun(_)) || failures >= LOST_RACES
    }
}

/// Keeps the certificates of one replica. Replicas agree through the Secret.
pub struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    places: Places,
    policy: Policy,
    resolver: Arc<Resolver>,
    health: Health,
    metrics: Arc<Metrics>,
}

impl Keeper {
    /// A keeper of the Secret in `namespace`; it puts what is to be served into `resolver`.
    pub fn new(
        client: Client,
        namespace: &str,
        places: Places,
        policy: Policy,
        resolver: Arc<Resolver>,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client),
            places,
            policy,
            resolver,
            health,
            metrics,
        }
    }

    /// Looks after the certificates until the shutdown is requested: at computed times, and whenever the configuration
    /// changes. Ready from the first time on that all is in order; later damage is repaired and said.
    pub async fn run(&self, shutdown: Shutdown) {
        let ours = watcher::Config::default().fields(&format!("metadata.name={}", self.places.configuration));
        let changes = watcher(self.configurations.clone(), ours).default_backoff();
        let mut changes = std::pin::pin!(changes);
        let (mut failures, mut said) = (0_u32, false);
        loop {
            let pass = tokio::time::timeout(PASS_TIMEOUT, self.pass()).await;
            let pause = match pass.unwrap_or(Err(KeeperError::Timeout)) {
                Ok(look_again) => {
                    if said {
                        tracing::info!(failures, "certificates are in order again");
                    }
                    (failures, said) = (0, false);
                    self.health.ready();
                    Duration::try_from(look_again.duration_since(Timestamp::now())).unwrap_or_default()
                }
                Err(error) => {
                    if !said && error.worth_saying(failures) {
                        said = true;
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "certificates are not in order"
                        );
                    }
                    failures = failures.saturating_add(1);
                    self.metrics.certificate_failures.inc();
                    FIRST_PAUSE.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE)
                }
            };
            // A deadline in the past cannot make this spin: the shortest pause is as long as a renewal takes.
            let sleep = tokio::time::sleep(pause.max(FIRST_PAUSE));
            tokio::pin!(sleep);
            loop {
                tokio::select! {
                    () = shutdown.requested() => return,
                    () = &mut sleep => break,
                    change = changes.next() => match change {
                        // While the API server refuses us, its events are no reason to ask it more often.
                        Some(Ok(_)) if failures == 0 => break,
                        Some(Ok(_)) => {}
                        Some(Err(error)) => tracing::debug!(%error, "watch of the webhook configuration"),
                        None => return,
                    },
                }
            }
        }
    }

    /// Brings everything in order once, and says when to look again.
    async fn pass(&self) -> Result<Timestamp, KeeperError> {
        // Read first: whoever published in between has changed this, so that our patch will not fit.
        let configuration = self.configuration().await;
        let found = self.generations().await?;
        let now = Timestamp::now();
        let Action::Serve { generation, look_again } = plan(&found, &self.places.names, self.policy, now)
        else {
            return Err(KeeperError::Race(self.places.secret.clone()));
        };
        let published = match configuration {
            Ok(configuration) => self.publish(&configuration, &bundle(&found, now)).await,
            Err(error) => Err(error),
        };
        // What nobody trusts yet is served only if there is nothing better.
        if published.is_ok() || self.resolver.is_empty() {
            let changed = self.resolver.serve(&generation.certificate, &generation.key)?;
            self.metrics.certificate_expiry.set(generation.not_after.as_second());
            if changed {
                tracing::info!(not_after = %generation.not_after, names = %generation.names.join(","), "serving certificate");
            }
        }
        published.map(|()| look_again)
    }

    async fn configuration(&self) -> Result<ValidatingWebhookConfiguration, KeeperError> {
        let name = &self.places.configuration;
        self.configurations
            .get(name)
            .await
            .map_err(|source| KeeperError::Configuration { name: name.clone(), source: Box::new(source) })
    }

    /// The generations in the Secret, after having added one if it is time. Of several replicas that add one at the
    /// same time the first wins; the others read again and find it.
    async fn generations(&self) -> Result<Vec<Generation>, KeeperError> {
        let name = &self.places.secret;
        let failed = |source| KeeperError::Secret { name: name.clone(), source: Box::new(source) };
        for _ in 0..RACES {
            let mut secret = self.secrets.get(name).await.map_err(failed)?;
            let mut found = stored::read(&secret);
            let now = Timestamp::now();
            let Action::Renew { serve_from } = plan(&found, &self.places.names, self.policy, now) else {
                return Ok(found);
            };
            found = kept(&found, now);
            found.push(issue::issue(&self.places.names, self.policy, now, serve_from)?);
            stored::write(&mut secret, &found)?;
            match self.secrets.replace(name, &PostParams::default(), &secret).await {
                Ok(_) => {
                    tracing::info!(secret = %name, %serve_from, "made a new certificate");
                    return Ok(found);
                }
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Err(KeeperError::Race(name.clone()))
    }

    /// Writes `caBundle` where it differs, provided that the configuration is still the one that was read.
    async fn publish(
        &self,
        configuration: &ValidatingWebhookConfiguration,
        bundle: &str,
    ) -> Result<(), KeeperError> {
        let Some(patch) = stored::publication(configuration, bundle) else { return Ok(()) };
        let name = &self.places.configuration;
        let failed = |source| KeeperError::Configuration { name: name.clone(), source: Box::new(source) };
        let patch = serde_json::from_value(patch)?;
        let patch = Patch::<ValidatingWebhookConfiguration>::Json(patch);
        match self.configurations.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // How the API server says that a `test` did not hold.
            Err(kube::Error::Api(status)) if status.is_invalid() || status.is_conflict() => {
                return Err(KeeperError::Outrun(name.clone()));
            }
            Err(source) => return Err(failed(source)),
        }
        tracing::info!(configuration = %name, "published the certificate authorities");
        Ok(())
    }
}
