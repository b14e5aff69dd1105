//! Explains why one node moves or waits.

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, OVERDUE, PROGRESSING, READY,
};
use brupop_api::shadow::LastFailure;
use brupop_api::{BottlerocketFleetStatus, BottlerocketShadow, Item, Problem, State, names};
use brupop_core::decide::{Named, Reason};
use brupop_core::pool::Pool;
use brupop_core::status::update_known_since;
use comfy_table::Color;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{
    condition, name, nothing_named, or_dash, pool_of, progressing, sentence, sentence_of,
    slots_in_use, time, time_zone, unsaid, version, word,
};
use crate::error::Error;
use crate::event::{self, Event, latest};
use crate::gather::AboutNode;
use crate::leads::Leads;
use crate::page::{Page, View};
use crate::table::{facts, notes};

/// Maximum number of Events that are shown.
const EVENTS: usize = 8;

/// The reason why one node moves or waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Why {
    pub node: String,
    /// A stable word; absent while nobody has given a reason.
    pub reason: Option<String>,
    pub message: String,
    /// The time since which it moves, or waits, be it for other reasons before this one. While its host knew of no update,
    /// it did not wait.
    pub since: Option<String>,
    pub moves: bool,
    /// The remedy; absent if nobody has to do anything.
    pub remedy: Option<String>,
    /// The reason why it holds its slot too long.
    pub overdue: Option<String>,
    pub runs: Option<String>,
    /// The version that its host would choose now.
    pub target: Option<String>,
    /// The state that it has reached.
    pub state: Option<&'static str>,
    /// The state that it is to reach; absent if the node has no shadow.
    pub goal: Option<&'static str>,
    /// The pool that steers it.
    pub pool: Option<String>,
    /// The host's problem, as its agent reports it.
    pub problem: Option<&'static str>,
    pub agent_says: Option<String>,
    /// The last failed attempt since the last success.
    pub last_failure: Option<LastFailure>,
    /// The time since which it holds a slot.
    pub updating_since: Option<String>,
    /// The slots in use and their holders, if the node waits for one.
    pub slots: Option<String>,
    /// Facts of other objects that the reason rests on.
    pub rests_on: Vec<String>,
    /// Events about the node, the latest first.
    pub events: Vec<Event>,
    /// Parts that could not be read.
    pub notes: Vec<String>,
    /// That no reconciler leads, so all of this may be old; or that this is not known.
    pub no_leader: Option<String>,
    /// The time zone of its pool.
    #[serde(skip)]
    pub zone: Option<TimeZone>,
}

/// Says why the node of this name moves or waits.
pub(crate) fn of(node: &str, found: &AboutNode) -> Result<Why, Error> {
    let told = |message: &str| Why {
        message: message.to_owned(),
        ..Why::default()
    };
    let named = Named {
        node,
        ..nothing_named(&found.namespace)
    };
    let mut why = match (&found.shadow, &found.node) {
        (Some(shadow), _) => of_shadow(named, found, shadow),
        (None, Ok(None)) => {
            let what = format!("Node {}, and no shadow of it", name(node));
            return Err(Error::Missing(what));
        }
        (None, Ok(Some(seen))) if !seen.is_managed() => Why {
            reason: Some(Reason::NotLabelled.as_str().to_owned()),
            remedy: Some(Reason::NotLabelled.remedy(&named)),
            ..told(&Reason::NotLabelled.message())
        },
        (None, Ok(Some(_))) => told(
            "the node is labelled, and the reconciler has not created its shadow: see whether one leads, and the Events of the Node",
        ),
        (None, Err(why)) => Why {
            notes: vec![why.clone()],
            ..told("the node has no shadow: either it is not labelled, or there is no such Node")
        },
    };
    let slot = ledger(found).and_then(|status| status.slots.get(&names::shadow_name(node)));
    why.updating_since = slot.and_then(|slot| slot.since.as_deref()).map(time);
    why.node = name(node);
    why.events = latest(&found.events, EVENTS);
    why.events.reverse();
    why.notes.extend(found.notes.iter().cloned());
    why.no_leader = found.leads.warning();
    if let Leads::No(_) = found.leads {
        why.remedy = Some(Reason::NotLeading.remedy(&named));
    }
    Ok(why)
}

