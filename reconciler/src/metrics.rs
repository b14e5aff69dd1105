//! The metrics: gauges, computed at each scrape from the cluster and the last pass, counters and histograms.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brupop_api::conditions::ConditionStatus;
use brupop_api::crds::VERSION_MAX;
use brupop_api::names::DEFAULT_POOL;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketShadow, State};
use brupop_core::cluster::Cluster;
use brupop_core::decide::Reason;
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::phases::{Ended, Phase, results, update_known_since};
use brupop_core::rules::GateState;
use brupop_runtime::metrics::{self, ProcessMetrics};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

const HELP: &str = "\
brupop_leader: 1 if this process leads
brupop_writes: Writes to the API server
brupop_evictions: Evictions, by the API server's response
brupop_watch_failures: Times that a watch failed
brupop_updates: Updates that have given their slot back, by what became of them
brupop_updated_nodes_removed: Nodes that were deleted soon after their update
brupop_updated_without_workloads: Updates that ended although a workload had not come back in time, by pool
brupop_update_duration: From the slot to its end, of updates that reached their version
brupop_update_phase_duration: How long each phase of an update took that came to its end
brupop_hosts_state: Bottlerocket hosts by state
brupop_hosts_version: Bottlerocket hosts by version
brupop_nodes_failed: Nodes whose last update failed and that do not run its version, by reason
brupop_slots_in_use: Updates under way
brupop_version_failures: Nodes that failed to reach a version since it was last resumed, by variant; at most eight
brupop_slots_overdue: Slots held for longer than the current step of their update may take, by reason
brupop_denied_nodes_out_of_service: Nodes that are out of service for an update, while the API server refuses changes of the Node or its shadow
brupop_oldest_slot_seconds: Seconds for which the oldest slot has been held; 0 if none is in use
brupop_gate_state: 1 for the state of each gate of a pool that has something to update, 0 for all others
brupop_slots_limit: Most updates at once
brupop_nodes_not_opted_in: Nodes that run Bottlerocket and are not opted in, so that they are not updated
brupop_skipped_objects: Objects that cannot be read, by kind
brupop_halted_versions: Halted versions, which too many nodes failed to reach, each for a variant of which a Ready node wants it
brupop_version_halted: 1 for each version that is halted while a Ready node wants it, by variant
brupop_admission_enforced: 1 if the last dry runs showed that webhook and policy are enforced
brupop_other_operator: 1 if upstream's operator is installed, or this is not known, so that no update starts
brupop_last_pass_timestamp_seconds: When the leader last decided for all nodes
brupop_nodes_reason: Nodes, by the reason why their update progresses or waits
brupop_nodes: Nodes, by pool, by the reason why their update progresses or waits, and by the version they run
brupop_oldest_waiting_update_seconds: Seconds for which the oldest update that does not progress has been known, by pool and reason";

/// The most versions that get a series of their own, those of most hosts. Versions come from agents, and a fleet runs a
/// handful.
const MAX_VERSIONS: usize = 32;
/// The most pools that get series of their own.
const MAX_POOLS: usize = 50;
/// The most reasons of failures with a series of their own. The words are ours, or those of an earlier release.
const MAX_FAILURES: usize = 32;
/// The most gates of pools that get series of their own: those of the first pools by name.
const MAX_GATES: usize = 128;
/// The value of a label for all that have no series of their own.
const OTHER: &str = "other";
/// The kinds of objects that may be left alone because they cannot be read.
const SKIPPED_KINDS: [&str; 5] = [
    "BottlerocketPool",
    "BottlerocketShadow",
    "Node",
    "Pod",
    "PodDisruptionBudget",
];
/// Upper bounds of the buckets of updates and their phases, in seconds: a reboot takes a minute, a wave of updates weeks.
const BUCKETS: [f64; 18] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    43_200.0, 86_400.0, 259_200.0, 604_800.0, 1.8144e6,
];

