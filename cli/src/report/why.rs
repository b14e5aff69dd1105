//! Why one node moves or waits.

use brupop_api::conditions::{Condition, ConditionStatus, OVERDUE};
use brupop_api::{BottlerocketShadow, Problem, State, names};
use brupop_core::decide::{Named, Reason, Turn};
use brupop_core::phases::update_known_since;
use comfy_table::Color;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    condition, name, or_dash, pool_of, progressing, sentence, sentence_of, slots_in_use, time,
    version, word,
};
use crate::error::Error;
use crate::event::{self, Event, latest};
use crate::gather::AboutNode;
use crate::page::{Page, View};
use crate::table::facts;

/// This many Events are shown.
const EVENTS: usize = 20;

/// Why one node moves or waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Why {
    pub node: String,
    /// A stable word; absent while nobody has given a reason.
    pub reason: Option<String>,
    pub message: String,
    /// Since when it moves, or waits, be it for other reasons before this one. While its host knew of no update,
    /// it did not wait.
    pub since: Option<String>,
    pub moves: bool,
    /// What a person does about it; absent if nobody has to do anything.
    pub remedy: Option<String>,
    /// What it holds its slot for too long for.
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
    /// What is wrong on the host, as its agent says.
    pub problem: Option<&'static str>,
    /// The agent's words.
    pub agent_says: Option<String>,
    pub last_failure: Option<LastFailure>,
    /// Since when it holds a slot.
    pub updating_since: Option<String>,
    /// How many slots of the fleet are in use, and by whom, if it waits for one.
    pub slots: Option<String>,
    pub events: Vec<Event>,
    /// What could not be looked at.
    pub notes: Vec<String>,
    /// That no reconciler leads, so all of this may be old; or that this is not known.
    pub no_leader: Option<String>,
}

/// The last failed attempt since the last success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastFailure {
    pub reason: String,
    pub at: String,
    pub message: String,
    /// How many attempts have failed since the last success.
    pub count: u64,
}

/// Says why the node of this name moves or waits.
pub(crate) fn of(node: &str, found: &AboutNode) -> Result<Why, Error> {
    let mut why = match &found.shadow {
        Some(shadow) => of_shadow(node, &found.namespace, shadow),
        None => without_shadow(found, node)?,
    };
    let status = found.fleet.as_ref().and_then(|fleet| fleet.status.as_ref());
    let waits_for_slot = why.reason.as_deref() == Some(Reason::LimitReached(Turn::NoSlot).as_str());
    if let (Some(status), Some(shadow), true) = (status, &found.shadow, waits_for_slot) {
        why.slots = Some(slots_in_use(pool_of(shadow), status, &found.pools));
    }
    let slot = status.and_then(|status| status.slots.get(&names::shadow_name(node)));
    why.updating_since = slot.and_then(|slot| slot.since.as_deref()).map(time);
    why.node = name(node);
    why.events = latest(&found.events, EVENTS);
    why.notes.extend(found.notes.iter().cloned());
    why.no_leader = found.leads.warning();
    Ok(why)
}

