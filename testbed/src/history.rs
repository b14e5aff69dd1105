//! What happened to a fleet, from the watch events of its shadows and Nodes: the demo's table and summary, and what
//! tests hold against the promises.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_api::names::{self, EXCLUDE_FROM_LB_LABEL, MARKER_ANNOTATION};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Marker, State};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

/// What is known of one node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Seen {
    /// `spec.state`
    pub goal: State,
    /// `spec.version`
    pub target: Option<String>,
    /// `status.current_state`
    pub reached: Option<State>,
    /// `status.current_version`
    pub version: Option<String>,
    /// `status.target_version`
    pub available: Option<String>,
    /// `status.crash_count`
    pub crashes: u64,
    /// Reason of the condition Progressing.
    pub reason: String,
    /// The Node is Ready.
    pub ready: bool,
    /// `spec.unschedulable` of the Node.
    pub cordoned: bool,
    /// The Node carries the label that keeps it out of load balancers.
    pub excluded: bool,
    /// The marker says so.
    pub drained: bool,
    /// The Node carries a marker.
    pub marked: bool,
    /// `status.nodeInfo.bootID` of the Node.
    pub boot_id: String,
}

/// The fleet's past, by node.
#[derive(Clone, Debug, Default)]
pub struct History {
    nodes: BTreeMap<String, Vec<(Instant, Seen)>>,
    /// The most slots that were ever taken.
    most_slots: usize,
}

/// What became of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version it began with.
    pub from: Option<String>,
    /// The version it ended with.
    pub to: Option<String>,
    /// From the first change of its spec to Idle again; `None` if it never began, or has not ended.
    pub took: Option<Duration>,
    /// Of this: from its cordon to the moment when it was seen empty.
    pub drain: Duration,
    /// Time for which each state was wanted.
    pub states: BTreeMap<State, Duration>,
    /// Boots that it went through, the first included.
    pub boots: usize,
}

impl Seen {
    fn with_shadow(mut self, shadow: &BottlerocketShadow) -> Self {
        let status = shadow.status.clone().unwrap_or_default();
        self.goal = shadow.spec.state;
        self.target.clone_from(&shadow.spec.version);
        self.reached = status.current_state;
        self.version = status.current_version;
        self.available = status.target_version;
        self.crashes = status.crash_count.unwrap_or(0);
        let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
        self.reason = progressing.map(|condition| condition.reason.clone()).unwrap_or_default();
        self
    }

    fn with_node(mut self, node: &Node) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        self.ready =
            conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        self.cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        self.excluded = node.labels().contains_key(EXCLUDE_FROM_LB_LABEL);
        let marker = node.annotations().get(MARKER_ANNOTATION);
        self.marked = marker.is_some();
        self.drained =
            marker.and_then(|text| Marker::parse(text).ok()).is_some_and(|m| m.drained_at.is_some());
        self.boot_id = status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.boot_id.clone())
            .unwrap_or_default();
        self
    }

    /// Out of service: pods cannot run there, or not be started there.
    pub fn is_unavailable(&self) -> bool {
        !self.ready || self.cordoned
    }

    /// Nothing of an update is left.
    pub fn is_idle(&self) -> bool {
        self.goal == State::Idle && self.reached == Some(State::Idle) && !self.marked
    }
}

impl History {
    /// A shadow was seen.
    pub fn shadow(&mut self, at: Instant, shadow: &BottlerocketShadow) {
        if let Some(node) = names::node_of_shadow(&shadow.name_any()) {
            self.note(at, node, |seen| seen.with_shadow(shadow));
        }
    }

    /// A Node was seen.
    pub fn node(&mut self, at: Instant, node: &Node) {
        self.note(at, &node.name_any(), |seen| seen.with_node(node));
    }

    /// The ledger was seen. A watch leaves out no version of it, unless it begins anew.
    pub fn ledger(&mut self, ledger: &BottlerocketFleet) {
        let slots = ledger.status.as_ref().map_or(0, |status| status.slots.len());
        self.most_slots = self.most_slots.max(slots);
    }

