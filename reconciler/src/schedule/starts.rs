//! Whether new nodes may start now.

use jiff::{SignedDuration, Timestamp};

use super::{Kind, Schedule};

/// A shot that fired at most this long before the first look counts: the process that led then may have died.
const HAND_OVER: SignedDuration = SignedDuration::from_mins(2);

/// Decides whether new nodes may start, and remembers the shot that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    looked_at: Option<Timestamp>,
    shot: bool,
}

impl Starts {
    /// May new nodes start now, if an update `takes` this long? It must fit into what is left of a window or span; a
    /// shot has no end. Only at the first look is it asked whether `shot_runs` already.
    pub fn allowed(
        &mut self,
        schedule: &Schedule,
        now: Timestamp,
        takes: SignedDuration,
        shot_runs: impl FnOnce() -> bool,
    ) -> bool {
        match schedule.kind {
            Kind::Always => true,
            Kind::Window => schedule.matches(now) && still_matches(schedule, now, takes),
            Kind::Span(length) => {
                let opened = now.saturating_sub(length).unwrap_or(Timestamp::MIN);
                let fits = now.saturating_add(takes).unwrap_or(Timestamp::MAX);
                // Overlapping spans count as one.
                let mut open_until = schedule.next(opened).filter(|fires| *fires <= now);
                while let Some(fires) = open_until {
                    let ends = fires.saturating_add(length).unwrap_or(Timestamp::MAX);
                    if ends >= fits {
                        return true;
                    }
                    open_until = schedule.next(fires).filter(|next| *next <= ends);
                }
                false
            }
            Kind::Shot => {
                let before = self.looked_at.replace(now);
                let since = before.unwrap_or(now.saturating_sub(HAND_OVER).unwrap_or(Timestamp::MIN));
                self.shot |= schedule.next(since).is_some_and(|fires| fires <= now);
                self.shot |= before.is_none() && shot_runs();
                self.shot
            }
        }
    }

    /// No node is left that could start, and none is being updated: the shot is over.
    pub fn none_left(&mut self) {
        self.shot = false;
    }
}

/// Does the window stay open for this long? Checked minute by minute.
fn still_matches(schedule: &Schedule, now: Timestamp, takes: SignedDuration) -> bool {
    let end = now.saturating_add(takes).unwrap_or(Timestamp::MAX);
    let minutes = (1..)
        .map_while(|minute| now.checked_add(SignedDuration::from_mins(minute)).ok().filter(|at| *at < end));
    minutes.chain([end]).all(|at| schedule.matches(at))
}
