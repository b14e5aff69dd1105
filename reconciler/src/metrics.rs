//! The metrics: gauges, computed from the cluster at each scrape and by the leader in each pass, counters and histograms.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use brupop_api::conditions::ConditionStatus;
use brupop_api::crds::VERSION_MAX;
use brupop_api::fleet::VersionRecord;
use brupop_api::names::DEFAULT_POOL;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketShadow, State};
use brupop_core::cluster::Cluster;
use brupop_core::decide::Reason;
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::rules::GateState;
use brupop_core::status::{Ended, Phase, results, stalled_pools, update_known_since};
use brupop_runtime::locked;
use brupop_runtime::metrics::{self, ProcessMetrics};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
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
brupop_pool_stalled: 1 for each pool that does not go on before a person acts, by reason
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
/// The most pools that get series of their own in what counts nodes.
const MAX_POOLS: usize = 50;
/// The most reasons of failures with a series of their own. The words are ours, or those of an earlier release.
const MAX_FAILURES: usize = 32;
/// The most gates of pools that get series of their own: those of the first pools by name.
const MAX_GATES: usize = 128;
/// The value of a label for all that have no series of their own.
const OTHER: &str = "other";
/// Upper bounds of the buckets of updates and their phases, in seconds: a reboot takes a minute, a wave of updates weeks.
const BUCKETS: [f64; 18] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    43_200.0, 86_400.0, 259_200.0, 604_800.0, 1.8144e6,
];

/// The reconciler's metrics. Clones share one state.
#[derive(Clone, Debug)]
pub struct Metrics {
    counters: Arc<Mutex<Series>>,
    /// The gauges of the last pass; `None` while this process does not lead.
    last_pass: Arc<Mutex<Option<Series>>>,
    /// Durations of updates and of their phases.
    update_duration: Histogram,
    phase_durations: Family<Labels, Histogram, fn() -> Histogram>,
    /// Metrics that all programs have.
    pub process: ProcessMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self {
            counters: Arc::default(),
            last_pass: Arc::default(),
            update_duration: histogram(),
            phase_durations: Family::new_with_constructor(histogram),
            process: ProcessMetrics::default(),
        }
    }
}

impl Metrics {
    /// Counts one more.
    pub fn count(&self, metric: &'static str, labels: &[(&'static str, &str)]) {
        locked(&self.counters).add(metric, labels, 1);
    }

    /// Counts what a write has ended.
    pub fn ended(&self, ended: &Ended) {
        match ended {
            Ended::Phase(phase, took) => {
                let phase = self.phase_durations.get_or_create(&of_phase(*phase));
                phase.observe(took.as_secs_f64());
            }
            Ended::Removed => self.count("brupop_updated_nodes_removed", &[]),
            Ended::WithoutWorkloads(pool) => {
                count_without_workloads(&mut locked(&self.counters), pool, 1);
            }
            Ended::Update { result, took } => {
                self.count("brupop_updates", &[("result", result)]);
                if let Some(took) = took {
                    self.update_duration.observe(took.as_secs_f64());
                }
            }
        }
    }

    /// Keeps the gauges of the last pass; `None` if this process does not lead any more.
    pub fn passed(&self, gauges: Option<Series>) {
        *locked(&self.last_pass) = gauges;
    }

    /// Exports counters of updates as 0, for each result and pool: `increase` does not see the event that begins a series.
    pub fn name_events(&self, cluster: Option<&Cluster>) {
        let mut counters = locked(&self.counters);
        for result in results() {
            counters.add("brupop_updates", &[("result", result)], 0);
        }
        counters.add("brupop_updated_nodes_removed", &[], 0);
        count_without_workloads(&mut counters, DEFAULT_POOL, 0);
        for pool in cluster.into_iter().flat_map(|cluster| cluster.pools.keys()) {
            count_without_workloads(&mut counters, pool, 0);
        }
    }

    /// All metrics as text. Only the leader shows what it sees and decides.
    pub fn render(&self, cluster: Option<&Cluster>, watch_failures: u64) -> String {
        let mut registry = Registry::default();
        let (mut gauges, pass) = (Series::default(), locked(&self.last_pass));
        gauges.set("brupop_leader", &[], pass.is_some());
        if let Some(cluster) = cluster.filter(|_| pass.is_some()) {
            gauges.count_hosts(cluster);
        }
        for gauges in [&gauges].into_iter().chain(&*pass) {
            gauges.register(&mut registry, |gauge: &Gauge, value| {
                gauge.set(value);
            });
        }
        self.name_events(cluster);
        let mut counters = locked(&self.counters);
        counters.set("brupop_watch_failures", &[], watch_failures);
        counters.register(&mut registry, |counter: &Counter, value| {
            counter.inc_by(value.unsigned_abs());
        });
        for phase in Phase::ALL {
            drop(self.phase_durations.get_or_create(&of_phase(phase)));
        }
        let (updates, phases) = (self.update_duration.clone(), self.phase_durations.clone());
        put_seconds(&mut registry, "brupop_update_duration", updates);
        put_seconds(&mut registry, "brupop_update_phase_duration", phases);
        self.process
            .register(registry.sub_registry_with_prefix("brupop"));
        metrics::text(&registry)
    }
}