    /// The most slots that were ever taken at once.
    pub fn most_slots(&self) -> usize {
        self.most_slots
    }

    fn note(&mut self, at: Instant, node: &str, change: impl FnOnce(Seen) -> Seen) {
        let past = self.nodes.entry(node.to_owned()).or_default();
        let before = past.last().map(|(_, seen)| seen.clone());
        let after = change(before.clone().unwrap_or_default());
        if before.as_ref() != Some(&after) {
            past.push((at, after));
        }
    }

    /// What is known of each node now.
    pub fn now(&self) -> impl Iterator<Item = (&str, &Seen)> {
        self.nodes.iter().filter_map(|(node, past)| Some((node.as_str(), &past.last()?.1)))
    }

    /// What was seen of this node, in order, and since when.
    pub fn past(&self, node: &str) -> &[(Instant, Seen)] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    /// Was this node ever seen so?
    pub fn has_seen(&self, node: &str, so: impl Fn(&Seen) -> bool) -> bool {
        self.nodes.get(node).is_some_and(|past| past.iter().any(|(_, seen)| so(seen)))
    }

    /// The updates that this node began, in order: when its spec left Idle, and when nothing of the update was left.
    pub fn updates(&self, node: &str) -> Vec<(Instant, Option<Instant>)> {
        let mut updates: Vec<(Instant, Option<Instant>)> = Vec::new();
        for (at, seen) in self.nodes.get(node).into_iter().flatten() {
            let running = updates.last_mut().filter(|(_, ended)| ended.is_none());
            match running {
                Some((_, ended)) if seen.is_idle() => *ended = Some(*at),
                None if seen.goal != State::Idle => updates.push((*at, None)),
                _ => {}
            }
        }
        updates
    }

    /// The most nodes that were ever out of service at once.
    pub fn most_unavailable(&self) -> usize {
        let mut changes: Vec<(Instant, &str, bool)> = self
            .nodes
            .iter()
            .flat_map(|(node, past)| {
                past.iter().map(|(at, seen)| (*at, node.as_str(), seen.is_unavailable()))
            })
            .collect();
        changes.sort_by_key(|(at, _, _)| *at);
        let mut unavailable: BTreeMap<&str, bool> = BTreeMap::new();
        let count = |unavailable: &BTreeMap<&str, bool>| unavailable.values().filter(|is| **is).count();
        let mut most = 0;
        for (_, node, is) in changes {
            unavailable.insert(node, is);
            most = most.max(count(&unavailable));
        }
        most
    }

    /// The first change of any spec to the last return to Idle.
    pub fn took(&self) -> Option<Duration> {
        let began = self.nodes.values().filter_map(|past| began(past)).min()?;
        let ended = self.nodes.values().filter_map(|past| ended(past)).max()?;
        Some(ended.saturating_duration_since(began))
    }

    /// What became of each node.
    pub fn outcomes(&self) -> BTreeMap<String, Outcome> {
        self.nodes.iter().map(|(node, past)| (node.clone(), outcome(past))).collect()
    }
}

fn began(past: &[(Instant, Seen)]) -> Option<Instant> {
    past.iter().find(|(_, seen)| seen.goal != State::Idle).map(|(at, _)| *at)
}

fn ended(past: &[(Instant, Seen)]) -> Option<Instant> {
    let last_busy = past.iter().rposition(|(_, seen)| seen.goal != State::Idle)?;
    past[last_busy..].iter().find(|(_, seen)| seen.is_idle()).map(|(at, _)| *at)
}

