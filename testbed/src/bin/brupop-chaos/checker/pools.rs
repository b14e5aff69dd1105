//! What pools say must hold of each slot that is taken and each Node that is marked, for what people said long enough ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::json::{UPDATE_NOW, is_only_kept, is_ready, is_set, marker, members, shadow_of, text};
use super::{GRACE, Violation};
use answers::Answers;
use versions::Versions;
use zones::Zones;

pub(crate) mod answers;
mod versions;
mod zones;

/// The only pool that comes after another one, and which.
const ORDER: (&str, &str) = ("web", "canary");
/// A pool that is not there.
const GONE: Json = Json::Null;

/// What a pool said, and since when; the latest is the last.
#[derive(Clone, Debug, Default)]
struct PoolState(VecDeque<(Duration, Json)>);

impl PoolState {
    /// It says this from now on; null if it is deleted. What nobody goes by any more is forgotten.
    fn says(&mut self, spec: Json, now: Duration) {
        if self.0.back().is_none_or(|(_, last)| *last != spec) {
            self.0.push_back((now, spec));
        }
        while self.0.get(1).is_some_and(|(since, _)| now.saturating_sub(*since) > GRACE) {
            self.0.pop_front();
        }
    }

    /// What a leader may go by now; the latest is the first.
    fn specs(&self, now: Duration) -> impl Iterator<Item = &Json> {
        let replaced = |nth: usize| self.0.get(nth + 1).map(|(since, _)| *since);
        let may_be_believed =
            move |nth: usize| replaced(nth).is_none_or(|at| now.saturating_sub(at) <= GRACE);
        let known = self.0.iter().enumerate().rev().filter(move |(nth, _)| may_be_believed(*nth));
        known.map(|(_, (_, spec))| spec)
    }
}

/// The update that a slot or a mark is for, and when its leader decided on it.
#[derive(Clone, Copy)]
struct Begins<'a> {
    shadow: &'a str,
    version: &'a str,
    /// By the leader's clock, which is ours.
    at: &'a str,
}

/// The pools after a revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    all: BTreeMap<String, PoolState>,
    /// The shadows of Nodes whose update somebody has ever asked for.
    asked_for: BTreeSet<String>,
    /// Versions that a node in service has run, of those that were labelled for the pool that goes first.
    canaries_ran: BTreeSet<String>,
    versions: Versions,
    zones: Zones,
    /// The pool that each Node is labelled for, and since when.
    labelled: BTreeMap<String, (String, Duration)>,
    /// What the source of all gates has answered.
    pub(crate) answers: Answers,
    /// Since the checker began.
    pub(crate) now: Duration,
}

impl Pools {
    /// etcd was restored, and what `forgotten` knows of later is forgotten; but not what has happened outside of it.
    pub(crate) fn go_back(&mut self, forgotten: Self) {
        self.answers = forgotten.answers;
        self.asked_for.extend(forgotten.asked_for);
        self.canaries_ran.extend(forgotten.canaries_ran);
    }

    /// A pool is written, or deleted.
    pub(crate) fn pool(&mut self, name: &str, after: Option<&Json>) {
        let spec = after.map_or(GONE, |after| after["spec"].clone());
        self.all.entry(name.to_owned()).or_default().says(spec, self.now);
    }

    /// A Node is written, or deleted.
    pub(crate) fn node(&mut self, name: &str, after: Option<&Json>) {
        self.zones.node(name, after, self.now);
        let Some(node) = after else {
            self.labelled.remove(name);
            return;
        };
        let label = text(node, "/metadata/labels/tier");
        if self.labelled.get(name).is_none_or(|(was, _)| was != label) {
            self.labelled.insert(name.to_owned(), (label.to_owned(), self.now));
        }
        if is_set(node, UPDATE_NOW) {
            self.asked_for.insert(shadow_of(name));
        }
        // One that is marked is not in service yet.
        if text(node, "/metadata/labels/tier") != ORDER.1 || !is_ready(node) {
            return;
        }
        let marker = marker(node);
        if !marker.is_null() && !is_only_kept(&marker) {
            return;
        }
        let image = text(node, "/status/nodeInfo/osImage");
        self.canaries_ran.extend(image.split(' ').nth(2).map(str::to_owned));
    }

    /// A shadow is written, or deleted.
    pub(crate) fn shadow(&mut self, name: &str, after: Option<&Json>) {
        self.versions.shadow(name, after, self.now);
    }

