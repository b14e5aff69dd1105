//! The history of a fleet, from the watch events of its shadows and Nodes: the demo's table and summary, and what
//! tests hold against the promises.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_api::{BottlerocketFleet, BottlerocketShadow, State, names};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

mod seen;
#[cfg(test)]
mod tests;

use seen::Objects;
pub use seen::Seen;

/// The fleet's past, by node.
#[derive(Clone, Debug, Default)]
pub struct History {
    objects: BTreeMap<String, Objects>,
    nodes: BTreeMap<String, Vec<(Instant, Seen)>>,
    /// The most slots that were ever taken.
    most_slots: usize,
    /// The same for each pool; the empty name stands for no pool.
    most_slots_of: BTreeMap<String, usize>,
}

/// The outcome of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version it began with.
    pub from: Option<String>,
    /// The version it ended with.
    pub to: Option<String>,
    /// From the first change of its spec to Idle again; `None` if it never began, or has not ended.
    pub duration: Option<Duration>,
    /// Of this: from its cordon to the moment when it was seen empty.
    pub drain: Duration,
    /// Time for which each state was wanted.
    pub states: BTreeMap<State, Duration>,
    /// Boots that it went through, the first included.
    pub boots: usize,
}

impl History {
    /// When a node, or what is known of one, last changed.
    pub fn last_change(&self) -> Option<Instant> {
        self.moments().max()
    }

    pub fn shadow(&mut self, at: Instant, shadow: &BottlerocketShadow) {
        if let Some(node) = names::node_of_shadow(&shadow.name_any()) {
            self.note(at, node, |objects| objects.0 = Some(shadow.clone()));
        }
    }

    pub fn node(&mut self, at: Instant, node: &Node) {
        self.note(at, &node.name_any(), |objects| {
            objects.1 = Some(node.clone());
        });
    }

    /// The shadow of this name is deleted.
    pub fn no_shadow(&mut self, at: Instant, name: &str) {
        if let Some(node) = names::node_of_shadow(name) {
            self.note(at, node, |objects| objects.0 = None);
        }
    }

    /// The Node of this name is deleted.
    pub fn no_node(&mut self, at: Instant, name: &str) {
        self.note(at, name, |objects| objects.1 = None);
    }

    /// The ledger was seen. A watch leaves out no version of it, unless it begins again.
    pub fn ledger(&mut self, ledger: &BottlerocketFleet) {
        let slots = ledger.status.iter().flat_map(|it| it.slots.values());
        self.most_slots = self.most_slots.max(slots.clone().count());
        let mut now = BTreeMap::<&str, usize>::new();
        for slot in slots {
            let pool = slot.pool.as_deref().unwrap_or_default();
            *now.entry(pool).or_default() += 1;
        }
        for (pool, slots) in now {
            let most = self.most_slots_of.entry(pool.to_owned()).or_default();
            *most = slots.max(*most);
        }
    }

    /// The most slots that were ever taken at once.
    pub fn most_slots(&self) -> usize {
        self.most_slots
    }

    /// The most slots that nodes of this pool ever had at once; of those without a pool, for the empty name.
    pub fn most_slots_of(&self, pool: &str) -> usize {
        self.most_slots_of.get(pool).copied().unwrap_or(0)
    }

    fn note(&mut self, at: Instant, node: &str, change: impl FnOnce(&mut Objects)) {
        let objects = self.objects.entry(node.to_owned()).or_default();
        change(objects);
        let (past, after) = (
            self.nodes.entry(node.to_owned()).or_default(),
            Seen::of(objects),
        );
        if past.last().is_none_or(|(_, before)| *before != after) {
            past.push((at, after));
        }
    }

    /// Returns what is known now of each node that has a Node or a shadow.
    pub fn now(&self) -> impl Iterator<Item = (&str, &Seen)> {
        let last = self
            .nodes
            .iter()
            .filter_map(|(node, past)| Some((node.as_str(), &past.last()?.1)));
        last.filter(|(_, seen)| seen.has_shadow || seen.has_node)
    }