fn outcome(past: &[(Instant, Seen)]) -> Outcome {
    let versions = || past.iter().filter_map(|(_, seen)| seen.version.clone());
    let took = began(past).zip(ended(past)).map(|(began, ended)| ended.saturating_duration_since(began));
    let mut states: BTreeMap<State, Duration> = BTreeMap::new();
    let mut drain = Duration::ZERO;
    for pair in past.windows(2) {
        let ((from, seen), (to, _)) = (&pair[0], &pair[1]);
        let lasted = to.saturating_duration_since(*from);
        if seen.goal != State::Idle {
            *states.entry(seen.goal).or_default() += lasted;
        }
        if seen.goal == State::StagedAndPerformedUpdate && seen.cordoned && seen.marked && !seen.drained {
            drain += lasted;
        }
    }
    let mut boots: Vec<&str> =
        past.iter().map(|(_, seen)| seen.boot_id.as_str()).filter(|boot| !boot.is_empty()).collect();
    boots.dedup();
    Outcome { from: versions().next(), to: versions().next_back(), took, drain, states, boots: boots.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(rows: &[(u64, Seen)]) -> Vec<(Instant, Seen)> {
        let zero = Instant::now();
        rows.iter().map(|(millis, seen)| (zero + Duration::from_millis(*millis), seen.clone())).collect()
    }

    fn seen(goal: State, reached: State) -> Seen {
        Seen { goal, reached: Some(reached), ready: true, boot_id: "a".into(), ..Seen::default() }
    }

    #[test]
    fn an_update_is_timed_from_its_first_change_to_idle() {
        use State::{Idle, MonitoringUpdate, StagedAndPerformedUpdate};
        let staged = || seen(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        let past = past(&[
            (0, seen(Idle, Idle)),
            (100, seen(StagedAndPerformedUpdate, Idle)),
            (300, Seen { cordoned: true, marked: true, ..staged() }),
            (350, Seen { cordoned: true, marked: true, drained: true, ..staged() }),
            (600, Seen { boot_id: "b".into(), ..seen(MonitoringUpdate, MonitoringUpdate) }),
            (700, Seen { boot_id: "b".into(), ..seen(Idle, MonitoringUpdate) }),
            (800, Seen { boot_id: "b".into(), ..seen(Idle, Idle) }),
        ]);
        let outcome = outcome(&past);
        assert_eq!(outcome.took, Some(Duration::from_millis(700)));
        assert_eq!(outcome.drain, Duration::from_millis(50));
        assert_eq!(outcome.states[&StagedAndPerformedUpdate], Duration::from_millis(500));
        assert_eq!(outcome.boots, 2);
    }

    #[test]
    fn updates_are_told_apart() {
        use State::{Idle, StagedAndPerformedUpdate};
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let marked = Seen { marked: true, ..seen(Idle, Idle) };
        let rows = [
            (0, seen(Idle, Idle)),
            (10, seen(StagedAndPerformedUpdate, Idle)),
            (20, seen(StagedAndPerformedUpdate, StagedAndPerformedUpdate)),
            (30, seen(Idle, StagedAndPerformedUpdate)),
            (40, marked),
            (50, seen(Idle, Idle)),
            (60, seen(StagedAndPerformedUpdate, Idle)),
        ];
        let mut history = History::default();
        history.nodes.insert("a".into(), rows.map(|(millis, seen)| (at(millis), seen)).into());
        assert_eq!(history.updates("a"), [(at(10), Some(at(50))), (at(60), None)]);
        assert_eq!(history.updates("b"), []);
    }

    #[test]
    fn nodes_out_of_service_are_counted_at_every_moment() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let away = |is| Seen { cordoned: is, ..seen(State::Idle, State::Idle) };
        let mut history = History::default();
        history
            .nodes
            .insert("a".into(), vec![(at(0), away(false)), (at(10), away(true)), (at(20), away(false))]);
        history
            .nodes
            .insert("b".into(), vec![(at(0), away(false)), (at(20), away(true)), (at(40), away(false))]);
        history
            .nodes
            .insert("c".into(), vec![(at(0), away(false)), (at(30), away(true)), (at(35), away(false))]);
        assert_eq!(history.most_unavailable(), 2);
    }
}
