//! Gates of pools (`spec.gates`): what is asked, what is made of the answers, and for how long they hold.
//!
//! The first answer that is not good closes a gate; three good ones in a row open it. A gate that nobody knows anything of, or
//! nothing new, is closed. For as long as a new leader needs to ask, that gives no update up. While no update waits for a gate,
//! it is asked once, so that people hear at once of what can have no answer. Instants are durations since any fixed moment of a
//! monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::pool::PrometheusGate;
use brupop_api::printable::printable;
use serde_json::{Value, json};

use crate::facts::{FleetFacts, NodeView, Owner};
use crate::rules::GateState;

/// This many good answers in a row open a gate.
const GOOD_IN_A_ROW: u8 = 3;
/// The most different queries that are sent, whatever people make.
const QUERIES_MAX: usize = 64;
/// The most of them that are under way at once.
const AT_ONCE: usize = 8;
/// For this many intervals a gate of unknown state is waited for: those of the answers that open it, and one more.
const AWAITED_INTERVALS: u32 = 4;
/// While nothing waits for a gate, what had no answer is asked again after this many intervals.
const FAILED_INTERVALS: u32 = 10;
/// An answer holds for two intervals and this long: one query may get lost on its way.
const GRACE: Duration = Duration::from_secs(30);

/// The answers to one query. Answers count from when they were asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The state by the last answers, Open or Closed as long as it is not stale.
    state: GateState,
    /// When it is stale, or was.
    until: Option<Duration>,
    /// Number of good answers in a row.
    good: u8,
    asked: Option<Duration>,
    under_way: bool,
}

impl Heard {
    /// When it is to be asked; what does not matter is asked once, and until there is an answer.
    fn due(&self, matters: bool, interval: Duration, now: Duration) -> Option<Duration> {
        let failed = self.state == GateState::Unknown && self.good == 0;
        match self.asked {
            None => Some(now),
            Some(asked) if matters => Some(asked + interval),
            Some(asked) if failed => Some(asked + interval * FAILED_INTERVALS),
            Some(_) => None,
        }
    }

    fn state(&self, now: Duration) -> GateState {
        match self.until {
            Some(until) if now < until => self.state,
            _ => GateState::Unknown,
        }
    }

    /// Asks now. What was good before a gap is not in a row with what is good after it.
    fn ask(&mut self, now: Duration, holds_for: Duration) {
        if self.asked.is_none_or(|asked| asked + holds_for <= now) {
            self.good = 0;
        }
        self.state = self.state(now);
        (self.asked, self.under_way) = (Some(now), true);
    }

    /// Takes in the state that the answer to the last query shows. The gate opens after `opens` good answers in a row.
    fn answered(&mut self, answer: GateState, opens: u8, now: Duration, holds_for: Duration) {
        let at = self.asked.unwrap_or(now);
        let is_good = answer == GateState::Open;
        self.good = if is_good {
            (self.good + 1).min(opens)
        } else {
            0
        };
        if !is_good || self.good == opens {
            self.state = answer;
        }
        self.until = match self.state {
            GateState::Unknown => self.until.map(|until| until.min(at)),
            _ => Some(at + holds_for),
        };
        self.under_way = false;
    }
}

/// A leader's state of all queries.
#[derive(Debug)]
pub struct Gates {
    interval: Duration,
    /// The time since which anybody could be asked.
    since: Duration,
    known: BTreeMap<PrometheusGate, Heard>,
    /// Number of good answers in a row that open a gate. A plan needs one, because the leader's earlier answers are stored nowhere.
    pub opens: u8,
}

impl Gates {
    /// From now on each query is asked, and again after each interval.
    pub fn new(interval: Duration, now: Duration) -> Self {
        Self {
            interval,
            since: now,
            known: BTreeMap::new(),
            opens: GOOD_IN_A_ROW,
        }
    }

    fn holds_for(&self) -> Duration {
        self.interval * 2 + GRACE
    }

    /// Returns what is known of this query now.
    pub fn state(&self, query: &PrometheusGate, now: Duration) -> GateState {
        let known = self.known.get(query).copied().unwrap_or_default();
        match known.state(now) {
            GateState::Unknown if now < self.awaited_until(&known) => GateState::Awaited,
            state => state,
        }
    }

    /// Returns until when this is waited for if it is not known.
    fn awaited_until(&self, known: &Heard) -> Duration {
        let since = known
            .until
            .map_or(self.since, |until| until.max(self.since));
        since + self.interval * AWAITED_INTERVALS
    }

