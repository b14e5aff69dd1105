//! Gates of pools (`spec.gates`): what is asked, what is made of the answers, and for how long they hold.
//!
//! The first answer that is not good closes a gate; three good ones in a row open it. A gate that nobody knows anything of, or
//! nothing new, is closed. For as long as a new leader needs to ask, that gives no update up. While no update waits for a gate,
//! it is asked once, so that people hear at once of what can have no answer. Instants are durations since any fixed moment of a
//! monotonic clock.

pub mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::{FleetFacts, NodeView, Steering};
use crate::rules::{GateQuery, GateState};
use answer::GateAnswer;

/// This many good answers in a row open a gate.
const GOOD_IN_A_ROW: u8 = 3;
/// The most different queries that are sent, whatever people make.
pub const QUERIES_MAX: usize = 64;
/// The most of them that are under way at once.
pub const AT_ONCE: usize = 8;
/// For this many intervals a gate of unknown state is waited for: those of the answers that open it, and one more.
const AWAITED_INTERVALS: u32 = 4;
/// While nothing waits for a gate, what had no answer is asked again after this many intervals.
const FAILED_INTERVALS: u32 = 10;
/// An answer holds for two intervals and this long: one query may get lost on its way.
const GRACE: Duration = Duration::from_secs(30);

/// What was heard of one query.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    state: GateState,
    good: u8,
    /// Until when it was known before the last answer.
    lasted_until: Option<Duration>,
    /// When it was asked, the last time that there was an answer.
    answered: Option<Duration>,
    /// When it was asked the last time.
    asked: Option<Duration>,
    under_way: bool,
    /// Had the last query no answer?
    failed: bool,
    /// Is it of a gate that matters?
    matters: bool,
}

impl Heard {
    /// Notes whether it matters. What was heard before that changed says nothing of how the gate is now.
    fn note(&mut self, matters: bool) {
        if self.matters != matters {
            let Self {
                under_way, failed, ..
            } = *self;
            let asked = self.asked.filter(|_| under_way || !matters);
            *self = Self {
                asked,
                under_way,
                failed,
                matters,
                ..Self::default()
            };
        }
    }

    /// When it is to be asked; what does not matter is asked once, and until there is an answer.
    fn due(&self, interval: Duration, now: Duration) -> Option<Duration> {
        match self.asked {
            None => Some(now),
            Some(asked) if self.matters => Some(asked + interval),
            Some(asked) if self.failed => Some(asked + interval * FAILED_INTERVALS),
            Some(_) => None,
        }
    }

    /// Until when the last answer holds.
    fn until(&self, holds_for: Duration) -> Option<Duration> {
        self.answered.map(|at| at + holds_for)
    }

    fn state(&self, now: Duration, holds_for: Duration) -> GateState {
        match self.until(holds_for) {
            Some(until) if now < until => self.state,
            _ => GateState::Unknown,
        }
    }

    /// Until when it is known, or was.
    fn lasts_until(&self, holds_for: Duration) -> Option<Duration> {
        if self.state == GateState::Unknown {
            self.lasted_until
        } else {
            self.until(holds_for)
        }
    }

    /// Takes in the answer to the last query.
    fn answered(&mut self, answer: GateAnswer, now: Duration, holds_for: Duration) {
        let at = self.asked.unwrap_or(now);
        // What was good before a gap is not in a row with what is good after it.
        let in_a_row = self.until(holds_for).is_some_and(|until| at < until);
        let good = if in_a_row { self.good + 1 } else { 1 };
        let (state, good) = match answer {
            GateAnswer::Good if good >= GOOD_IN_A_ROW => (GateState::Open, GOOD_IN_A_ROW - 1),
            GateAnswer::Good => (self.state(at, holds_for), good),
            GateAnswer::Bad => (GateState::Closed, 0),
            GateAnswer::Unknown => (GateState::Unknown, 0),
        };
        let lasted_until = self.lasts_until(holds_for).map(|until| until.min(at));
        let failed = answer == GateAnswer::Unknown;
        let (answered, asked) = (Some(at), Some(at));
        *self = Self {
            state,
            good,
            lasted_until,
            answered,
            asked,
            under_way: false,
            failed,
            ..*self
        };
    }
}

/// What a leader knows of all queries.
#[derive(Debug)]
pub struct Gates {
    interval: Duration,
    /// Since when anybody could be asked.
    since: Duration,
    known: BTreeMap<GateQuery, Heard>,
}

