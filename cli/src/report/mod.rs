//! From what was read to what is shown: pure functions. Every text is made printable on the way, for agents, hosts and other
//! people have their words in it.

pub(crate) mod history;
pub(crate) mod status;
pub(crate) mod why;

use std::cmp::Reverse;

use brupop_api::conditions::{Condition, PROGRESSING};
use brupop_api::crds::{MESSAGE_MAX, NAME_MAX, TIME_MAX, WORD_MAX};
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketFleetStatus, BottlerocketShadow, Item, names};
use brupop_core::decide::TO_GO_ON;
use brupop_core::pool::Pool;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::objects::Event;
use crate::page::{Page, Tone, age};
use crate::table::{Cell, some, table};
use crate::words::{name, shown, version};

/// Two Events that are published together are no further apart.
const TOGETHER: SignedDuration = SignedDuration::from_secs(2);

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventRow {
    /// When it happened last.
    pub at: Option<String>,
    pub kind: String,
    pub object: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub reason: String,
    pub count: u64,
    pub message: String,
}

/// The last of these Events, the latest of them last. What the reconciler tells on a shadow and on its Node is told once.
pub(crate) fn latest(mut events: Vec<Event>, most: usize) -> Vec<EventRow> {
    events.sort_by_key(|event| Reverse(event.at));
    let mut rows: Vec<EventRow> = vec![];
    let mut times: Vec<Option<Timestamp>> = vec![];
    for event in events {
        let row = EventRow::of(&event);
        let soon_after = |later: Option<Timestamp>| {
            later
                .zip(event.at)
                .is_some_and(|(later, at)| later.duration_since(at) <= TOGETHER)
        };
        let near = rows
            .iter()
            .zip(&times)
            .rev()
            .take_while(|(_, later)| soon_after(**later));
        if near.into_iter().all(|(later, _)| !later.repeats(&row)) {
            rows.push(row);
            times.push(event.at);
        }
        if rows.len() == most {
            break;
        }
    }
    rows.reverse();
    rows
}

impl EventRow {
    fn of(event: &Event) -> Self {
        Self {
            at: event.at.map(|at| at.to_string()),
            kind: shown(&event.kind, WORD_MAX),
            object: shown(&event.name, NAME_MAX),
            type_: shown(&event.type_, WORD_MAX),
            reason: shown(&event.reason, WORD_MAX),
            count: event.count,
            message: shown(&event.message, MESSAGE_MAX),
        }
    }

    /// Do both tell the same of one node?
    fn repeats(&self, other: &Self) -> bool {
        self.kind != other.kind
            && self.about() == other.about()
            && (&self.reason, &self.message) == (&other.reason, &other.message)
    }

    /// The node that it is about, or the kind of another object.
    fn about(&self) -> &str {
        match self.kind.as_str() {
            "BottlerocketShadow" => names::node_of_shadow(&self.object).unwrap_or(&self.object),
            "Node" => &self.object,
            kind => kind,
        }
    }
}

/// Events as a table; of one node, without its name.
pub(crate) fn events(rows: &[EventRow], of_one_node: bool, page: &Page) -> String {
    let row = |event: &EventRow| {
        let again = if event.count > 1 {
            format!(" (x{})", event.count)
        } else {
            String::new()
        };
        let tone = (event.type_ == "Warning").then_some(Tone::Attention);
        let reason = event.reason.clone() + &again;
        vec![
            Cell::new(
                event
                    .at
                    .as_deref()
                    .map_or("-".to_owned(), |at| age(at, page.now)),
            ),
            Cell::new(if of_one_node { "" } else { event.about() }),
            tone.map_or_else(|| Cell::new(&reason), |tone| Cell::toned(tone, &reason)),
            Cell::new(&event.message),
        ]
    };
    let head = [("AGE", 0), ("ABOUT", 1), ("EVENT", 2), ("MESSAGE", 0)];
    table(&head, &rows.iter().map(row).collect::<Vec<_>>(), page)
}