    /// A slot is taken for a node whose update begins, and the ledger has these slots then.
    pub(crate) fn slot(&self, shadow: &str, slot: &Json, ledger: &Json) -> Vec<Violation> {
        let pool = text(slot, "/pool");
        let Some(state) = self.all.get(pool) else { return vec![] };
        let begins = Begins { shadow, version: text(slot, "/version"), at: text(slot, "/since") };
        let mut found: Vec<_> = self
            .forbidden(state, begins)
            .map(|(rule, why)| {
                Violation::new(rule, format!("{shadow} gets the slot {slot} of {pool}, {why}"))
            })
            .into_iter()
            .collect();
        let limits: Vec<_> =
            state.specs(self.now).filter_map(|spec| spec["maxUnavailable"].as_u64()).collect();
        let of_pool = || members(ledger, "/status/slots").filter(|(_, slot)| text(slot, "/pool") == pool);
        let slots = u64::try_from(of_pool().count()).unwrap_or(u64::MAX);
        if limits.iter().max().is_some_and(|limit| slots > *limit) {
            found.push(Violation::new("pool", format!("{slots} slots of {pool}, {limits:?} may be")));
        }
        // Who takes a slot of a pool knows the pool.
        let known: Vec<_> = state.specs(self.now).filter(|spec| !spec.is_null()).collect();
        let all = |says: fn(&Json) -> bool| !known.is_empty() && known.iter().all(|spec| says(spec));
        let is_ordered = |spec: &Json| spec["after"].as_array().is_some_and(|after| !after.is_empty());
        if pool == ORDER.0 && all(is_ordered) && !self.canaries_ran.contains(begins.version) {
            let said = format!("{shadow} gets a slot for {} before {}", begins.version, ORDER.1);
            found.push(Violation::new("order", said));
        }
        if all(|spec| text(spec, "/topology/mode") == "OneAtATime") {
            let others = of_pool().map(|(shadow, _)| shadow.as_str()).filter(|other| *other != shadow);
            let elsewhere = self.zones.elsewhere(shadow, others, |node| self.owns(pool, node), self.now);
            found.extend(
                elsewhere
                    .map(|why| Violation::new("zone", format!("{shadow} gets a slot of {pool}, and {why}"))),
            );
        }
        found
    }

    /// A Node is marked as ours, because it is about to be cordoned, while its shadow has this slot. Whether its pool lets it go
    /// on is looked at again before that.
    pub(crate) fn marked(&self, node: &Json, marker: &Json, slot: &Json) -> Option<Violation> {
        let (pool, name) = (text(slot, "/pool"), text(node, "/metadata/name"));
        // The pool of the slot may not be the Node's any more.
        let state = self.all.get(pool).filter(|_| self.owns(pool, node))?;
        // Where the pool is gone, another pool, or none, decides whether the update goes on.
        if state.specs(self.now).any(Json::is_null) {
            return None;
        }
        let times = ["/excluded_at", "/cordoned_at"].map(|field| text(marker, field));
        let begins = Begins {
            shadow: &shadow_of(name),
            version: text(slot, "/version"),
            at: times.into_iter().find(|at| !at.is_empty())?,
        };
        let (rule, why) = self.forbidden(state, begins)?;
        Some(Violation::new(rule, format!("{name} is marked {marker} for the slot {slot} of {pool}, {why}")))
    }

    /// Does no leader doubt that this pool owns this node?
    fn owns(&self, pool: &str, node: &Json) -> bool {
        let takes_all = |spec: &Json| spec["nodeSelector"] == serde_json::json!({});
        let is_taken = || {
            let others = self.all.iter().filter(|(name, _)| *name != pool);
            others.flat_map(|(_, state)| state.specs(self.now)).any(takes_all)
        };
        let labelled = self.labelled.get(text(node, "/metadata/name"));
        let is_known = |(_, since): &&(String, Duration)| self.now.saturating_sub(*since) > GRACE;
        labelled.filter(is_known).is_some_and(|(label, _)| label == pool) && !is_taken()
    }

    /// Why this must not begin in this pool, whatever of its specs a leader goes by: the rule, and what the latest says.
    fn forbidden(&self, state: &PoolState, begins: Begins<'_>) -> Option<(&'static str, String)> {
        let whys: Option<Vec<_>> = state.specs(self.now).map(|spec| self.why_not(spec, begins)).collect();
        whys?.into_iter().next()
    }

    fn why_not(&self, spec: &Json, begins: Begins<'_>) -> Option<(&'static str, String)> {
        let Begins { shadow, version, at } = begins;
        let asked_for = self.asked_for.contains(shadow);
        if spec.is_null() {
            return Some(("pool", "which is gone".to_owned()));
        }
        if spec["paused"] == true || (is_closed(spec, at) && !asked_for) {
            return Some(("pool", format!("which is {spec}")));
        }
        if let Some(why) = self.versions.why_not(spec, version, asked_for, self.now) {
            return Some(why);
        }
        let gated = spec["gates"].as_array().is_some_and(|gates| !gates.is_empty());
        let well = || at.parse::<Timestamp>().is_ok_and(|at| self.answers.are_good(at));
        (gated && !well()).then(|| ("gate", format!("whose source has answered {}", self.answers.before(at))))
    }
}

/// Do freezes and windows let nothing start at this time?
fn is_closed(spec: &Json, at: &str) -> bool {
    // The only freezes are for ever.
    let windows = spec["windows"].as_array().filter(|windows| !windows.is_empty());
    is_set(spec, "/freezes") || windows.is_some_and(|them| !them.iter().any(|it| is_open(it, at)))
}

/// Is a window open at this time? There are two kinds: an hour of the day, and a minute of two.
fn is_open(window: &Json, at: &str) -> bool {
    let number = |range: std::ops::Range<usize>| at.get(range).and_then(|digits| digits.parse::<u8>().ok());
    match text(window, "/schedule").split(' ').collect::<Vec<_>>()[..] {
        ["*/2", ..] => number(14..16).is_some_and(|minute| minute % 2 == 0),
        ["0", hour, ..] => number(11..13).is_some_and(|now| hour.parse() == Ok(now)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
