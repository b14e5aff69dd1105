//! The webhook's own certificates: made here, kept in a Secret for all replicas, renewed well before they expire.
//!
//! A *generation* is an authority with the only serving certificate that it ever signed. The authority's key is thrown
//! away. A new generation is published before it is served: its authority joins `caBundle`, so that API servers and
//! replicas that lag behind still trust each other.
//!
//! Clocks are not trusted. Which generations stay, and what `caBundle` holds, depends on the Secret alone: so replicas with
//! different clocks agree. Certificates are valid from 1970 on: so no clock is too early for one. The newest generation
//! that has not expired is served. A clock decides only when the next generation is made.
//!
//! [`plan`] decides, [`issue`] makes a generation, [`pass`] does one round, [`cluster_store`] reads and writes, [`rotator`]
//! serves and waits.

pub(crate) mod cluster_store;
pub mod issue;
mod objects;
mod pass;
pub(crate) mod provided;
pub(crate) mod rotator;
mod stored;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Longest time between two looks at the Secret.
const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Most generations in the Secret: the one that is served, the one that is published, and two that replicas with other
/// clocks may still serve.
const MAX_GENERATIONS: usize = 4;
/// A generation whose first use is further ahead than this was made by a different clock. Do not wait for it.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Time from now until a new certificate expires. It is renewed when a third of this is left.
    pub lifetime: SignedDuration,
    /// Time between the publication of an authority and the first use of its certificate.
    pub overlap: SignedDuration,
}

impl Lifetimes {
    /// Certificates of this lifetime. They are published a minute before their first use, or a tenth of the lifetime if that
    /// is less.
    pub fn of_lifetime(lifetime: SignedDuration) -> Self {
        Self {
            lifetime,
            overlap: SignedDuration::from_mins(1).min(lifetime / 10),
        }
    }
}

/// An authority and the serving certificate it signed, as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateGeneration {
    /// Certificate of the authority, for `caBundle`.
    pub authority: String,
    pub certificate: String,
    pub key: String,
    /// DNS names and addresses that it is valid for.
    pub names: Vec<String>,
    /// Not served before this time, unless there is no other.
    pub serve_from: Timestamp,
    /// Not valid from this time on.
    pub not_after: Timestamp,
}

impl std::fmt::Debug for CertificateGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateGeneration")
            .field("names", &self.names)
            .field("serve_from", &self.serve_from)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CertificateGeneration {
    fn good_for(&self, names: &[String], now: Timestamp) -> bool {
        now < self.not_after && names.iter().all(|name| self.names.contains(name))
    }

    /// It was published a moment ago, and not every API server knows it yet.
    fn is_waiting(&self, now: Timestamp) -> bool {
        now < self.serve_from && self.serve_from <= later(now, LONGEST_WAIT)
    }

    fn renewed_at(&self, lifetimes: Lifetimes) -> Timestamp {
        self.not_after
            .saturating_sub(lifetimes.lifetime / 3)
            .unwrap_or(Timestamp::MIN)
    }
}

/// The next step of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RotationStep<'a> {
    /// Make a generation that is served from then on, and store it beside those that are [`retained`].
    Renew {
        /// When it may be served.
        serve_from: Timestamp,
    },
    /// Nothing is to be made.
    Serve {
        generation: &'a CertificateGeneration,
        /// Time to wait before the next look.
        wait: SignedDuration,
    },
}

/// Decides what to do about the generations that were found in the Secret, the newest last. Whatever in the Secret is
/// damaged or foreign is not among them.
fn plan<'a>(
    found: &'a [CertificateGeneration],
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> RotationStep<'a> {
    let good = || {
        found
            .iter()
            .filter(|generation| generation.good_for(names, now))
    };
    let served = newest(found, names, now);
    let renewal = good()
        .map(|generation| generation.renewed_at(lifetimes))
        .max();
    let (Some(generation), Some(renewal)) = (served, renewal.filter(|renewal| now < *renewal))
    else {
        let wait = if served.is_some() {
            lifetimes.overlap
        } else {
            SignedDuration::ZERO
        };
        return RotationStep::Renew {
            serve_from: later(now, wait),
        };
    };
    let next = good()
        .map(|generation| generation.serve_from)
        .filter(|from| *from > now)
        .chain([renewal])
        .min();
    let wait = next.map_or(LOOK_EVERY, |next| LOOK_EVERY.min(next.duration_since(now)));
    RotationStep::Serve { generation, wait }
}

/// The newest that is valid and need not wait; if all must wait, the oldest of them, which is better than none.
fn newest<'a>(
    found: impl IntoIterator<Item = &'a CertificateGeneration, IntoIter: DoubleEndedIterator + Clone>,
    names: &[String],
    now: Timestamp,
) -> Option<&'a CertificateGeneration> {
    let mut good = found
        .into_iter()
        .filter(|generation| generation.good_for(names, now));
    good.clone()
        .rfind(|generation| !generation.is_waiting(now))
        .or_else(|| good.next())
}

/// Returns what to serve if `planned` could not be published; `None` to go on with what is `serving`. `published` is the
/// `caBundle` as it was last seen. A valid generation in it comes first. If there is none, `planned` is served only if what is
/// being served is not valid any more.
fn fallback<'a>(
    found: &'a [CertificateGeneration],
    planned: &'a CertificateGeneration,
    serving: Option<&CertificateGeneration>,
    published: &str,
    names: &[String],
    now: Timestamp,
) -> Option<&'a CertificateGeneration> {
    let good = |generation: &&CertificateGeneration| generation.good_for(names, now);
    let known = |generation: &&CertificateGeneration| published.contains(&generation.authority);
    match serving.filter(good) {
        Some(serving) if known(&serving) => None,
        serving => {
            let known: Vec<_> = found.iter().filter(known).collect();
            newest(known, names, now).or(serving.is_none().then_some(planned))
        }
    }
}

/// The generations that stay in the Secret beside a new one: the newest. Expiry does not matter, for clocks differ.
fn retained(found: &[CertificateGeneration]) -> Vec<CertificateGeneration> {
    found[found.len().saturating_sub(MAX_GENERATIONS - 1)..].to_vec()
}

/// Returns what `caBundle` should hold: the authorities of all generations, in a stable order. An expired authority does no
/// harm.
fn bundle(found: &[CertificateGeneration]) -> String {
    let mut authorities: Vec<_> = found.iter().map(|it| it.authority.as_str()).collect();
    authorities.sort_unstable();
    authorities.dedup();
    authorities.concat()
}

fn later(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
