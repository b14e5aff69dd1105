//! From what was read to what is shown: pure functions. Every text is made printable on the way, for agents, hosts and other
//! people have their words in it.

pub(crate) mod history;
pub(crate) mod status;
pub(crate) mod why;

use brupop_api::conditions::{Condition, PROGRESSING};
use brupop_api::crds::{MESSAGE_MAX, TIME_MAX, WORD_MAX};
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketFleetStatus, BottlerocketShadow, Item, names};
use brupop_core::decide::{Named, WHAT_TO_DO};
use brupop_core::pool::Pool;
use jiff::tz::TimeZone;

use crate::table::some;
use crate::words::{name, shown, version};

/// Returns the condition that says why a shadow's node moves or waits.
fn progressing(shadow: &BottlerocketShadow) -> Option<&Condition> {
    condition(shadow, PROGRESSING)
}

/// Returns the condition's sentence, without the remedy that [`Reason`](brupop_core::decide::Reason) has, too.
fn sentence_of(said: &Condition) -> &str {
    let parts = said.message.rsplit_once(WHAT_TO_DO);
    parts.map_or(&said.message, |(sentence, _)| sentence)
}

fn condition<'a>(shadow: &'a BottlerocketShadow, type_: &str) -> Option<&'a Condition> {
    let mut conditions = shadow.status.as_ref()?.conditions.iter();
    conditions.find(|condition| condition.type_ == type_)
}

/// Says that nothing is known of these objects.
fn unsaid(what: &str) -> String {
    format!("the reconciler has not reported on {what} yet: check whether one leads")
}

/// Returns what a remedy is about that names nothing yet.
fn nothing_named(namespace: &str) -> Named<'_> {
    Named {
        node: "",
        pool: "",
        version: "",
        namespace,
        failure: None,
    }
}

fn time(text: &str) -> String {
    shown(text, TIME_MAX)
}

/// Returns the name of the node of this shadow.
fn node_of(shadow: &str) -> String {
    name(names::node_of_shadow(shadow).unwrap_or(shadow))
}

/// Returns the pool that steers this node; empty if none does, or nobody has said so yet.
fn pool_of(shadow: &BottlerocketShadow) -> &str {
    let status = shadow.status.as_ref();
    status
        .and_then(|status| status.pool.as_deref())
        .unwrap_or_default()
}

/// Returns the time zone of this pool's first window.
fn time_zone(pool: &Item<Pool>) -> Option<&TimeZone> {
    pool.ok()?.rules.as_ref().ok()?.time_zone()
}

/// Returns how many nodes may be unavailable at once, if a reconciler has said so.
fn limit(status: &BottlerocketFleetStatus) -> Option<u64> {
    Some(status.counts.unavailable_limit).filter(|limit| *limit > 0)
}

/// Says how many slots of the fleet are in use, by which nodes, and how many of this pool. The condition does not say it: thousands
/// of shadows would be rewritten each time that a slot changes hands.
fn slots_in_use(its: &str, status: &BottlerocketFleetStatus, pools: &[Item<Pool>]) -> String {
    let is_its = |slot: &&Slot| slot.pool.as_deref().unwrap_or(names::DEFAULT_POOL) == its;
    let its_nodes = status.slots.values().filter(is_its).count();
    let nodes: Vec<String> = status.slots.keys().map(|shadow| node_of(shadow)).collect();
    let by = if nodes.is_empty() { "" } else { ", by " };
    let limit = limit(status).map_or("?".to_owned(), |limit| limit.to_string());
    let (count, nodes) = (nodes.len(), some(&nodes, usize::MAX));
    let of_fleet = format!("{count} of {limit} in use{by}{nodes}");
    let stored = pools.iter().find(|pool| pool.name() == its);
    let limit = match stored.and_then(Item::ok) {
        Some(pool) => pool.stored.counts.unavailable_limit.to_string(),
        None if pools.is_empty() || its.is_empty() => return of_fleet,
        // The limit of the default pool is in the environment.
        None => "MAX_CONCURRENT_UPDATE".to_owned(),
    };
    format!(
        "{of_fleet}; of the pool {}: {its_nodes} of {limit}",
        name(its)
    )
}

fn word(text: &str) -> String {
    shown(text, WORD_MAX)
}

fn sentence(text: &str) -> String {
    shown(text, MESSAGE_MAX)
}

/// Returns `-` for a text that is not there.
fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
