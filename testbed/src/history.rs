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
    /// There is a shadow. Without one, `spec` and `status` are as if they were empty.
    pub has_shadow: bool,
    /// There is a Node. Without one, so is it.
    pub has_node: bool,
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
    /// Version of `status.staged`.
    pub staged: Option<String>,
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
    /// The Node carries a marker that says more than that autoscalers are kept away.
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
    /// The same for each pool; the empty name stands for no pool.
    most_slots_of: BTreeMap<String, usize>,
}

/// What became of one node.
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

impl Seen {
    fn with_shadow(mut self, shadow: &BottlerocketShadow) -> Self {
        let status = shadow.status.clone().unwrap_or_default();
        self.has_shadow = true;
        self.goal = shadow.spec.state;
        self.target.clone_from(&shadow.spec.version);
        self.reached = status.current_state;
        self.version = status.current_version;
        self.available = status.target_version;
        self.crashes = status.crash_count.unwrap_or(0);
        self.staged = status.staged.map(|staged| staged.version);
        let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
        self.reason = progressing.map(|condition| condition.reason.clone()).unwrap_or_default();
        self
    }

    fn with_node(mut self, node: &Node) -> Self {
        self.has_node = true;
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        self.ready =
            conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        self.cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        self.excluded = node.labels().contains_key(EXCLUDE_FROM_LB_LABEL);
        let marker = node.annotations().get(MARKER_ANNOTATION).map(|text| Marker::parse(text).ok());
        self.marked = marker.as_ref().is_some_and(|read| !read.as_ref().is_some_and(Marker::is_kept));
        self.drained = marker.flatten().is_some_and(|read| read.drained_at.is_some());
        self.boot_id = status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.boot_id.clone())
            .unwrap_or_default();
        self
    }

    fn without_shadow(self) -> Self {
        let Self { has_node, ready, cordoned, excluded, drained, marked, boot_id, .. } = self;
        Self { has_node, ready, cordoned, excluded, drained, marked, boot_id, ..Self::default() }
    }

    fn without_node(self) -> Self {
        let Self { has_shadow, goal, target, reached, version, available, crashes, staged, reason, .. } =
            self;
        Self {
            has_shadow,
            goal,
            target,
            reached,
            version,
            available,
            crashes,
            staged,
            reason,
            ..Self::default()
        }
    }

    /// Out of service: pods cannot run there, or not be started there. Nobody counts on a Node that is not there.
    pub fn is_unavailable(&self) -> bool {
        self.has_node && (!self.ready || self.cordoned)
    }

    /// Idle, in service, on this version.
    pub fn runs(&self, version: &str) -> bool {
        self.is_idle() && self.has_node && !self.is_unavailable() && self.version.as_deref() == Some(version)
    }

    /// Nothing of an update is left.
    pub fn is_idle(&self) -> bool {
        self.goal == State::Idle && self.reached == Some(State::Idle) && !self.marked
    }
}

impl History {
    /// When a node, or what is known of one, last changed.
    pub fn last_change(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|seen| Some(seen.last()?.0)).max()
    }

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

    /// The shadow of this name is deleted.
    pub fn no_shadow(&mut self, at: Instant, name: &str) {
        if let Some(node) = names::node_of_shadow(name) {
            self.note(at, node, Seen::without_shadow);
        }
    }

    /// The Node of this name is deleted.
    pub fn no_node(&mut self, at: Instant, name: &str) {
        self.note(at, name, Seen::without_node);
    }

    /// The ledger was seen. A watch leaves out no version of it, unless it begins again.
    pub fn ledger(&mut self, ledger: &BottlerocketFleet) {
        let slots = ledger.status.as_ref().map_or(0, |status| status.slots.len());
        self.most_slots = self.most_slots.max(slots);
        let mut now = BTreeMap::<&str, usize>::new();
        for slot in ledger.status.iter().flat_map(|status| status.slots.values()) {
            *now.entry(slot.pool.as_deref().unwrap_or_default()).or_default() += 1;
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

    fn note(&mut self, at: Instant, node: &str, change: impl FnOnce(Seen) -> Seen) {
        let past = self.nodes.entry(node.to_owned()).or_default();
        let before = past.last().map(|(_, seen)| seen.clone());
        let after = change(before.clone().unwrap_or_default());
        if before.as_ref() != Some(&after) {
            past.push((at, after));
        }
    }

    /// What is known now of each node that has a Node or a shadow.
    pub fn now(&self) -> impl Iterator<Item = (&str, &Seen)> {
        let last = self.nodes.iter().filter_map(|(node, past)| Some((node.as_str(), &past.last()?.1)));
        last.filter(|(_, seen)| seen.has_shadow || seen.has_node)
    }

    /// What is known of this node now, if it has a Node or a shadow.
    pub fn of(&self, node: &str) -> Option<&Seen> {
        self.now().find(|(name, _)| *name == node).map(|(_, seen)| seen)
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
        self.nodes
            .values()
            .flatten()
            .map(|(at, _)| *at)
            .min()
            .map_or(0, |first| self.most_unavailable_since(first))
    }

    /// The most nodes that were out of service at once at that moment or later.
    pub fn most_unavailable_since(&self, since: Instant) -> usize {
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
        for (at, node, is) in changes {
            if at > since {
                most = most.max(count(&unavailable));
            }
            unavailable.insert(node, is);
        }
        most.max(count(&unavailable))
    }

    /// The first change of any spec to the last return to Idle.
    pub fn duration(&self) -> Option<Duration> {
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
    let duration = began(past).zip(ended(past)).map(|(began, ended)| ended.saturating_duration_since(began));
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
    Outcome {
        from: versions().next(),
        to: versions().next_back(),
        duration,
        drain,
        states,
        boots: boots.len(),
    }
}

#[cfg(test)]
mod tests;