fn of_phase(phase: Phase) -> Labels {
    vec![("phase", phase.as_str().to_owned())]
}

/// Counts these updates of a pool; of pools beyond the first [`MAX_POOLS`], which may come and go, all as one.
fn count_without_workloads(counters: &mut Series, pool: &str, updates: u64) {
    let metric = "brupop_updated_without_workloads";
    let labels = [("pool", pool)];
    let has_room = counters
        .0
        .get(metric)
        .is_none_or(|series| series.len() < MAX_POOLS || series.keys().any(|of| of[0].1 == pool));
    let labels = if has_room { labels } else { [("pool", OTHER)] };
    counters.add(metric, &labels, updates);
}

fn help(name: &str) -> &'static str {
    let mut lines = HELP.lines().filter_map(|line| line.split_once(": "));
    lines
        .find(|(of, _)| *of == name)
        .map_or("", |(_, help)| help)
}

fn put_seconds(registry: &mut Registry, name: &str, metric: impl Metric) {
    registry.register_with_unit(name, help(name), Unit::Seconds, metric);
}

/// The labels of a series.
type Labels = Vec<(&'static str, String)>;

/// The values of gauges, or of counters, by metric and labels.
#[derive(Debug, Default)]
pub struct Series(BTreeMap<&'static str, BTreeMap<Labels, i64>>);

impl Series {
    /// Returns the value of this series, which is 0 at first.
    fn series(&mut self, metric: &'static str, labels: &[(&'static str, &str)]) -> &mut i64 {
        debug_assert!(!help(metric).is_empty(), "{metric} is not described");
        let labels = labels.iter().map(|(name, value)| (*name, label(value)));
        let metric = self.0.entry(metric).or_default();
        metric.entry(labels.collect()).or_default()
    }

    /// Sets the value of a series.
    pub fn set(
        &mut self,
        metric: &'static str,
        labels: &[(&'static str, &str)],
        value: impl TryInto<i64>,
    ) {
        *self.series(metric, labels) = value.try_into().unwrap_or(i64::MAX);
    }

    /// Adds to the value of a series.
    pub fn add(
        &mut self,
        metric: &'static str,
        labels: &[(&'static str, &str)],
        value: impl TryInto<i64>,
    ) {
        let series = self.series(metric, labels);
        *series = series.saturating_add(value.try_into().unwrap_or(i64::MAX));
    }

    /// Adds the metrics to the registry; `set` gives each of their series its value.
    fn register<M>(&self, registry: &mut Registry, set: fn(&M, i64))
    where
        M: EncodeMetric + TypedMetric + Clone + Debug + Default + Send + Sync + 'static,
    {
        for (metric, series) in &self.0 {
            let family = Family::<Labels, M>::default();
            for (labels, value) in series {
                set(&family.get_or_create(labels), *value);
            }
            match family.get(&vec![]) {
                Some(alone) => registry.register(*metric, help(metric), alone.clone()),
                None => registry.register(*metric, help(metric), family.clone()),
            }
        }
    }

    /// Counts hosts, failures, stalled pools, and the ledger, which itself limits how many slots and versions there are.
    fn count_hosts(&mut self, cluster: &Cluster) {
        let readable = || cluster.shadows().filter_map(|shadow| shadow.ok());
        let reported = || readable().filter_map(|shadow| shadow.status.as_ref());
        for state in State::ALL {
            let of = reported().filter(|it| it.current_state == Some(state));
            let labels = [("state", state.as_str())];
            self.set("brupop_hosts_state", &labels, of.count());
        }
        let versions = reported().filter_map(|status| status.current_version.as_deref());
        let (metric, label) = ("brupop_hosts_version", "bottlerocket_version");
        self.tally(metric, label, versions, MAX_VERSIONS);
        // A node that failed after it had reached the version has nothing to try again.
        let reached = |shadow: &BottlerocketShadow| {
            let status = shadow.status.as_ref();
            let current = status.and_then(|status| status.current_version.as_ref());
            current.is_some() && current == shadow.spec.version.as_ref()
        };
        let failed = readable().filter(|shadow| !reached(shadow));
        let failures = failed.filter_map(|shadow| shadow.spec.last_failure.as_ref());
        let reasons = failures.map(|failure| &*failure.reason);
        self.tally("brupop_nodes_failed", "reason", reasons, MAX_FAILURES);
        for (pool, why) in stalled_pools(&cluster.pools) {
            let of = [("pool", pool), ("reason", &*why.reason)];
            self.set("brupop_pool_stalled", &of, 1);
        }
        let ledger = cluster.ledger();
        let slots = ledger.map_or(0, |ledger| ledger.slots.len());
        self.set("brupop_slots_in_use", &[], slots);
        for record in ledger.into_iter().flat_map(|ledger| &ledger.versions) {
            let of = of_release(&record.version, &record.variant);
            self.set("brupop_version_failures", &of, record.failures.len());
        }
    }

    /// Counts these names, as values of this label. The `most` frequent ones are told apart.
    fn tally<'n>(
        &mut self,
        metric: &'static str,
        label: &'static str,
        names: impl Iterator<Item = &'n str>,
        most: usize,
    ) {
        let names: Vec<_> = names.map(|name| (name, 1)).collect();
        let told_apart = most_frequent(names.iter().copied(), most);
        for (name, count) in names {
            self.add(metric, &[(label, among(&told_apart, name))], count);
        }
    }

    /// Counts nodes, by what was decided, and slots. There may be thousands of nodes, so nothing is copied before it is counted.
    pub fn count_nodes<'a>(
        &mut self,
        cluster: &'a Cluster,
        fleet: &FleetFacts<'a>,
        nodes: impl Iterator<Item = (&'a NodeView<'a>, &'a Reason<'a>)>,
        now: Timestamp,
    ) {
        let mut counts = BTreeMap::<(&str, &str, &str), i64>::new();
        let mut waiting = BTreeMap::<(&str, &str), &str>::new();
        let (mut oldest_slot, mut denied) = (0, 0);
        for (view, reason) in nodes {
            let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
            let word = reason.as_str();
            let version = view
                .shadow
                .and_then(|shadow| shadow.status.current_version.as_deref());
            let of = (pool, word, version.unwrap_or_default());
            *counts.entry(of).or_default() += 1;
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
            oldest_slot = oldest_slot.max(view.time.slot_seconds.unwrap_or(0));
            denied += u64::from(matches!(reason, Reason::NodeChangesDenied(_)) && view.marked());
            if view.time.slot_overdue {
                self.add("brupop_slots_overdue", &[("reason", word)], 1);
            }
        }
        self.set("brupop_oldest_slot_seconds", &[], oldest_slot);
        self.set("brupop_denied_nodes_out_of_service", &[], denied);
        for word in Reason::WORDS {
            self.set("brupop_nodes_reason", &[("reason", word)], 0);
        }
        let pools: BTreeSet<&str> = counts.keys().map(|(pool, ..)| *pool).collect();
        let pools = pools.into_iter().take(MAX_POOLS);
        let pools = pools.chain([DEFAULT_POOL]).collect();
        let versions = counts.iter();
        let versions = versions.map(|((.., version), nodes)| (*version, *nodes));
        let versions = most_frequent(versions, MAX_VERSIONS);
        for ((pool, reason, version), nodes) in counts {
            let (pool, version) = (among(&pools, pool), among(&versions, version));
            let reason = ("reason", reason);
            let of = [("pool", pool), reason, ("bottlerocket_version", version)];
            self.add("brupop_nodes_reason", &[reason], nodes);
            self.add("brupop_nodes", &of, nodes);
        }
        for ((pool, reason), since) in waiting {
            if let Ok(since) = since.parse::<Timestamp>() {
                let of = [("pool", among(&pools, pool)), ("reason", reason)];
                let oldest = self.series("brupop_oldest_waiting_update_seconds", &of);
                *oldest = now.duration_since(since).as_secs().max(*oldest);
            }
        }
    }

    /// Sets a series for each state that each of these gates, by pool and name, could have.
    pub fn tell_gates<'g>(&mut self, gates: impl Iterator<Item = (&'g str, &'g str, GateState)>) {
        for (pool, gate, is) in gates.take(MAX_GATES) {
            for state in GateState::ALL {
                let of = [("pool", pool), ("gate", gate), ("state", state.as_str())];
                self.set("brupop_gate_state", &of, state.as_str() == is.as_str());
            }
        }
    }

    /// Tells which versions are halted, and for which variant.
    pub fn tell_halts(&mut self, halts: &[&VersionRecord]) {
        self.set("brupop_halted_versions", &[], halts.len());
        for halt in halts {
            let of = of_release(&halt.version, &halt.variant);
            self.set("brupop_version_halted", &of, 1);
        }
    }

    /// Counts objects of this kind that are left alone.
    pub fn skip(&mut self, kind: &'static str, count: usize) {
        self.add("brupop_skipped_objects", &[("kind", kind)], count);
    }
}

fn of_release<'a>(version: &'a str, variant: &'a str) -> [(&'static str, &'a str); 2] {
    [
        ("bottlerocket_version", version),
        ("bottlerocket_variant", variant),
    ]
}

/// The value of a label. A version is no longer than this, nor is a word that says why. Agents, kubelets and people choose
/// versions, pools and gates, so there may be any number of them.
fn label(text: &str) -> String {
    printable(text, VERSION_MAX).into_owned()
}

/// This name, if it is among those that are told apart; else [`OTHER`].
fn among<'n>(told_apart: &BTreeSet<&str>, name: &'n str) -> &'n str {
    if told_apart.contains(name) {
        name
    } else {
        OTHER
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

#[cfg(test)]
mod tests;
