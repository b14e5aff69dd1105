//! What only the last pass of the leader knows.

use std::collections::BTreeMap;

use brupop_api::conditions::ConditionStatus;
use brupop_api::names::DEFAULT_POOL;
use brupop_core::cluster::Cluster;
use brupop_core::decide::Reason;
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::phases::update_known_since;
use brupop_core::rules::GateState;
use jiff::Timestamp;
use prometheus_client::registry::Registry;

use super::labels::{Named, label};
use super::{Labelled, MAX_POOLS, MAX_VERSIONS, gauge, gauges, of_releases};

/// The most gates of pools that get series of their own: those of the first pools by name.
const MAX_GATES: usize = 128;
/// The kinds of objects that may be left alone because they cannot be read.
const SKIPPED_KINDS: [&str; 5] = [
    "BottlerocketPool",
    "BottlerocketShadow",
    "Node",
    "Pod",
    "PodDisruptionBudget",
];

/// What the last pass knows.
#[derive(Clone, Debug, Default)]
pub struct LastPass {
    /// When it was.
    pub at: Timestamp,
    /// How many nodes may be updated at once.
    pub limit: u64,
    /// The nodes by what is said of them.
    pub nodes: BTreeMap<NodeGroup, i64>,
    /// By pool and reason, since when an update has been known that does not progress: of the oldest one, as it is written.
    pub waiting: BTreeMap<(String, &'static str), String>,
    /// How many nodes run Bottlerocket and are not opted in.
    pub not_opted_in: u64,
    /// How many objects of which kind cannot be read, and are left alone.
    pub skipped: BTreeMap<&'static str, i64>,
    /// For how many seconds the oldest slot has been held; `None` if no slot is in use.
    pub oldest_slot_seconds: Option<u64>,
    /// How many slots are held for longer than they may be, by the reason of their nodes.
    pub overdue: BTreeMap<&'static str, i64>,
    /// How many nodes we have taken out of service and cannot put back, because the API server takes no change of the Node or
    /// its shadow.
    pub denied_out_of_service: i64,
    /// The versions that are halted, and for which variant.
    pub halted: Vec<(String, String)>,
    /// Whether our admission rules were seen to be in force.
    pub admission_enforced: bool,
    /// How the gates of pools are that matter now: pool, gate, state.
    pub gates: Vec<(String, String, GateState)>,
    /// Whether upstream's operator was found, or it is not known any more that it is not here.
    pub other_operator: bool,
}

/// Nodes of which the same is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeGroup {
    /// Their pool; empty if two contend for them, or the fleet holds them.
    pub pool: String,
    /// Why their updates progress or wait.
    pub reason: &'static str,
    /// The version that their hosts run; empty if they have not reported.
    pub version: String,
}

impl LastPass {
    /// Counts an object of this kind that is left alone.
    pub fn skip(&mut self, kind: &'static str) {
        *self.skipped.entry(kind).or_default() += 1;
    }

