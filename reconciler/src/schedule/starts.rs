//! Whether new nodes may start now, and until when.

use jiff::{SignedDuration, Timestamp};

use super::{Kind, Schedule};

/// A shot that was fired so long before the first look counts: who led then may have died, or been cut off.
const HAND_OVER: SignedDuration = SignedDuration::from_mins(2);

/// Whether new nodes may start; remembers the shot that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    looked_at: Option<Timestamp>,
    shot: bool,
}

impl Starts {
    /// May new nodes start now, if one takes so long? A shot that was under way when this process took over is known by
    /// updates that run; it has no end that an update would have to fit into.
    pub fn allowed(
        &mut self,
        schedule: &Schedule,
        now: Timestamp,
        takes: SignedDuration,
        updates_run: bool,
    ) -> bool {
        match schedule.kind {
            Kind::Always => true,
            Kind::Window => schedule.matches(now) && still_matches(schedule, now, takes),
            Kind::Span(length) => {
                let opened = now.saturating_sub(length).unwrap_or(Timestamp::MIN);
                let fits = now.saturating_add(takes).unwrap_or(Timestamp::MAX);
                // Spans that overlap are one.
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
                self.shot |= before.is_none() && updates_run;
                self.shot
            }
        }
    }

    /// No node is left that could start, and none is being updated: the shot is over.
    pub fn none_left(&mut self) {
        self.shot = false;
    }
}

/// Does the window stay open for so long? Looked at by the minute.
fn still_matches(schedule: &Schedule, now: Timestamp, takes: SignedDuration) -> bool {
    let end = now.saturating_add(takes).unwrap_or(Timestamp::MAX);
    let minutes = (1..)
        .map_while(|minute| now.checked_add(SignedDuration::from_mins(minute)).ok().filter(|at| *at < end));
    minutes.chain([end]).all(|at| schedule.matches(at))
}