/// Lines that say what could not be looked at.
pub(crate) fn notes(notes: &[String], page: &Page) -> String {
    notes
        .iter()
        .map(|note| Tone::Attention.paragraph("Not shown:", note, page))
        .collect()
}

/// The condition that says why a shadow's node moves or waits.
fn progressing(shadow: &BottlerocketShadow) -> Option<&Condition> {
    condition(shadow, PROGRESSING)
}

/// Its sentence and, if a person has to do anything, the remedy.
fn said_of(said: &Condition) -> (&str, Option<&str>) {
    let parts = said.message.rsplit_once(TO_GO_ON);
    parts.map_or((&said.message, None), |(sentence, remedy)| {
        (sentence, Some(remedy))
    })
}

fn condition<'a>(shadow: &'a BottlerocketShadow, type_: &str) -> Option<&'a Condition> {
    shadow
        .status
        .as_ref()?
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

fn time(text: &str) -> String {
    shown(text, TIME_MAX)
}

/// The name of the node of this shadow.
fn node_of(shadow: &str) -> String {
    name(names::node_of_shadow(shadow).unwrap_or(shadow))
}

/// The pool that steers this node; empty if none does, or nobody has said so yet.
fn pool_of(shadow: &BottlerocketShadow) -> &str {
    shadow
        .status
        .as_ref()
        .and_then(|status| status.pool.as_deref())
        .unwrap_or_default()
}

/// How many nodes may be unavailable at once, if a reconciler has said so.
fn limit(status: &BottlerocketFleetStatus) -> Option<u64> {
    Some(status.counts.unavailable_limit).filter(|limit| *limit > 0)
}

/// The condition does not say it: thousands of shadows would be rewritten each time that a slot changes hands.
/// For a node that this pool steers, they are those of the pool, if it is full, else of the fleet.
fn slots_in_use(its: &str, status: &BottlerocketFleetStatus, pools: &[Item<Pool>]) -> String {
    let nodes = |in_it: &dyn Fn(&Slot) -> bool| -> Vec<String> {
        let slots = status.slots.iter().filter(|(_, slot)| in_it(slot));
        slots.map(|(shadow, _)| node_of(shadow)).collect()
    };
    let of_pool = nodes(&|slot| slot.pool.as_deref() == Some(its));
    let found = pools
        .iter()
        .find(|pool| pool.name() == its)
        .and_then(Item::ok)
        .map(|pool| &pool.stored);
    let full = found.filter(|it| {
        let used = it.counts.unavailable_nodes.max(of_pool.len() as u64);
        !it.conditions.is_empty() && used >= it.counts.unavailable_limit
    });
    let all = nodes(&|_| true);
    let fleet_has_room = limit(status).is_some_and(|limit| limit > all.len() as u64);
    let (nodes, limit, of) = match full {
        Some(it) => (
            of_pool,
            it.counts.unavailable_limit.to_string(),
            format!(" in the pool {}", name(its)),
        ),
        // Its limit is in the environment. The fleet's is that of all pools.
        None if fleet_has_room && its == names::DEFAULT_POOL && !pools.is_empty() => {
            let of_default = nodes(&|slot| slot.pool.as_deref().unwrap_or(its) == its);
            (
                of_default,
                "MAX_CONCURRENT_UPDATE".to_owned(),
                format!(" in the pool {its}"),
            )
        }
        None => (
            all,
            limit(status).map_or_else(|| "?".to_owned(), |limit| limit.to_string()),
            String::new(),
        ),
    };
    let by = if nodes.is_empty() {
        String::new()
    } else {
        format!(", by {}", some(&nodes, usize::MAX))
    };
    format!("{} of {limit} in use{of}{by}", nodes.len())
}

fn word(text: &str) -> String {
    shown(text, WORD_MAX)
}

fn sentence(text: &str) -> String {
    shown(text, MESSAGE_MAX)
}

/// `-` for what is not there.
fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