fn of_shadow(node: &str, namespace: &str, shadow: &BottlerocketShadow) -> Why {
    let status = shadow.status.clone().unwrap_or_default();
    let said = progressing(shadow);
    let silent = "the reconciler has said nothing about this node yet: see whether one leads";
    let failure = shadow.spec.last_failure.as_ref();
    let named = Named {
        node,
        pool: pool_of(shadow),
        version: status.target_version.as_deref().unwrap_or_default(),
        namespace,
        failure: failure.map(|failed| failed.reason.as_str()),
    };
    let remedy = said.and_then(|said| Reason::of_word(&said.reason));
    let remedy = remedy.map(|reason| reason.remedy(&named));
    Why {
        reason: said.map(|said| word(&said.reason)),
        message: sentence(said.map_or(silent, |said| sentence_of(said))),
        since: said.map(|said| time(since(said, shadow))),
        moves: said.is_some_and(|said| said.status == ConditionStatus::True),
        remedy: remedy.filter(|remedy| !remedy.is_empty()),
        overdue: condition(shadow, OVERDUE).map(|overdue| sentence(&overdue.message)),
        runs: status.current_version.as_deref().map(version),
        target: status.target_version.as_deref().map(version),
        state: status.current_state.map(State::as_str),
        goal: Some(shadow.spec.state.as_str()),
        pool: Some(pool_of(shadow))
            .filter(|pool| !pool.is_empty())
            .map(name),
        // A version lock is no problem; the sentence is shown all the same.
        problem: status
            .problem
            .filter(|it| *it != Problem::NoUpdateChosen)
            .map(Problem::as_str),
        agent_says: status.message.as_deref().map(sentence),
        last_failure: failure.map(|failed| LastFailure {
            reason: word(&failed.reason),
            at: time(&failed.at),
            message: sentence(&failed.message),
            count: failed.count,
        }),
        ..Why::default()
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

/// Says what is known of a node that has no shadow.
fn without_shadow(found: &AboutNode, node: &str) -> Result<Why, Error> {
    let message = match &found.node {
        Ok(None) => {
            return Err(Error::Missing(format!(
                "Node {}, and no shadow of it",
                name(node)
            )));
        }
        Ok(Some(node)) if !node.is_managed() => {
            let (reason, named) = (
                Reason::NotLabelled,
                Named {
                    node: node.name(),
                    pool: "",
                    version: "",
                    namespace: &found.namespace,
                    failure: None,
                },
            );
            return Ok(Why {
                reason: Some(reason.as_str().to_owned()),
                message: reason.message().into_owned(),
                remedy: Some(reason.remedy(&named)),
                ..Why::default()
            });
        }
        Ok(Some(_)) => {
            "the node is labelled, and the reconciler has not created its shadow: see whether one leads, and the Events \
                        of the Node"
        }
        Err(_) => "the node has no shadow: either it is not labelled, or there is no such Node",
    };
    Ok(Why {
        message: message.to_owned(),
        notes: found.node.as_ref().err().cloned().into_iter().collect(),
        ..Why::default()
    })
}

impl View for Why {
    fn text(&self, page: &Page) -> String {
        let mut head = vec![("", self.message.clone(), None)];
        let warning = self.no_leader.clone();
        head.extend(warning.map(|warning| ("Nothing starts:", warning, Some(Color::Red))));
        let reason = or_dash(self.reason.as_deref());
        format!("{}: {reason}\n{}\n", self.node, facts(head, page))
            + &facts(self.lines(page), page)
            + &event::section(&self.events, true, page)
            + &page.notes(&self.notes)
    }
}

impl Why {
    /// Returns what it has been doing for some time, in its colour.
    fn standing(&self) -> (&'static str, Color) {
        if self.moves {
            ("moves for", Color::Cyan)
        } else if self.reason.as_deref() == Some(Reason::NoUpdate.as_str()) {
            ("idle for", Color::Green)
        } else {
            ("waits for", Color::Yellow)
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
            state => format!("{state}, and is to reach {goal}"),
        });
        let failed = |it: &LastFailure| {
            let (reason, age, count) = (&it.reason, page.age(&it.at), it.count);
            format!(
                "{reason} ({age}), {count} since the last success: {}",
                it.message
            )
        };
        let (stands, color) = self.standing();
        let lines = [
            ("to go on", self.remedy.clone(), None),
            ("slots", self.slots.clone(), None),
            (stands, self.since.as_ref().map(since), Some(color)),
            (
                "updating for",
                self.updating_since.as_ref().map(since),
                None,
            ),
            ("overdue", self.overdue.clone(), Some(Color::Red)),
            ("runs", runs, None),
            ("state", state, None),
            ("pool", self.pool.clone(), None),
            (
                "problem",
                self.problem.map(str::to_owned),
                Some(Color::Yellow),
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