fn ledger(found: &AboutNode) -> Option<&BottlerocketFleetStatus> {
    found.fleet.as_ref()?.status.as_ref()
}

fn of_shadow(named: Named<'_>, found: &AboutNode, shadow: &BottlerocketShadow) -> Why {
    let status = shadow.status.clone().unwrap_or_default();
    let said = progressing(shadow);
    let failure = shadow.spec.last_failure.as_ref();
    let named = Named {
        pool: pool_of(shadow),
        version: status.target_version.as_deref().unwrap_or_default(),
        failure: failure.map(|failed| failed.reason.as_str()),
        ..named
    };
    let reason = said.and_then(|said| Reason::of_word(&said.reason));
    let remedy = reason.as_ref().map(|reason| reason.remedy(&named));
    let its_pool = found
        .pools
        .iter()
        .find(|pool| pool.name() == pool_of(shadow));
    let in_use = |status| slots_in_use(pool_of(shadow), status, &found.pools);
    let waits_for_slot = reason == Some(Reason::LimitReached);
    let pool = Some(pool_of(shadow)).filter(|pool| !pool.is_empty());
    // A version lock is no problem; the sentence is shown all the same.
    let problem = status.problem.filter(|it| *it != Problem::NoUpdateChosen);
    Why {
        reason: said.map(|said| word(&said.reason)),
        message: said.map_or_else(|| unsaid("this node"), |said| sentence(sentence_of(said))),
        since: said.map(|said| time(since(said, shadow))),
        moves: said.is_some_and(|said| said.status == ConditionStatus::True),
        remedy: remedy.filter(|remedy| !remedy.is_empty()),
        slots: ledger(found).filter(|_| waits_for_slot).map(in_use),
        rests_on: reason.map_or(vec![], |reason| rests_on(&reason, its_pool, found)),
        zone: its_pool.and_then(time_zone).cloned(),
        overdue: condition(shadow, OVERDUE).map(|overdue| sentence(&overdue.message)),
        runs: status.current_version.as_deref().map(version),
        target: status.target_version.as_deref().map(version),
        state: status.current_state.map(State::as_str),
        goal: Some(shadow.spec.state.as_str()),
        pool: pool.map(name),
        problem: problem.map(Problem::as_str),
        agent_says: status.message.as_deref().map(sentence),
        last_failure: failure.map(|failed| LastFailure {
            reason: word(&failed.reason),
            at: time(&failed.at),
            message: sentence(&failed.message),
            ..failed.clone()
        }),
        ..Why::default()
    }
}

/// Returns what the objects say that this reason rests on.
fn rests_on(reason: &Reason<'_>, its_pool: Option<&Item<Pool>>, found: &AboutNode) -> Vec<String> {
    let pool = its_pool.and_then(Item::ok);
    let rules = pool.and_then(|pool| pool.rules.as_ref().ok());
    let of_pool = |of: &Pool, type_: &str| {
        let mut conditions = of.stored.conditions.iter();
        let said = conditions.find(|it| it.type_ == type_)?;
        let pool = name(of.metadata.name.as_deref().unwrap_or_default());
        let (reason, message) = (word(&said.reason), sentence(&said.message));
        Some(format!("pool {pool}: {reason}: {message}"))
    };
    match reason {
        Reason::WaitingForPool(_) => {
            let first = rules.iter().flat_map(|rules| &rules.depends_on);
            let first = first.filter_map(|(first, _)| {
                let pool = found.pools.iter().find(|pool| pool.name() == first)?;
                of_pool(pool.ok()?, PROGRESSING)
            });
            first.collect()
        }
        Reason::GateClosed(_) | Reason::GateUnknown(_) => {
            let gates = rules.iter().flat_map(|rules| &rules.gates).map(|gate| {
                let (query, source) = (&gate.prometheus.query, &gate.prometheus.source);
                let (query, source) = (sentence(query), word(source));
                format!(
                    "gate {}: \"{query}\" of the source {source}",
                    word(&gate.name)
                )
            });
            let said = pool.and_then(|pool| of_pool(pool, READY));
            said.into_iter().chain(gates).collect()
        }
        Reason::AdmissionNotEnforced => {
            let mut conditions = ledger(found).into_iter().flat_map(|it| &it.conditions);
            let said = conditions.find(|it| it.type_ == ADMISSION_ENFORCED);
            let said = said.map(|said| format!("fleet: {}", sentence(&said.message)));
            said.into_iter().collect()
        }
        _ => vec![],
    }
}

