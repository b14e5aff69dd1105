//! The webhook's own certificates: made here, kept in a Secret for all replicas, renewed well before they expire.
//!
//! A *generation* is an authority with the one serving certificate it ever signed; the authority's key is thrown away.
//! A new generation is published (its authority joins `caBundle`) before it is served, so that API servers and replicas
//! that lag behind still find each other. [`plan`] decides, [`issue`] makes, [`keeper`] reads, writes and waits.

pub mod issue;
pub mod keeper;
mod stored;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Longest time between two looks at the Secret and the wall clock.
const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Generations kept in the Secret, the newest ones: one served, one published, one on its way out.
const KEPT: usize = 3;

/// How long certificates last.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// From now until a new certificate expires. Renewed when a third of it is left.
    pub lifetime: SignedDuration,
    /// Between the publication of an authority and the first use of its certificate.
    pub overlap: SignedDuration,
}

impl Policy {
    /// Certificates of this lifetime, published a minute before use, or earlier in a lifetime of minutes.
    pub fn of_lifetime(lifetime: SignedDuration) -> Self {
        Self { lifetime, overlap: SignedDuration::from_mins(1).min(lifetime / 10) }
    }
}

/// An authority and the serving certificate it signed, as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// Certificate of the authority, for `caBundle`.
    pub authority: String,
    /// The serving certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// DNS names and addresses it is good for.
    pub names: Vec<String>,
    /// Not served before, while another one can be.
    pub serve_from: Timestamp,
    /// Not valid before.
    pub not_before: Timestamp,
    /// Not valid from then on.
    pub not_after: Timestamp,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("names", &self.names)
            .field("serve_from", &self.serve_from)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Generation {
    fn good_for(&self, names: &[String], now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after && names.iter().all(|name| self.names.contains(name))
    }

    fn renewed_at(&self, policy: Policy) -> Timestamp {
        self.not_after.saturating_sub(policy.lifetime / 3).unwrap_or(Timestamp::MIN)
    }
}

/// What to do about a Secret's generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Make a generation that is served from then on, and store it with those that are [`kept`].
    Renew {
        /// When it may be served.
        serve_from: Timestamp,
    },
    /// Nothing is to be made.
    Serve {
        /// The generation to serve.
        generation: &'a Generation,
        /// When to look again.
        look_again: Timestamp,
    },
}

/// Decides what to do about the generations found in the Secret. Damaged or foreign contents are no generations.
pub fn plan<'a>(found: &'a [Generation], names: &[String], policy: Policy, now: Timestamp) -> Action<'a> {
    let good = || found.iter().filter(|generation| generation.good_for(names, now));
    let due = good()
        .filter(|generation| generation.serve_from <= now)
        .max_by_key(|generation| generation.serve_from);
    // A generation published by a replica whose clock is ahead is better than none.
    let served = due.or_else(|| good().min_by_key(|generation| generation.serve_from));
    let renewal = good().map(|generation| generation.renewed_at(policy)).max();
    let (Some(generation), Some(renewal)) = (served, renewal.filter(|renewal| now < *renewal)) else {
        let wait = if served.is_some() { policy.overlap } else { SignedDuration::ZERO };
        return Action::Renew { serve_from: later(now, wait) };
    };
    let next =
        good().map(|generation| generation.serve_from).filter(|from| *from > now).chain([renewal]).min();
    let look_again = later(now, LOOK_EVERY).min(next.unwrap_or(Timestamp::MAX));
    Action::Serve { generation, look_again }
}

/// The generations worth keeping beside a new one: not expired, and the newest of them.
pub fn kept(found: &[Generation], now: Timestamp) -> Vec<Generation> {
    let mut kept: Vec<_> = found.iter().filter(|generation| now < generation.not_after).cloned().collect();
    kept.sort_by_key(|generation| std::cmp::Reverse(generation.not_after));
    kept.truncate(KEPT - 1);
    kept
}

/// What `caBundle` should hold: the authorities of all generations that have not expired, in a stable order.
pub fn bundle(found: &[Generation], now: Timestamp) -> String {
    let mut authorities: Vec<_> = found
        .iter()
        .filter(|generation| now < generation.not_after)
        .map(|it| it.authority.as_str())
        .collect();
    authorities.sort_unstable();
    authorities.dedup();
    authorities.concat()
}

fn later(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
