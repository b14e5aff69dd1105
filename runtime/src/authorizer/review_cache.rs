//! What is known of callers' tokens, for how long, and which of them the API server may be asked about. Pure: the time is
//! passed in.

use crate::Peer;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an allowed token is not asked about again. A token that is revoked may be used for so long.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long a token is known after it was last allowed.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// Most tokens that are known at a time.
const MOST_KNOWN: usize = 256;
/// How long a refused token is not asked about again. A caller that has just been given the right waits for so long.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long the API server is not asked again about a known token after it did not tell.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(1);

/// Most other tokens that are remembered at a time, and so asked about in ten seconds.
const MOST_UNKNOWN: usize = 100;
/// Most of those that one peer has brought.
const MOST_UNKNOWN_OF_PEER: usize = 5;

/// SHA-256 of a token; the token itself is not kept.
pub(super) type Digest = [u8; 32];

/// What the API server says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is valid, and its user may do what is asked for.
    Allowed,
    /// It is not valid.
    Unauthenticated,
    /// It is valid, but its user may not.
    Forbidden,
    /// It does not tell.
    Unavailable,
    /// It is not asked, because too many tokens are unknown.
    Limited,
}

/// What to do about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Nothing: this holds.
    Known(Judgement),
    /// Wait: the API server is being asked.
    Pending,
    /// Ask the API server, and tell [`ReviewCache::store`] in any case.
    Ask,
}

/// Tokens that were allowed lately, and others for a moment.
#[derive(Debug, Default)]
pub(super) struct ReviewCache {
    entries: HashMap<Digest, RememberedToken>,
}

#[derive(Debug)]
struct RememberedToken {
    /// Who brought it first.
    peer: Peer,
    /// The last answer; none while the API server is asked.
    answer: Option<Judgement>,
    holds_until: Instant,
    /// It was allowed when it was last asked about. Made-up tokens cannot push such ones out, nor keep them waiting.
    known: bool,
    kept_until: Instant,
}

impl ReviewCache {
    pub(super) fn look_up(&mut self, token: Digest, peer: Peer, now: Instant) -> Lookup {
        self.entries
            .retain(|_, entry| entry.answer.is_none() || now < entry.kept_until);
        if let Some(entry) = self.entries.get_mut(&token) {
            return match entry.answer {
                None => Lookup::Pending,
                Some(outcome) if now < entry.holds_until => Lookup::Known(outcome),
                Some(_) => {
                    entry.answer = None;
                    Lookup::Ask
                }
            };
        }
        let unknown = || self.entries.values().filter(|entry| !entry.known);
        let of_peer = unknown().filter(|entry| entry.peer == peer);
        if unknown().count() >= MOST_UNKNOWN || of_peer.count() >= MOST_UNKNOWN_OF_PEER {
            return Lookup::Known(Judgement::Limited);
        }
        self.entries.insert(
            token,
            RememberedToken {
                peer,
                answer: None,
                holds_until: now,
                known: false,
                kept_until: now,
            },
        );
        Lookup::Ask
    }

    /// Keeps what the API server said.
    pub(super) fn store(&mut self, token: &Digest, outcome: Judgement, now: Instant) {
        let Some(entry) = self.entries.get_mut(token) else {
            return;
        };
        entry.answer = Some(outcome);
        if outcome == Judgement::Unavailable && entry.known {
            entry.holds_until = now + UNAVAILABLE_FOR;
            return;
        }
        entry.known = outcome == Judgement::Allowed;
        let (holds, kept) = if entry.known {
            (ALLOWED_FOR, KNOWN_FOR)
        } else {
            (REFUSED_FOR, REFUSED_FOR)
        };
        (entry.holds_until, entry.kept_until) = (now + holds, now + kept);

        let known = || self.entries.iter().filter(|(_, entry)| entry.known);
        if known().count() > MOST_KNOWN
            && let Some(token) = known()
                .min_by_key(|(_, entry)| entry.kept_until)
                .map(|(token, _)| *token)
        {
            self.entries.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests;
