//! What the source of the gates has answered, by its own journal.
//!
//! Three good answers in a row open a gate, and the first that is not good closes it. A leader asks each second, here, and
//! waits ten seconds for an answer; one that stands still leads for no longer than its Lease of four seconds. So what is not
//! good any more is known to every leader after 15 seconds. No answer holds for longer than 32 seconds (docs/pools.md: two
//! intervals and half a minute).

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// For so long a leader may not know that the source does not answer well any more.
const UNKNOWN_FOR: SignedDuration = SignedDuration::from_secs(15);
/// For so long an answer holds.
const HOLDS_FOR: SignedDuration = SignedDuration::from_secs(32);
/// This many good answers in a row open a gate.
const OPENS: usize = 3;

/// When there was an answer, and whether it was good. That the source begins to answer otherwise than well is one that is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers(VecDeque<(Timestamp, bool)>);

impl Answers {
    pub(crate) fn note(&mut self, at: Timestamp, good: bool) {
        self.0.push_back((at, good));
    }

    /// Those that were noted since this was last called.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn extend(&mut self, new: Self) {
        self.0.extend(new.0);
    }

    /// Could a leader take the gates for open at this time?
    pub(crate) fn are_good(&self, at: Timestamp) -> bool {
        let known: Vec<_> = self.0.iter().take_while(|(answered, _)| *answered <= at).collect();
        (OPENS..=known.len()).any(|end| {
            let (last, _) = known[end - 1];
            let followed = known.get(end).map(|(next, _)| *next);
            known[end - OPENS..end].iter().all(|(_, good)| *good)
                && at.duration_since(*last) <= HOLDS_FOR + UNKNOWN_FOR
                && followed.is_none_or(|next| at.duration_since(next) <= UNKNOWN_FOR)
        })
    }

    /// The last of them before this time, for people.
    pub(crate) fn before(&self, at: &str) -> String {
        let before = |answered: &Timestamp| at.parse::<Timestamp>().is_ok_and(|at| *answered <= at);
        let known: Vec<_> = self.0.iter().filter(|(answered, _)| before(answered)).collect();
        let last = known.iter().rev().take(5).rev();
        last.map(|(at, good)| format!("{} at {at}", if *good { "well" } else { "not well" }))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_good_ones_open_for_as_long_as_nobody_may_know_better() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let answers = |of: &[(i64, bool)]| {
            let mut answers = Answers::default();
            for (seconds, good) in of {
                answers.note(at(*seconds), *good);
            }
            answers
        };
        let (good, bad) = (true, false);
        for (of, when, expected) in [
            (&[][..], 5, false),
            (&[(1, good), (2, good)], 3, false),
            (&[(1, good), (2, good), (3, good)], 2, false),
            (&[(1, good), (2, good), (3, good)], 3, true),
            (&[(1, good), (2, good), (3, good)], 50, true),
            (&[(1, good), (2, good), (3, good)], 51, false),
            (&[(1, good), (2, good), (3, good), (4, bad)], 19, true),
            (&[(1, good), (2, good), (3, good), (4, bad)], 20, false),
            (&[(1, good), (2, good), (3, good), (4, bad), (20, good), (21, good)], 21, false),
            (&[(1, good), (2, good), (3, good), (4, bad), (20, good), (21, good), (22, good)], 22, true),
            (&[(1, good), (2, bad), (3, good), (4, good)], 4, false),
        ] {
            assert_eq!(answers(of).are_good(at(when)), expected, "{of:?} at {when}");
        }
    }
}
