//! The API server's answers about callers' tokens, kept for a short time.

use http::StatusCode;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Most tokens that are remembered.
const SIZE: usize = 1024;

/// The API server's answer about a token: the status to answer with, unless its user may do what is asked for.
pub(super) type Judgement = Result<(), StatusCode>;

pub(super) const TRY_AGAIN: Judgement = Err(StatusCode::SERVICE_UNAVAILABLE);

/// Returns how long a token is not asked about again. One that is revoked may be used for so long, and one that has been given
/// the right waits for so long.
fn time_to_live(judgement: Judgement) -> Duration {
    match judgement {
        Ok(()) => Duration::from_mins(1),
        TRY_AGAIN => Duration::ZERO,
        Err(_) => Duration::from_secs(10),
    }
}

/// The answer of a review; empty while the API server is asked.
pub(super) type Answer = Arc<OnceCell<Judgement>>;

/// Answers by the SHA-256 of their tokens; the tokens themselves are not kept.
#[derive(Default)]
pub(super) struct Cache(HashMap<Vec<u8>, Remembered>);

struct Remembered {
    answer: Answer,
    since: Instant,
    was_allowed: bool,
}

impl Remembered {
    fn new(was_allowed: bool) -> Self {
        Self {
            answer: Answer::default(),
            since: Instant::now(),
            was_allowed,
        }
    }

    /// Whether the last definite answer let the token in.
    fn is_allowed(&self) -> bool {
        match self.answer.get() {
            None | Some(&TRY_AGAIN) => self.was_allowed,
            Some(judgement) => judgement.is_ok(),
        }
    }

    fn is_expired(&self) -> bool {
        self.answer
            .get()
            .is_some_and(|judgement| self.since.elapsed() >= time_to_live(*judgement))
    }
}

impl Cache {
    /// The answer about a token, to be awaited or found out, and whether the token was let in before. If there are too many
    /// tokens, the oldest one goes that was not let in.
    pub(super) fn entry(&mut self, token: &[u8]) -> (Answer, bool) {
        let key = digest(&SHA256, token).as_ref().to_vec();
        if self.0.len() >= SIZE
            && !self.0.contains_key(&key)
            && let Some(oldest) = self
                .0
                .iter()
                .min_by_key(|(_, entry)| (entry.is_allowed(), entry.since))
                .map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        let entry = self.0.entry(key).or_insert_with(|| Remembered::new(false));
        if entry.is_expired() {
            *entry = Remembered::new(entry.is_allowed());
        }
        (Arc::clone(&entry.answer), entry.was_allowed)
    }
}
