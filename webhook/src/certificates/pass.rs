//! One way through: read, make what is missing, publish, say what to serve. Where it is kept is behind a trait, so that
//! the same code races in memory, with clocks that jump, and on a real API server.

use super::{Action, Generation, Policy, bundle, kept, makeshift, plan};
use jiff::Timestamp;

/// Times a renewal is tried while other replicas write the Secret, too.
const RACES: usize = 8;

/// Where generations are kept and published. Each call is one request.
pub(super) trait Store {
    /// What goes wrong.
    type Error;
    /// The Secret as it was read.
    type Secret;
    /// The configuration as it was read.
    type Configuration;

    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// Makes a generation.
    fn issue(&self, now: Timestamp, serve_from: Timestamp) -> Result<Generation, Self::Error>;
    /// Reads the Secret: what is good in it, the newest last.
    async fn secret(&self) -> Result<(Self::Secret, Vec<Generation>), Self::Error>;
    /// Replaces the Secret as it was read; false if somebody else has done so since.
    async fn replace(&self, secret: Self::Secret, generations: &[Generation]) -> Result<bool, Self::Error>;
    /// Reads the configuration.
    async fn configuration(&self) -> Result<Self::Configuration, Self::Error>;
    /// What API servers trust that have read this configuration.
    fn trusted(configuration: &Self::Configuration) -> String;
    /// Writes `caBundle` where it differs, provided that the configuration is as it was read.
    async fn publish(
        &self,
        configuration: &Self::Configuration,
        bundle: &str,
    ) -> Result<Publication, Self::Error>;
    /// Others were faster each time to write the Secret.
    fn outrun(&self) -> Self::Error;
    /// Somebody was faster to write the configuration.
    fn overtaken(&self) -> Self::Error;
}

/// What became of `caBundle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// It was as it should be.
    Found,
    /// It is now.
    Written,
    /// The configuration was changed by somebody else since it was read.
    Overtaken,
}

/// What came of a pass.
pub(super) struct Passed<E> {
    /// What to serve from now on, if that is another one.
    pub(super) serve: Option<Generation>,
    /// When to look again, and what was published, and whether it had to be written; or why it is not.
    pub(super) published: Result<Published, E>,
}

/// `caBundle` is as it should be.
pub(super) struct Published {
    pub(super) bundle: String,
    pub(super) written: bool,
    pub(super) look_again: Timestamp,
}

/// Goes through it once. `serving` is what is served.
pub(super) async fn pass<S: Store>(
    store: &S,
    names: &[String],
    policy: Policy,
    serving: Option<&Generation>,
) -> Result<Passed<S::Error>, S::Error> {
    // Read first: whoever publishes in between changes this, so that our patch will not fit.
    let configuration = store.configuration().await;
    let found = generations(store, names, policy).await?;
    let now = store.now();
    let Action::Serve { generation, look_again } = plan(&found, names, policy, now) else {
        // The clock jumped just now.
        return Err(store.outrun());
    };
    let bundle = bundle(&found);
    let (trusted, published) = match configuration {
        Ok(configuration) => (S::trusted(&configuration), store.publish(&configuration, &bundle).await),
        Err(error) => (String::new(), Err(error)),
    };
    let serve = match published {
        Ok(Publication::Found | Publication::Written) => Some(generation),
        // Somebody else is publishing: what we know is old, and the next pass will know better.
        Ok(Publication::Overtaken) => None,
        // What nobody trusts yet is served only if there is nothing better.
        Err(_) => makeshift(&found, generation, serving, &trusted, names, now),
    };
    let published = match published {
        Ok(Publication::Overtaken) => Err(store.overtaken()),
        Ok(publication) => Ok(Published { bundle, written: publication == Publication::Written, look_again }),
        Err(error) => Err(error),
    };
    Ok(Passed { serve: serve.filter(|serve| Some(*serve) != serving).cloned(), published })
}

/// The generations in the Secret, after having added one if it is time. Of several replicas that add one at the same time
/// the first wins; the others read again and find it.
async fn generations<S: Store>(
    store: &S,
    names: &[String],
    policy: Policy,
) -> Result<Vec<Generation>, S::Error> {
    for _ in 0..RACES {
        let (secret, found) = store.secret().await?;
        let now = store.now();
        let Action::Renew { serve_from } = plan(&found, names, policy, now) else { return Ok(found) };
        let mut wanted = kept(&found);
        wanted.push(store.issue(now, serve_from)?);
        if store.replace(secret, &wanted).await? {
            tracing::info!(%serve_from, "made a new certificate");
            return Ok(wanted);
        }
    }
    Err(store.outrun())
}