    /// These queries matter now, and these others are of gates that nothing waits for. Returns those that are to be asked at
    /// once, and when to look again. What is of no gate any more is forgotten.
    pub fn due(
        &mut self,
        matter: &BTreeSet<&PrometheusGate>,
        others: &BTreeSet<&PrometheusGate>,
        now: Duration,
    ) -> (Vec<PrometheusGate>, Option<Duration>) {
        let room = QUERIES_MAX.saturating_sub(matter.len());
        let others: BTreeSet<&PrometheusGate> =
            others.difference(matter).copied().take(room).collect();
        self.known.retain(|query, known| {
            known.under_way || matter.contains(query) || others.contains(query)
        });
        let mut under_way = self.known.values().filter(|known| known.under_way).count();
        let (mut due, mut next) = (Vec::new(), None);
        let mut look_again =
            |at: Duration| next = Some(next.map_or(at, |next: Duration| next.min(at)));
        let (interval, holds_for) = (self.interval, self.holds_for());
        // Queries that matter come first, those that have waited longest before others; or a source that does not answer would keep the others
        // from being asked.
        let mut in_turn: Vec<(bool, &PrometheusGate)> =
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
            let known = self.known.entry(query.clone()).or_default();
            if let Some(until) = known.until.filter(|until| matters && now < *until) {
                look_again(until);
            }
            let Some(at) = known
                .due(matters, interval, now)
                .filter(|_| !known.under_way)
            else {
                continue;
            };
            if now < at {
                look_again(at);
            } else if under_way < AT_ONCE {
                under_way += 1;
                known.ask(now, holds_for);
                due.push(query.clone());
            }
        }
        (due, next)
    }

    /// The answer to a query that was asked shows this state; `Unknown` if there is none, or it says nothing.
    pub fn answered(&mut self, query: &PrometheusGate, answer: GateState, now: Duration) {
        let holds_for = self.holds_for();
        if let Some(known) = self.known.get_mut(query) {
            known.answered(answer, self.opens, now, holds_for);
        }
    }
}

/// The pools (by index) for which gates matter now: those with something to update, or with an update under way.
pub fn matter(fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> BTreeSet<usize> {
    let gated: BTreeSet<usize> = fleet
        .pools
        .iter()
        .enumerate()
        .filter(|(_, pool)| pool.has_gates())
        .map(|(index, _)| index)
        .collect();
    if gated.is_empty() {
        return gated;
    }
    let busy = views.iter().filter_map(|view| {
        let Owner::Pool(index) = view.owner else {
            return None;
        };
        let has_update = || {
            let labelled = view.node.is_some_and(|node| node.labelled);
            labelled && view.shadow.is_some_and(|shadow| shadow.update().is_some())
        };
        let busy = gated.contains(&index) && (has_update() || view.held().is_some());
        busy.then_some(index)
    });
    busy.collect()
}

// Answers of a Prometheus. Nothing of an answer is kept, or shown, but why an expression is none.

/// Longest answer that is read, in bytes. A source is asked for one series.
pub const ANSWER_MAX: usize = 64 * 1024;
/// Most bytes that are shown of why an expression is none.
const REFUSAL_MAX: usize = 256;

/// The state that an answer shows, by whether the query found a series, and whether one was found of what it requires.
pub fn answer_of(query: bool, requires: Option<bool>) -> GateState {
    if !query && requires != Some(false) {
        GateState::Open
    } else {
        GateState::Closed
    }
}

// Reasons why an answer says nothing. No sentence has a word of the answer.
pub const TOO_LONG: &str = "its answer is longer than 64 KiB: let the expression find less";
const UNREADABLE: &str = "its answer is not that of a Prometheus to a query";
const FAILED: &str = "it says that it could not answer the query";
const NO_VECTOR: &str = "the expression is no instant vector: write one that finds series, or none";
const SERIES: &str = "its answer has a series that cannot be read";
const INCOMPLETE: &str = "it found nothing, and warns that this may be incomplete";

/// Returns why an expression is none, by the body of an answer with the HTTP status 400. Of other errors nothing is shown: they
/// may have words of what is measured.
pub fn refusal(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let error = printable(answer["error"].as_str()?, REFUSAL_MAX);
    (answer["errorType"] == "bad_data").then(|| format!("bad_data: \"{error}\""))
}

/// Returns whether an expression finds a series, by the body of an answer to `/api/v1/query` with the HTTP status 200.
///
/// # Errors
/// It says nothing.
pub fn read_answer(body: &[u8]) -> Result<bool, &'static str> {
    if body.len() > ANSWER_MAX {
        return Err(TOO_LONG);
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| UNREADABLE)?;
    let (data, warnings) = (&answer["data"], &answer["warnings"]);
    if answer["status"].as_str().ok_or(UNREADABLE)? != "success" {
        return Err(FAILED);
    }
    if data["resultType"].as_str().ok_or(UNREADABLE)? != "vector" {
        return Err(NO_VECTOR);
    }
    let series = data["result"].as_array().ok_or(UNREADABLE)?;
    if !series.iter().all(is_series) {
        return Err(SERIES);
    }
    if series.is_empty() && !warnings.is_null() && *warnings != json!([]) {
        return Err(INCOMPLETE);
    }
    Ok(!series.is_empty())
}

/// Whether this is a series of an instant vector: a number or a histogram.
fn is_series(series: &Value) -> bool {
    let value = series["value"][1].as_str();
    let is_number = value.is_some_and(|value| value.parse::<f64>().is_ok());
    series["metric"].is_object() && (is_number || series["histogram"].is_array())
}

#[cfg(test)]
mod tests;