/// The reconciler's metrics. Clones share one state.
#[derive(Clone, Debug)]
pub struct Metrics {
    writes: Family<[(&'static str, &'static str); 2], Counter>,
    evictions: Family<Label, Counter>,
    updates: Family<Label, Counter>,
    removed: Counter,
    without_workloads: Family<[(&'static str, String); 1], Counter>,
    /// The first [`MAX_POOLS`] pools that this process sees have series of their own.
    pools: Arc<Mutex<BTreeSet<String>>>,
    /// Durations of updates and of their phases.
    update_duration: Histogram,
    phase_durations: Family<Label, Histogram, fn() -> Histogram>,
    /// Metrics that all programs have.
    pub process: ProcessMetrics,
    /// `None` while this process does not lead.
    last_pass: Arc<Mutex<Option<LastPass>>>,
}

/// One label of a fixed set of words.
type Label = [(&'static str, &'static str); 1];

type Labelled<const N: usize> = Family<[(&'static str, String); N], Gauge>;

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self {
            writes: Family::default(),
            evictions: Family::default(),
            updates: Family::default(),
            removed: Counter::default(),
            without_workloads: Family::default(),
            pools: Arc::new(Mutex::new([DEFAULT_POOL, OTHER].map(str::to_owned).into())),
            update_duration: histogram(),
            phase_durations: Family::new_with_constructor(histogram),
            process: ProcessMetrics::default(),
            last_pass: Arc::default(),
        }
    }
}

impl Metrics {
    /// Counts a request, by what it wrote and what came of it.
    pub fn wrote(&self, object: &'static str, result: &'static str) {
        let of = [("object", object), ("result", result)];
        self.writes.get_or_create(&of).inc();
    }

    /// Counts an eviction, by its answer.
    pub fn evicted(&self, result: &'static str) {
        self.evictions.get_or_create(&[("result", result)]).inc();
    }

    /// Counts what a write has ended.
    pub fn ended(&self, ended: &Ended) {
        match ended {
            Ended::Phase(phase, took) => {
                let of_phase = self
                    .phase_durations
                    .get_or_create(&[("phase", phase.as_str())]);
                of_phase.observe(took.as_secs_f64());
            }
            Ended::Removed => drop(self.removed.inc()),
            Ended::WithoutWorkloads(pool) => {
                let is_told_apart = locked(&self.pools).contains(pool);
                let pool = if is_told_apart { pool } else { OTHER };
                let of = self
                    .without_workloads
                    .get_or_create_owned(&[("pool", label(pool))]);
                of.inc();
            }
            Ended::Update { result, took } => {
                self.updates.get_or_create(&[("result", *result)]).inc();
                if let Some(took) = took {
                    self.update_duration.observe(took.as_secs_f64());
                }
            }
        }
    }

    /// Keeps what the last pass knows; `None` if this process does not lead any more.
    pub fn passed(&self, pass: Option<LastPass>) {
        if let Some(pass) = &pass {
            let mut pools = locked(&self.pools);
            for pool in pass.pools() {
                if pools.len() < MAX_POOLS && !pools.contains(pool) {
                    pools.insert(pool.to_owned());
                }
            }
        }
        *locked(&self.last_pass) = pass;
    }

    /// All metrics as text. Every replica counts hosts, because each watches all of them. Only the leader shows what
    /// was decided.
    pub fn render(&self, cluster: Option<&Cluster>, watch_failures: u64, now: Timestamp) -> String {
        let mut registry = Registry::default();
        let pass = locked(&self.last_pass).clone();
        put(&mut registry, "brupop_leader", gauge(pass.is_some()));
        self.register_counters(&mut registry, watch_failures);
        if let Some(cluster) = cluster {
            register_hosts(&mut registry, cluster);
        }
        if let Some(pass) = pass {
            pass.register(&mut registry, now);
        }
        metrics::text(&registry)
    }

    /// A counter that is not there before its first event would hide that event from `increase`, so those of updates all are there, for each result, phase and pool.
    fn register_counters(&self, registry: &mut Registry, watch_failures: u64) {
        for result in results() {
            drop(self.updates.get_or_create(&[("result", result)]));
        }
        for phase in Phase::ALL {
            drop(
                self.phase_durations
                    .get_or_create(&[("phase", phase.as_str())]),
            );
        }
        let failures = Counter::<u64>::default();
        failures.inc_by(watch_failures);
        for pool in &*locked(&self.pools) {
            drop(
                self.without_workloads
                    .get_or_create_owned(&[("pool", label(pool))]),
            );
        }
        let without_workloads = self.without_workloads.clone();
        self.process
            .register(registry.sub_registry_with_prefix("brupop"));
        put(registry, "brupop_writes", self.writes.clone());
        put(registry, "brupop_evictions", self.evictions.clone());
        put(registry, "brupop_watch_failures", failures);
        put(registry, "brupop_updates", self.updates.clone());
        put(
            registry,
            "brupop_updated_nodes_removed",
            self.removed.clone(),
        );
        put(
            registry,
            "brupop_updated_without_workloads",
            without_workloads,
        );
        let (updates, phases) = (self.update_duration.clone(), self.phase_durations.clone());
        put_seconds(registry, "brupop_update_duration", updates);
        put_seconds(registry, "brupop_update_phase_duration", phases);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn help(name: &str) -> &'static str {
    let mut lines = HELP.lines().filter_map(|line| line.split_once(": "));
    lines
        .find(|(of, _)| *of == name)
        .map_or("", |(_, help)| help)
}

fn put(registry: &mut Registry, name: &str, metric: impl Metric) {
    registry.register(name, help(name), metric);
}

fn put_seconds(registry: &mut Registry, name: &str, metric: impl Metric) {
    registry.register_with_unit(name, help(name), Unit::Seconds, metric);
}

fn gauge(value: impl TryInto<i64>) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(value.try_into().unwrap_or(i64::MAX));
    gauge
}

/// A gauge for each value of the label.
fn gauges<V: Into<String>, N: TryInto<i64>>(
    label: &'static str,
    numbers: impl IntoIterator<Item = (V, N)>,
) -> Labelled<1> {
    let family = Labelled::default();
    for (value, number) in numbers {
        let of = family.get_or_create_owned(&[(label, value.into())]);
        of.set(number.try_into().unwrap_or(i64::MAX));
    }
    family
}

/// A gauge for each version and variant.
fn of_releases<'a, N: TryInto<i64>>(
    numbers: impl Iterator<Item = (&'a str, &'a str, N)>,
) -> Labelled<2> {
    let family = Labelled::default();
    for (version, variant, number) in numbers {
        let version = ("bottlerocket_version", label(version));
        let of = family.get_or_create_owned(&[version, ("bottlerocket_variant", label(variant))]);
        of.set(number.try_into().unwrap_or(i64::MAX));
    }
    family
}

/// Metrics of every replica: hosts, failures, the ledger, which itself limits how many slots and versions there are.
fn register_hosts(registry: &mut Registry, cluster: &Cluster) {
    let readable = || cluster.shadows().filter_map(|shadow| shadow.ok());
    let reported = || readable().filter_map(|shadow| shadow.status.as_ref());
    let in_state = |state| {
        let all = reported().filter(|it| it.current_state == Some(state));
        (state.as_str(), all.count())
    };
    let by_state = gauges("state", State::ALL.map(in_state));
    put(registry, "brupop_hosts_state", by_state);
    let versions = reported().filter_map(|status| status.current_version.as_deref());
    let versions = gauges("bottlerocket_version", tally(versions, MAX_VERSIONS));
    put(registry, "brupop_hosts_version", versions);
    // A node that failed after it had reached the version has nothing to try again.
    let reached = |shadow: &BottlerocketShadow| {
        let status = shadow.status.as_ref();
        let current = status.and_then(|status| status.current_version.as_ref());
        current.is_some() && current == shadow.spec.version.as_ref()
    };
    let failed = readable().filter(|shadow| !reached(shadow));
    let failures = failed.filter_map(|shadow| shadow.spec.last_failure.as_ref());
    let failures = tally(failures.map(|failure| &*failure.reason), MAX_FAILURES);
    put(registry, "brupop_nodes_failed", gauges("reason", failures));
    let ledger = cluster.ledger();
    let slots = ledger.map_or(0, |ledger| ledger.slots.len());
    put(registry, "brupop_slots_in_use", gauge(slots));
    let versions = ledger.into_iter().flat_map(|ledger| &ledger.versions);
    let failures = versions.map(|it| (&*it.version, &*it.variant, it.failures.len()));
    put(registry, "brupop_version_failures", of_releases(failures));
}

/// The facts of the leader's last pass.
#[derive(Clone, Debug, Default)]
pub struct LastPass {
    pub at: Timestamp,
    /// Number of nodes that may be updated at once.
    pub limit: u64,
    /// The nodes by what is said of them.
    pub nodes: BTreeMap<NodeGroup, i64>,
    /// By pool and reason, since when an update has been known that does not progress: of the oldest one, as it is written.
    pub waiting: BTreeMap<(String, &'static str), String>,
    /// Number of nodes that run Bottlerocket and are not opted in.
    pub not_opted_in: u64,
    /// Number of unreadable objects that are left alone, by kind.
    pub skipped: BTreeMap<&'static str, i64>,
    /// Seconds for which the oldest slot has been held; `None` if no slot is in use.
    pub oldest_slot_seconds: Option<u64>,
    /// Number of slots that are held for longer than they may be, by the reason of their nodes.
    pub overdue: BTreeMap<&'static str, i64>,
    /// Number of nodes that we have taken out of service and cannot put back, because the API server takes no change of the
    /// Node or its shadow.
    pub denied_out_of_service: i64,
    /// The versions that are halted, and for which variant.
    pub halted: Vec<(String, String)>,
    /// Whether our admission rules were seen to be in force.
    pub admission_enforced: bool,
    /// States of the gates that matter now: pool, gate, state.
    pub gates: Vec<(String, String, GateState)>,
    /// Whether upstream's operator was found, or it is not known any more that it is not here.
    pub other_operator: bool,
}

/// Nodes of which the same is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeGroup {
    /// Their pool; empty if two contend for them, or the fleet holds them.
    pub pool: String,
    /// The reason why their updates progress or wait.
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
    /// is copied before it is counted.
    pub fn count<'a>(
        &mut self,
        cluster: &'a Cluster,
        fleet: &FleetFacts<'a>,
        nodes: impl Iterator<Item = (&'a NodeView<'a>, &'a Reason<'a>)>,
    ) {
        let mut counts = BTreeMap::<(&str, &'static str, &str), i64>::new();
        let mut waiting = BTreeMap::<(&str, &'static str), &str>::new();
        for (view, reason) in nodes {
            let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
            let word = reason.as_str();
            let version = view.shadow.and_then(|shadow| shadow.status.current_version);
            *counts
                .entry((pool, word, version.unwrap_or_default()))
                .or_default() += 1;
            let has_update = view.shadow.is_some_and(|shadow| shadow.update().is_some());
            if has_update
                && reason.status() != ConditionStatus::True
                && let Some(shadow) = cluster.shadow(view.shadow_name)
                && let Some(since) = update_known_since(shadow)
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
        for ((pool, reason, version), nodes) in counts {
            let (pool, version) = (pool.to_owned(), version.to_owned());
            let group = NodeGroup {
                pool,
                reason,
                version,
            };
            self.nodes.insert(group, nodes);
        }
        for ((pool, reason), since) in waiting {
            self.waiting
                .insert((pool.to_owned(), reason), since.to_owned());
        }
    }

    /// The pools of its nodes, sorted.
    fn pools(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|group| group.pool.as_str())
    }

    /// The series of this pass, as they are now.
    fn register(&self, registry: &mut Registry, now: Timestamp) {
        self.register_nodes(registry, now);
        let skipped = |kind| (kind, self.skipped.get(kind).copied().unwrap_or(0));
        let skipped = gauges("kind", SKIPPED_KINDS.map(skipped));
        let halted = self.halted.iter();
        let halted = halted.map(|(version, variant)| (&**version, &**variant, 1));
        put(
            registry,
            "brupop_slots_overdue",
            gauges("reason", self.overdue.clone()),
        );
        put(registry, "brupop_gate_state", self.gates());
        put(registry, "brupop_skipped_objects", skipped);
        put(registry, "brupop_version_halted", of_releases(halted));
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let halted = u64::try_from(self.halted.len()).unwrap_or(u64::MAX);
        for (name, value) in [
            (
                "brupop_denied_nodes_out_of_service",
                self.denied_out_of_service,
            ),
            (
                "brupop_oldest_slot_seconds",
                number(self.oldest_slot_seconds.unwrap_or(0)),
            ),
            ("brupop_slots_limit", number(self.limit)),
            ("brupop_nodes_not_opted_in", number(self.not_opted_in)),
            ("brupop_halted_versions", number(halted)),
            ("brupop_admission_enforced", self.admission_enforced.into()),
            ("brupop_other_operator", self.other_operator.into()),
            ("brupop_last_pass_timestamp_seconds", self.at.as_second()),
        ] {
            put(registry, name, gauge(value));
        }
    }

    fn register_nodes(&self, registry: &mut Registry, now: Timestamp) {
        let mut pools: BTreeSet<&str> = self.pools().collect();
        pools = pools
            .into_iter()
            .take(MAX_POOLS)
            .chain([DEFAULT_POOL])
            .collect();
        let versions = self
            .nodes
            .iter()
            .map(|(group, nodes)| (&*group.version, *nodes));
        let versions = most_frequent(versions, MAX_VERSIONS);
        let nodes = Labelled::<3>::default();
        let words = Reason::WORDS.iter().map(|word| (*word, 0));
        let mut reasons: BTreeMap<&str, i64> = words.collect();
        for (group, number) in &self.nodes {
            let of = nodes.get_or_create_owned(&[
                ("pool", label_among(&pools, &group.pool)),
                ("reason", group.reason.to_owned()),
                (
                    "bottlerocket_version",
                    label_among(&versions, &group.version),
                ),
            ]);
            of.inc_by(*number);
            *reasons.entry(group.reason).or_default() += number;
        }
        put(registry, "brupop_nodes_reason", gauges("reason", reasons));
        put(registry, "brupop_nodes", nodes);
        let waiting = Labelled::default();
        for ((pool, reason), since) in &self.waiting {
            if let Ok(since) = since.parse::<Timestamp>() {
                let pool = ("pool", label_among(&pools, pool));
                let of = [pool, ("reason", (*reason).to_owned())];
                let oldest = waiting.get_or_create_owned(&of);
                oldest.set(oldest.get().max(now.duration_since(since).as_secs()));
            }
        }
        put(registry, "brupop_oldest_waiting_update_seconds", waiting);
    }

    /// A series for each state that each of these gates could have.
    fn gates(&self) -> Labelled<3> {
        let family = Labelled::default();
        for (pool, gate, is) in self.gates.iter().take(MAX_GATES) {
            for state in GateState::ALL {
                let state = state.as_str();
                let (pool, gate) = (("pool", label(pool)), ("gate", label(gate)));
                let of = family.get_or_create_owned(&[pool, gate, ("state", state.to_owned())]);
                of.set((state == is.as_str()).into());
            }
        }
        family
    }
}

/// The value of a label. A version is no longer than this, nor is a word that says why. Agents, kubelets and people choose
/// versions, pools and gates, so there may be any number of them.
fn label(text: &str) -> String {
    printable(text, VERSION_MAX).into_owned()
}

/// The value of a label, if this name is among those that are told apart; else [`OTHER`].
fn label_among(told_apart: &BTreeSet<&str>, name: &str) -> String {
    if told_apart.contains(name) {
        label(name)
    } else {
        OTHER.to_owned()
    }
}

/// The `most` frequent of these names, each with its number; among equals those that come first.
fn most_frequent<'n>(
    names: impl IntoIterator<Item = (&'n str, i64)>,
    most: usize,
) -> BTreeSet<&'n str> {
    let mut counts = BTreeMap::<&str, i64>::new();
    for (name, number) in names {
        *counts.entry(name).or_default() += number;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let names = counts.into_iter().map(|(name, _)| name);
    names.take(most).collect()
}

/// Counts by name, as the value of a label. The `most` frequent names are told apart.
fn tally<'n>(names: impl Iterator<Item = &'n str>, most: usize) -> BTreeMap<String, i64> {
    let names: Vec<_> = names.map(|name| (name, 1)).collect();
    let told_apart = most_frequent(names.iter().copied(), most);
    let mut labels = BTreeMap::new();
    for (name, count) in names {
        *labels.entry(label_among(&told_apart, name)).or_default() += count;
    }
    labels
}

#[cfg(test)]
mod tests;