/// Returns since when the node does what its condition Progressing says.
fn since<'a>(said: &'a Condition, shadow: &'a BottlerocketShadow) -> &'a str {
    let transition = said.last_transition_time.as_str();
    let waits = said.status != ConditionStatus::True && said.reason != Reason::NoUpdate.as_str();
    let known = update_known_since(shadow).filter(|_| waits);
    let later = known.filter(|known| known.parse::<Timestamp>().ok() > transition.parse().ok());
    later.unwrap_or(transition)
}

impl View for Why {
    fn text(&self, page: &Page) -> String {
        let page = &page.in_zone(self.zone.as_ref());
        let message = facts(vec![("", self.message.clone(), None)], page);
        let warning = self.no_leader.iter().cloned();
        let warning = warning.map(|it| ("Nothing starts:", it, Some(Color::DarkRed)));
        let reason = or_dash(self.reason.as_deref());
        format!("{}: {reason}\n{message}", self.node)
            + &facts(warning.collect(), page)
            + "\n"
            + &facts(self.lines(page), page)
            + &event::section(&self.events, true, page)
            + &notes(&self.notes, page)
    }
}

impl Why {
    /// Returns what it has been doing for some time, in its colour.
    fn standing(&self) -> (&'static str, Color) {
        if self.moves {
            ("moving for", Color::DarkCyan)
        } else if self.reason.as_deref() == Some(Reason::NoUpdate.as_str()) {
            ("idle for", Color::DarkGreen)
        } else {
            ("waiting for", Color::DarkYellow)
        }
    }

    fn lines(&self, page: &Page) -> Vec<(&'static str, String, Option<Color>)> {
        let since = |since: &String| format!("{} ({since})", page.age(since));
        let runs = self.runs.as_deref();
        let runs = runs.map(|runs| match self.target.as_deref() {
            Some(to) if to != runs => format!("{runs}, and the host would update to {to}"),
            _ => runs.to_owned(),
        });
        let state = self.goal.map(|goal| match or_dash(self.state) {
            state if state == goal => state.to_owned(),
            state => format!("{state}, and must reach {goal}"),
        });
        let failed = |it: &LastFailure| {
            let (reason, message) = (&it.reason, &it.message);
            let (age, count) = (page.age(&it.at), it.count);
            format!("{reason} ({age}), {count} since the last success: {message}")
        };
        let rests_on = Some(self.rests_on.join("\n")).filter(|text| !text.is_empty());
        let (stands, color) = self.standing();
        let lines = [
            ("what to do", self.remedy.clone(), None),
            ("slots", self.slots.clone(), None),
            ("depends on", rests_on, None),
            (stands, self.since.as_ref().map(since), Some(color)),
            (
                "updating for",
                self.updating_since.as_ref().map(since),
                None,
            ),
            ("overdue", self.overdue.clone(), Some(Color::DarkRed)),
            ("runs", runs, None),
            ("state", state, None),
            ("pool", self.pool.clone(), None),
            (
                "problem",
                self.problem.map(str::to_owned),
                Some(Color::DarkYellow),
            ),
            (
                "agent says",
                self.agent_says.as_ref().map(|words| format!("\"{words}\"")),
                None,
            ),
            ("last failure", self.last_failure.as_ref().map(failed), None),
        ];
        let lines = lines.into_iter();
        lines
            .filter_map(|(key, value, color)| Some((key, value?, color)))
            .collect()
    }
}