impl Gates {
    /// From now on each query is asked, and again after each interval.
    pub fn new(interval: Duration, now: Duration) -> Self {
        Self {
            interval,
            since: now,
            known: BTreeMap::new(),
        }
    }

    fn holds_for(&self) -> Duration {
        self.interval * 2 + GRACE
    }

    /// What is known of this query now.
    pub fn state(&self, query: &GateQuery, now: Duration) -> GateState {
        let known = self.known.get(query).copied().unwrap_or_default();
        match known.state(now, self.holds_for()) {
            GateState::Unknown if now < self.awaited_until(&known) => GateState::Awaited,
            state => state,
        }
    }

    /// Until when this is waited for if it is not known.
    fn awaited_until(&self, known: &Heard) -> Duration {
        let since = known
            .lasts_until(self.holds_for())
            .map_or(self.since, |until| until.max(self.since));
        since + self.interval * AWAITED_INTERVALS
    }

    /// These queries matter now, and these others are of gates that nothing waits for. Returns those that are to be asked at
    /// once, and when to look again. What is of no gate any more is forgotten.
    pub fn due(
        &mut self,
        matter: &BTreeSet<&GateQuery>,
        others: &BTreeSet<&GateQuery>,
        now: Duration,
    ) -> (Vec<GateQuery>, Option<Duration>) {
        let room = QUERIES_MAX.saturating_sub(matter.len());
        let others: BTreeSet<&GateQuery> = others.difference(matter).copied().take(room).collect();
        self.known.retain(|query, known| {
            known.note(matter.contains(query));
            known.under_way || known.matters || others.contains(query)
        });
        let mut under_way = self.known.values().filter(|known| known.under_way).count();
        let (mut due, mut next) = (Vec::new(), None);
        let mut look_again =
            |at: Duration| next = Some(next.map_or(at, |next: Duration| next.min(at)));
        let (interval, holds_for) = (self.interval, self.holds_for());
        // What matters comes first, and of that what has waited longest, or a source that does not answer would keep the others
        // from being asked.
        let mut in_turn: Vec<(bool, &GateQuery)> =
            others.into_iter().map(|query| (false, query)).collect();
        in_turn.extend(matter.iter().map(|query| (true, *query)));
        in_turn.sort_by_key(|(matters, query)| {
            (
                !matters,
                self.known.get(query).and_then(|known| known.asked),
            )
        });
        for (matters, query) in in_turn {
            if !self.known.contains_key(query) && self.known.len() >= QUERIES_MAX {
                continue;
            }
            let known = self.known.entry(query.clone()).or_insert(Heard {
                matters,
                ..Heard::default()
            });
            if let Some(until) = known
                .until(holds_for)
                .filter(|until| matters && now < *until)
            {
                look_again(until);
            }
            let Some(at) = known.due(interval, now).filter(|_| !known.under_way) else {
                continue;
            };
            if now < at {
                look_again(at);
            } else if under_way < AT_ONCE {
                under_way += 1;
                (known.asked, known.under_way) = (Some(now), true);
                due.push(query.clone());
            }
        }
        (due, next)
    }

    /// This is the answer to a query that was asked.
    pub fn answered(&mut self, query: &GateQuery, answer: GateAnswer, now: Duration) {
        let holds_for = self.holds_for();
        if let Some(known) = self.known.get_mut(query) {
            known.answered(answer, now, holds_for);
        }
    }
}

/// The pools (by index) for which gates matter now: those with something to update, or with an update under way.
pub fn matter(fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> BTreeSet<usize> {
    let gated: BTreeSet<usize> = fleet
        .pools
        .iter()
        .enumerate()
        .filter(|(_, pool)| pool.has_gates)
        .map(|(index, _)| index)
        .collect();
    if gated.is_empty() {
        return gated;
    }
    let busy = views.iter().filter_map(|view| {
        let Steering::Pool(index) = view.steering else {
            return None;
        };
        let has_update = || {
            let labelled = view.node.is_some_and(|node| node.labelled);
            labelled && view.shadow.is_some_and(|shadow| shadow.update().is_some())
        };
        let busy = gated.contains(&index) && (has_update() || view.slot(fleet).is_some());
        busy.then_some(index)
    });
    busy.collect()
}

#[cfg(test)]
mod tests;
