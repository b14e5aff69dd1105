//! What is remembered of callers' tokens, and for how long. Pure: the time is passed in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an allowed token is not asked about again. A token that is revoked may be used for so long.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long a refused token is not asked about again. A caller that has just been given the right waits for so long.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most tokens that are remembered at a time.
const MOST: usize = 256;

/// SHA-256 of a token; the token itself is not kept.
pub type Digest = [u8; 32];

/// What the API server says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is valid, and its user may do what is asked for.
    Allowed,
    /// It is not valid.
    Unknown,
    /// It is valid, but its user may not.
    Forbidden,
}

/// Answers of the API server that still hold.
#[derive(Debug, Default)]
pub struct Memory(HashMap<Digest, (Standing, Instant)>);

impl Memory {
    /// The answer for this token, if it still holds.
    pub fn recall(&self, token: &Digest, now: Instant) -> Option<Standing> {
        self.0.get(token).filter(|(_, until)| now < *until).map(|(standing, _)| *standing)
    }

    /// Keeps an answer. When there are too many, refused tokens are forgotten before allowed ones: somebody who makes up
    /// tokens cannot push the good ones out. Of each kind, the answer that ends first is forgotten first.
    pub fn remember(&mut self, token: Digest, standing: Standing, now: Instant) {
        let allowed = |standing| standing == Standing::Allowed;
        let until = now + if allowed(standing) { ALLOWED_FOR } else { REFUSED_FOR };
        self.0.insert(token, (standing, until));
        if self.0.len() > MOST {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() > MOST {
            let first = self.0.iter().min_by_key(|(_, (standing, until))| (allowed(*standing), *until));
            if let Some(first) = first.map(|(token, _)| *token) {
                self.0.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(number: u16) -> Digest {
        let mut digest = [0; 32];
        digest[..2].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn an_answer_holds_for_its_time_and_no_longer() {
        let now = Instant::now();
        for (standing, holds) in [(Standing::Allowed, 60), (Standing::Unknown, 10), (Standing::Forbidden, 10)]
        {
            let mut memory = Memory::default();
            memory.remember(token(1), standing, now);
            let after = |milliseconds| now + Duration::from_millis(milliseconds);
            assert_eq!(memory.recall(&token(1), after(holds * 1000 - 1)), Some(standing));
            assert_eq!(memory.recall(&token(1), after(holds * 1000)), None, "{standing:?}");
            assert_eq!(memory.recall(&token(2), now), None);
        }
    }

    #[test]
    fn the_last_answer_counts() {
        let now = Instant::now();
        let mut memory = Memory::default();
        memory.remember(token(1), Standing::Forbidden, now);
        memory.remember(token(1), Standing::Allowed, now);
        assert_eq!(memory.recall(&token(1), now), Some(Standing::Allowed));
    }

    #[test]
    fn made_up_tokens_do_not_push_out_good_ones() {
        let now = Instant::now();
        let mut memory = Memory::default();
        memory.remember(token(0), Standing::Allowed, now);
        for number in 1..2000 {
            memory.remember(token(number), Standing::Unknown, now + Duration::from_micros(number.into()));
        }
        assert_eq!(memory.recall(&token(0), now), Some(Standing::Allowed));
        assert_eq!(memory.recall(&token(1999), now), Some(Standing::Unknown), "the newest is kept, too");
        assert_eq!(memory.0.len(), MOST);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Whatever is asked when: no answer outlives its time, and no more are kept than are to be.
        #[test]
        fn never_stale_and_never_too_many(
            asked in prop::collection::vec((0_u16..600, 0_u8..3, 0_u64..5000), 1..500)
        ) {
            let (mut memory, mut now, mut truth) = (Memory::default(), Instant::now(), HashMap::new());
            for (number, standing, wait) in asked {
                now += Duration::from_millis(wait / 50);
                let standing =
                    [Standing::Allowed, Standing::Unknown, Standing::Forbidden][usize::from(standing)];
                memory.remember(token(number), standing, now);
                truth.insert(number, (standing, now));
                prop_assert_eq!(memory.recall(&token(number), now).is_some() || memory.0.len() == MOST, true);
                prop_assert!(memory.0.len() <= MOST);
                for (number, (standing, since)) in &truth {
                    if let Some(recalled) = memory.recall(&token(*number), now) {
                        let longest = if recalled == Standing::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
                        prop_assert!(recalled == *standing && now - *since < longest);
                    }
                }
            }
        }
    }
}
