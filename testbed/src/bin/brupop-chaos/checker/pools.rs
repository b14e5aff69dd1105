//! What pools say must hold of each slot that is taken and each Node that is marked, for what people said long enough ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value as Json;

use super::json::{UPDATE_NOW, is_only_kept, is_ready, is_set, marker, members, shadow_of, text};
use super::{GRACE, Violation};

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
        while self
            .0
            .get(1)
            .is_some_and(|(since, _)| now.saturating_sub(*since) > GRACE)
        {
            self.0.pop_front();
        }
    }

    /// Returns what a leader may go by now; the latest is the first.
    fn specs(&self, now: Duration) -> impl Iterator<Item = &Json> {
        let replaced = |nth: usize| self.0.get(nth + 1).map(|(since, _)| *since);
        let may_be_believed =
            move |nth: usize| replaced(nth).is_none_or(|at| now.saturating_sub(at) <= GRACE);
        let known = self
            .0
            .iter()
            .enumerate()
            .rev()
            .filter(move |(nth, _)| may_be_believed(*nth));
        known.map(|(_, (_, spec))| spec)
    }
}

/// The pools after a revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    all: BTreeMap<String, PoolState>,
    /// The shadows of Nodes whose update somebody has ever asked for.
    asked_for: BTreeSet<String>,
    /// Versions that a node in service has run, of those that were labelled for the pool that goes first.
    canaries_ran: BTreeSet<String>,
    /// The pool that each Node is labelled for, and since when.
    labelled: BTreeMap<String, (String, Duration)>,
    /// Since the checker began.
    pub(crate) now: Duration,
}

impl Pools {
    /// etcd was restored, and what `forgotten` knows of later is forgotten; but not what has happened outside of it.
    pub(crate) fn go_back(&mut self, forgotten: Self) {
        self.asked_for.extend(forgotten.asked_for);
        self.canaries_ran.extend(forgotten.canaries_ran);
    }

    /// A pool is written, or deleted.
    pub(crate) fn pool(&mut self, name: &str, after: Option<&Json>) {
        let spec = after.map_or(GONE, |after| after["spec"].clone());
        self.all
            .entry(name.to_owned())
            .or_default()
            .says(spec, self.now);
    }

    /// A Node is written, or deleted.
    pub(crate) fn node(&mut self, name: &str, after: Option<&Json>) {
        let Some(node) = after else {
            self.labelled.remove(name);
            return;
        };
        let label = text(node, "/metadata/labels/tier");
        if self.labelled.get(name).is_none_or(|(was, _)| was != label) {
            self.labelled
                .insert(name.to_owned(), (label.to_owned(), self.now));
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
        self.canaries_ran
            .extend(image.split(' ').nth(2).map(str::to_owned));
    }

    /// A slot is taken for a node whose update begins, and the ledger has these slots then.
    pub(crate) fn slot(&self, shadow: &str, slot: &Json, ledger: &Json) -> Vec<Violation> {
        let pool = text(slot, "/pool");
        let Some(state) = self.all.get(pool) else {
            return vec![];
        };
        let why = self.forbidden(state, shadow, text(slot, "/since"));
        let said = why.map(|why| format!("{shadow} gets the slot {slot} of {pool}, {why}"));
        let mut found: Vec<_> = said
            .into_iter()
            .map(|said| Violation::new("pool", said))
            .collect();
        let limits: Vec<_> = state
            .specs(self.now)
            .filter_map(|spec| spec["maxUnavailable"].as_u64())
            .collect();
        let of_pool =
            || members(ledger, "/status/slots").filter(|(_, slot)| text(slot, "/pool") == pool);
        let slots = u64::try_from(of_pool().count()).unwrap_or(u64::MAX);
        if limits.iter().max().is_some_and(|limit| slots > *limit) {
            found.push(Violation::new(
                "pool",
                format!("{slots} slots of {pool}, {limits:?} may be"),
            ));
        }
        // Who takes a slot of a pool knows the pool.
        let mut known = state
            .specs(self.now)
            .filter(|spec| !spec.is_null())
            .peekable();
        let is_ordered = |spec: &Json| {
            spec["dependsOn"]
                .as_array()
                .is_some_and(|after| !after.is_empty())
        };
        let version = text(slot, "/version");
        if pool == ORDER.0
            && known.peek().is_some()
            && known.all(is_ordered)
            && !self.canaries_ran.contains(version)
        {
            let said = format!("{shadow} gets a slot for {version} before {}", ORDER.1);
            found.push(Violation::new("order", said));
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
        let at = times.into_iter().find(|at| !at.is_empty())?;
        let why = self.forbidden(state, &shadow_of(name), at)?;
        Some(Violation::new(
            "pool",
            format!("{name} is marked {marker} for the slot {slot} of {pool}, {why}"),
        ))
    }

    /// Whether every leader must agree that this pool owns this node.
    fn owns(&self, pool: &str, node: &Json) -> bool {
        let takes_all = |spec: &Json| spec["nodeSelector"] == serde_json::json!({});
        let is_taken = || {
            let others = self.all.iter().filter(|(name, _)| *name != pool);
            others
                .flat_map(|(_, state)| state.specs(self.now))
                .any(takes_all)
        };
        let labelled = self.labelled.get(text(node, "/metadata/name"));
        let is_known = |(_, since): &&(String, Duration)| self.now.saturating_sub(*since) > GRACE;
        labelled
            .filter(is_known)
            .is_some_and(|(label, _)| label == pool)
            && !is_taken()
    }

    /// Returns why this update must not begin in this pool at this time of the leader's clock, which is ours, whatever of the
    /// pool's specs the leader goes by: what the latest says.
    fn forbidden(&self, state: &PoolState, shadow: &str, at: &str) -> Option<String> {
        let asked_for = self.asked_for.contains(shadow);
        let why_not = |spec: &Json| match spec {
            Json::Null => Some("which is gone".to_owned()),
            spec if spec["paused"] == true || (is_closed(spec, at) && !asked_for) => {
                Some(format!("which is {spec}"))
            }
            _ => None,
        };
        let whys: Option<Vec<_>> = state.specs(self.now).map(why_not).collect();
        whys?.into_iter().next()
    }
}

/// Whether freezes or windows let nothing start at this time.
fn is_closed(spec: &Json, at: &str) -> bool {
    // The only freezes are for ever.
    let windows = spec["windows"]
        .as_array()
        .filter(|windows| !windows.is_empty());
    is_set(spec, "/freezes") || windows.is_some_and(|them| !them.iter().any(|it| is_open(it, at)))
}

/// Is a window open at this time? There are two kinds: an hour of the day, and a minute of two.
fn is_open(window: &Json, at: &str) -> bool {
    let number =
        |range: std::ops::Range<usize>| at.get(range).and_then(|digits| digits.parse::<u8>().ok());
    match text(window, "/schedule").split(' ').collect::<Vec<_>>()[..] {
        ["*/2", ..] => number(14..16).is_some_and(|minute| minute % 2 == 0),
        ["0", hour, ..] => number(11..13).is_some_and(|now| hour.parse() == Ok(now)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