    /// Returns what is known of this node now, if it has a Node or a shadow.
    pub fn of(&self, node: &str) -> Option<&Seen> {
        self.now()
            .find(|(name, _)| *name == node)
            .map(|(_, seen)| seen)
    }

    /// Returns what was seen of this node, in order, and since when.
    pub fn past(&self, node: &str) -> &[(Instant, Seen)] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether this node was ever seen in such a state.
    pub fn has_seen(&self, node: &str, so: impl Fn(&Seen) -> bool) -> bool {
        self.past(node).iter().any(|(_, seen)| so(seen))
    }

    /// The updates that this node began, in order: when its spec left Idle, and when nothing of the update was left.
    pub fn updates(&self, node: &str) -> Vec<(Instant, Option<Instant>)> {
        updates(self.past(node))
    }

    /// The most nodes that were ever out of service at once.
    pub fn most_unavailable(&self) -> usize {
        self.moments()
            .min()
            .map_or(0, |first| self.most_unavailable_since(first))
    }

    /// The most nodes that were out of service at once at that moment or later.
    pub fn most_unavailable_since(&self, since: Instant) -> usize {
        let is_away = |past: &Vec<(Instant, Seen)>, moment| {
            let then = past.iter().rfind(|(at, _)| *at <= moment);
            then.is_some_and(|(_, seen)| seen.is_unavailable())
        };
        let away = |moment| {
            let pasts = self.nodes.values();
            pasts.filter(|past| is_away(past, moment)).count()
        };
        let later = self.moments().filter(|at| *at > since);
        later.map(away).max().unwrap_or(0).max(away(since))
    }

    /// When anything changed.
    fn moments(&self) -> impl Iterator<Item = Instant> {
        self.nodes.values().flatten().map(|(at, _)| *at)
    }

    /// The first change of any spec to the last return to Idle.
    pub fn duration(&self) -> Option<Duration> {
        let updates = self.nodes.values().flat_map(|past| updates(past));
        let (began, ended): (Vec<_>, Vec<_>) = updates.unzip();
        let ended = ended.into_iter().flatten().max()?;
        Some(ended.saturating_duration_since(began.into_iter().min()?))
    }

    /// Returns what became of each node.
    pub fn outcomes(&self) -> BTreeMap<String, Outcome> {
        self.nodes
            .iter()
            .map(|(node, past)| (node.clone(), outcome(past)))
            .collect()
    }
}

fn updates(past: &[(Instant, Seen)]) -> Vec<(Instant, Option<Instant>)> {
    let mut updates: Vec<(Instant, Option<Instant>)> = Vec::new();
    for (at, seen) in past {
        let running = updates.last_mut().filter(|(_, ended)| ended.is_none());
        match running {
            Some((_, ended)) if seen.is_idle() => *ended = Some(*at),
            None if seen.goal != State::Idle => updates.push((*at, None)),
            _ => {}
        }
    }
    updates
}

fn outcome(past: &[(Instant, Seen)]) -> Outcome {
    let versions = || past.iter().filter_map(|(_, seen)| seen.version.clone());
    let updates = updates(past);
    let (first, last) = (updates.first(), updates.last());
    let duration = first
        .zip(last.and_then(|last| last.1))
        .map(|(first, ended)| ended.saturating_duration_since(first.0));
    let mut states: BTreeMap<State, Duration> = BTreeMap::new();
    let mut drain = Duration::ZERO;
    for pair in past.windows(2) {
        let ((from, seen), (to, _)) = (&pair[0], &pair[1]);
        let lasted = to.saturating_duration_since(*from);
        if seen.goal != State::Idle {
            *states.entry(seen.goal).or_default() += lasted;
        }
        if seen.goal == State::StagedAndPerformedUpdate
            && seen.cordoned
            && seen.marked
            && !seen.drained
        {
            drain += lasted;
        }
    }
    let mut boots: Vec<&str> = past
        .iter()
        .map(|(_, seen)| seen.boot_id.as_str())
        .filter(|boot| !boot.is_empty())
        .collect();
    boots.dedup();
    Outcome {
        from: versions().next(),
        to: versions().next_back(),
        duration,
        drain,
        states,
        boots: boots.len(),
    }
}