    /// Counts the nodes, and what holds their updates, such as halts of versions. There may be thousands of nodes, so nothing
    /// is copied before it is counted. The views are in the order of the cluster's entries.
    pub fn count<'a>(
        &mut self,
        cluster: &'a Cluster,
        fleet: &FleetFacts<'a>,
        nodes: impl Iterator<Item = (&'a NodeView<'a>, &'a Reason<'a>)>,
    ) {
        let mut records = cluster.records.iter();
        let mut counts = BTreeMap::<(&str, &'static str, &str), i64>::new();
        let mut waiting = BTreeMap::<(&str, &'static str), &str>::new();
        for (view, reason) in nodes {
            let record = records
                .find(|(name, _)| *name == view.shadow_name)
                .map(|(_, record)| record);
            let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
            let word = reason.as_str();
            let version = view.shadow.and_then(|shadow| shadow.status.current_version);
            *counts
                .entry((pool, word, version.unwrap_or_default()))
                .or_default() += 1;
            let waits = view.shadow.is_some_and(|shadow| shadow.update().is_some())
                && reason.status() != ConditionStatus::True;
            if waits
                && let Some(since) = record.and_then(|record| update_known_since(record.shadow()?))
            {
                // All of them are written alike, so they compare as texts.
                let oldest = waiting.entry((pool, word)).or_insert(since);
                *oldest = since.min(*oldest);
            }
            self.oldest_slot_seconds = self.oldest_slot_seconds.max(view.time.slot_seconds);
            if matches!(reason, Reason::NodeChangesDenied(_)) && view.marked() {
                self.denied_out_of_service += 1;
            }
            if view.time.slot_overdue {
                *self.overdue.entry(word).or_default() += 1;
            }
        }
        let counts = counts.into_iter().map(|((pool, reason, version), nodes)| {
            (
                NodeGroup {
                    pool: pool.to_owned(),
                    reason,
                    version: version.to_owned(),
                },
                nodes,
            )
        });
        self.nodes = counts.collect();
        let halted = fleet.versions.iter().filter(|it| it.halted_at.is_some());
        self.halted = halted
            .map(|it| (it.version.clone(), it.variant.clone()))
            .collect();
        let waiting = waiting.into_iter();
        self.waiting = waiting
            .map(|((pool, reason), since)| ((pool.to_owned(), reason), since.to_owned()))
            .collect();
    }

    /// The pools of its nodes, sorted.
    pub(super) fn pools(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|group| group.pool.as_str())
    }

    /// The series of this pass, as they are now.
    pub(super) fn register(&self, registry: &mut Registry, now: Timestamp) {
        self.register_nodes(registry, now);
        registry.register(
            "brupop_slots_overdue",
            "Slots held for longer than the current step of their update may take, by reason",
            gauges("reason", self.overdue.clone()),
        );
        registry.register(
            "brupop_denied_nodes_out_of_service",
            "Nodes that are out of service for an update, while the API server refuses changes of the Node or its shadow",
            gauge(self.denied_out_of_service),
        );
        registry.register(
            "brupop_oldest_slot_seconds",
            "Seconds for which the oldest slot has been held; 0 if none is in use",
            gauge(self.oldest_slot_seconds.unwrap_or(0)),
        );
        registry.register(
            "brupop_gate_state",
            "1 for the state of each gate of a pool that has something to update, 0 for all others",
            self.gates(),
        );
        registry.register(
            "brupop_slots_limit",
            "Most updates at once",
            gauge(self.limit),
        );
        registry.register(
            "brupop_nodes_not_opted_in",
            "Nodes that run Bottlerocket and are not opted in, so that they are not updated",
            gauge(self.not_opted_in),
        );
        registry.register(
            "brupop_skipped_objects",
            "Objects that cannot be read, by kind",
            gauges(
                "kind",
                SKIPPED_KINDS.map(|kind| (kind, self.skipped.get(kind).copied().unwrap_or(0))),
            ),
        );
        registry.register(
            "brupop_halted_versions",
            "Halted versions, which too many nodes failed to reach, each for a variant",
            gauge(self.halted.len()),
        );
        registry.register(
            "brupop_version_halted",
            "1 for each version that is halted, by variant",
            of_releases(
                self.halted
                    .iter()
                    .map(|(version, variant)| (&**version, &**variant, 1)),
            ),
        );
        registry.register(
            "brupop_admission_enforced",
            "1 if the last dry runs showed that webhook and policy are enforced",
            gauge(self.admission_enforced),
        );
        registry.register(
            "brupop_other_operator",
            "1 if upstream's operator is installed, or this is not known, so that no update starts",
            gauge(self.other_operator),
        );
        registry.register(
            "brupop_last_pass_timestamp_seconds",
            "When the leader last decided for all nodes",
            gauge(self.at.as_second()),
        );
    }

    fn register_nodes(&self, registry: &mut Registry, now: Timestamp) {
        let pools = Named::first(self.pools(), MAX_POOLS).and(DEFAULT_POOL);
        let of_versions = self
            .nodes
            .iter()
            .map(|(group, nodes)| (group.version.as_str(), *nodes));
        let versions = Named::most_frequent(of_versions, MAX_VERSIONS);
        let (nodes, mut reasons) = (Labelled::<3>::default(), BTreeMap::<&str, i64>::new());
        for (
            NodeGroup {
                pool,
                reason,
                version,
            },
            number,
        ) in &self.nodes
        {
            let (pool, version) = (pools.label(pool), versions.label(version));
            let of = [
                ("pool", pool),
                ("reason", (*reason).to_owned()),
                ("bottlerocket_version", version),
            ];
            nodes.get_or_create_owned(&of).inc_by(*number);
            *reasons.entry(reason).or_default() += number;
        }
        let reasons = Reason::WORDS
            .iter()
            .map(|&word| (word, reasons.get(word).copied().unwrap_or(0)));
        registry.register(
            "brupop_nodes_reason",
            "Nodes, by the reason why their update progresses or waits",
            gauges("reason", reasons),
        );
        registry.register(
            "brupop_nodes",
            "Nodes, by pool, by the reason why their update progresses or waits, and by the version they run",
            nodes,
        );
        let waiting = Labelled::default();
        for ((pool, reason), since) in &self.waiting {
            let Ok(since) = since.parse::<Timestamp>() else {
                continue;
            };
            let oldest = waiting.get_or_create_owned(&[
                ("pool", pools.label(pool)),
                ("reason", (*reason).to_owned()),
            ]);
            oldest.set(oldest.get().max(now.duration_since(since).as_secs()));
        }
        registry.register(
            "brupop_oldest_waiting_update_seconds",
            "Seconds for which the oldest update that does not progress has been known, by pool and reason",
            waiting,
        );
    }

    /// A series for each state that each of these gates could have.
    fn gates(&self) -> Labelled<3> {
        let family = Labelled::default();
        for (pool, gate, is) in self.gates.iter().take(MAX_GATES) {
            for state in GateState::ALL {
                let of = [
                    ("pool", label(pool)),
                    ("gate", label(gate)),
                    ("state", state.as_str().to_owned()),
                ];
                family
                    .get_or_create(&of)
                    .set((state.as_str() == is.as_str()).into());
            }
        }
        family
    }
}
