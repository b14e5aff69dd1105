//! One round: read, make what is missing, publish, say what to serve. Storage is behind a trait, so that tests can run the
//! same code in memory, with replicas that race and clocks that jump.

use super::{CertificateGeneration, Lifetimes, RotationStep, bundle, fallback, plan, retained};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// Times a renewal is tried while other replicas write the Secret, too.
const RACES: usize = 8;
/// The kinds of the two objects, as errors call them.
pub(super) const SECRET: &str = "Secret";
pub(super) const CONFIGURATION: &str = "ValidatingWebhookConfiguration";

/// Keeps and publishes generations. Each call is one request.
pub(super) trait Store {
    type Error: From<Outrun>;
    /// The Secret as it was read.
    type Secret;
    /// The configuration as it was read.
    type Configuration;

    fn now(&self) -> Timestamp;
    fn issue(
        &self,
        now: Timestamp,
        serve_from: Timestamp,
    ) -> Result<CertificateGeneration, Self::Error>;
    /// Reads the Secret and the usable generations in it, the newest last.
    async fn secret(&self) -> Result<(Self::Secret, Vec<CertificateGeneration>), Self::Error>;
    /// Replaces the Secret that was read; false if somebody else has changed it since.
    async fn replace(
        &self,
        secret: Self::Secret,
        generations: &[CertificateGeneration],
    ) -> Result<bool, Self::Error>;
    async fn configuration(&self) -> Result<Self::Configuration, Self::Error>;
    /// Returns what API servers trust that have read this configuration, as PEM.
    fn trusted(configuration: &Self::Configuration) -> String;
    /// Writes `caBundle` where it differs, provided that the configuration is as it was read.
    async fn publish(
        &self,
        configuration: &Self::Configuration,
        bundle: &str,
    ) -> Result<Publication, Self::Error>;
}

/// Somebody else was faster to write this each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("somebody else keeps changing the {0}")]
pub(crate) struct Outrun(&'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// It was as it should be.
    Found,
    /// It was not, and has been written.
    Written,
    /// The configuration was changed by somebody else since it was read.
    Overtaken,
}

/// The result of a round.
pub(super) struct Passed<E> {
    /// The generation to serve from now on, if it changes.
    pub(super) serve: Option<CertificateGeneration>,
    /// The published generation, or the error.
    pub(super) published: Result<Published, E>,
}

/// `caBundle` is as it should be.
pub(super) struct Published {
    pub(super) bundle: String,
    pub(super) written: bool,
    /// Time to wait before the next round.
    pub(super) wait: SignedDuration,
}

/// Does one round. `serving` is what is served now.
pub(super) async fn pass<S: Store>(
    store: &S,
    names: &[String],
    lifetimes: Lifetimes,
    serving: Option<&CertificateGeneration>,
) -> Result<Passed<S::Error>, S::Error> {
    // Read before the Secret: if somebody publishes in between, the configuration changes and our patch is refused.
    let configuration = store.configuration().await;
    let found = generations(store, names, lifetimes).await?;
    let now = store.now();
    let RotationStep::Serve { generation, wait } = plan(&found, names, lifetimes, now) else {
        // It was renewed just now: the clock must have jumped in between.
        return Err(Outrun(SECRET).into());
    };
    let bundle = bundle(&found);
    let (trusted, published) = match configuration {
        Ok(read) => (S::trusted(&read), store.publish(&read, &bundle).await),
        Err(error) => (String::new(), Err(error)),
    };
    let serve = match published {
        Ok(Publication::Found | Publication::Written) => Some(generation),
        // Somebody else is publishing. The next round will see what.
        Ok(Publication::Overtaken) => None,
        // A generation that no API server trusts yet is served only if there is no better one.
        Err(_) => fallback(&found, generation, serving, &trusted, names, now),
    };
    let published = published.and_then(|publication| match publication {
        Publication::Overtaken => Err(Outrun(CONFIGURATION).into()),
        publication => Ok(Published {
            bundle,
            written: publication == Publication::Written,
            wait,
        }),
    });
    Ok(Passed {
        serve: serve.filter(|serve| Some(*serve) != serving).cloned(),
        published,
    })
}

/// The generations in the Secret; if it is time, adds one first. If several replicas add one at the same time, the first
/// wins. The others read again and find it.
async fn generations<S: Store>(
    store: &S,
    names: &[String],
    lifetimes: Lifetimes,
) -> Result<Vec<CertificateGeneration>, S::Error> {
    for _ in 0..RACES {
        let (secret, found) = store.secret().await?;
        let now = store.now();
        let RotationStep::Renew { serve_from } = plan(&found, names, lifetimes, now) else {
            return Ok(found);
        };
        let mut wanted = retained(&found);
        wanted.push(store.issue(now, serve_from)?);
        if store.replace(secret, &wanted).await? {
            tracing::info!(%serve_from, "made a new certificate");
            return Ok(wanted);
        }
    }
    Err(Outrun(SECRET).into())
}
