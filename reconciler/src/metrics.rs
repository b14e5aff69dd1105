//! The metrics: gauges, computed at each scrape from the cluster and the last pass, counters and histograms.

mod hosts;
mod labels;
mod last_pass;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brupop_core::cluster::Cluster;
use brupop_core::phases::{Ended, Phase, results};
use brupop_runtime::metrics::{self, ProcessMetrics};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use labels::{CountsByPool, label};
pub use last_pass::LastPass;

/// The most versions that get a series of their own, those of most hosts. Versions come from agents, and a fleet runs a
/// handful.
const MAX_VERSIONS: usize = 32;

/// The most pools that get series of their own.
const MAX_POOLS: usize = 50;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
/// Upper bounds of the buckets of updates and their phases, in seconds: a reboot takes a minute, a wave of updates weeks.
const BUCKETS: [f64; 18] = [
    1.0,
    5.0,
    15.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    20.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    4.0 * HOUR,
    12.0 * HOUR,
    DAY,
    3.0 * DAY,
    7.0 * DAY,
    21.0 * DAY,
];

/// The reconciler's metrics. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    writes: Family<[(&'static str, &'static str); 2], Counter>,
    evictions: Family<Label, Counter>,
    updates: Family<Label, Counter>,
    removed: Counter,
    without_workloads: Arc<Mutex<CountsByPool>>,
    durations: UpdateHistograms,
    /// Metrics that all programs have.
    pub process: ProcessMetrics,
    /// `None` while this process does not lead.
    last_pass: Arc<Mutex<Option<LastPass>>>,
}

/// One label of a fixed set of words.
type Label = [(&'static str, &'static str); 1];

/// Gauges, by their labels.
type Labelled<const N: usize> = Family<[(&'static str, String); N], Gauge>;

/// How long updates took, and each of their phases.
#[derive(Clone, Debug)]
struct UpdateHistograms {
    updates: Histogram,
    phases: Family<Label, Histogram, fn() -> Histogram>,
}

impl Default for UpdateHistograms {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self {
            updates: histogram(),
            phases: Family::new_with_constructor(histogram),
        }
    }
}

fn of_phase(phase: Phase) -> Label {
    [("phase", phase.as_str())]
}

fn of_result(result: &'static str) -> Label {
    [("result", result)]
}

impl Metrics {
    /// Counts a request, by what it wrote and what came of it.
    pub fn wrote(&self, object: &'static str, result: &'static str) {
        self.writes
            .get_or_create(&[("object", object), ("result", result)])
            .inc();
    }

    /// Counts an eviction, by its answer.
    pub fn evicted(&self, result: &'static str) {
        self.evictions.get_or_create(&of_result(result)).inc();
    }

    /// Counts what a write has ended.
    pub fn ended(&self, ended: &Ended) {
        match ended {
            Ended::Phase(phase, took) => {
                self.durations
                    .phases
                    .get_or_create(&of_phase(*phase))
                    .observe(took.as_secs_f64());
            }
            Ended::Removed => drop(self.removed.inc()),
            Ended::WithoutWorkloads(pool) => self.without_workloads().count(pool),
            Ended::Update { result, took } => {
                self.updates.get_or_create(&of_result(result)).inc();
                if let Some(took) = took {
                    self.durations.updates.observe(took.as_secs_f64());
                }
            }
        }
    }

    /// Keeps what the last pass knows; `None` if this process does not lead any more.
    pub fn passed(&self, pass: Option<LastPass>) {
        if let Some(pass) = &pass {
            self.without_workloads().see(pass.pools());
        }
        *self
            .last_pass
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = pass;
    }

    fn without_workloads(&self) -> MutexGuard<'_, CountsByPool> {
        self.without_workloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics as text. Every replica counts hosts, because each watches all of them. Only the leader shows what
    /// was decided.
    pub fn render(&self, cluster: Option<&Cluster>, watch_failures: u64, now: Timestamp) -> String {
        let mut registry = Registry::default();
        let pass = self
            .last_pass
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        registry.register(
            "brupop_leader",
            "1 if this process leads",
            gauge(pass.is_some()),
        );
        self.register_counters(&mut registry, watch_failures);
        self.register_updates(&mut registry);
        if let Some(cluster) = cluster {
            hosts::register(&mut registry, cluster);
        }
        if let Some(pass) = pass {
            pass.register(&mut registry, now);
        }
        metrics::text(&registry)
    }

    fn register_counters(&self, registry: &mut Registry, watch_failures: u64) {
        registry.register(
            "brupop_writes",
            "Writes to the API server",
            self.writes.clone(),
        );
        registry.register(
            "brupop_evictions",
            "Evictions, by the API server's response",
            self.evictions.clone(),
        );
        self.process
            .register(registry.sub_registry_with_prefix("brupop"));
        let failures = Counter::<u64>::default();
        failures.inc_by(watch_failures);
        registry.register(
            "brupop_watch_failures",
            "Times that a watch failed",
            failures,
        );
    }

    /// A counter that is not there before its first event would hide that event from `increase`, so all are there.
    fn register_updates(&self, registry: &mut Registry) {
        for result in results() {
            drop(self.updates.get_or_create(&of_result(result)));
        }
        for phase in Phase::ALL {
            drop(self.durations.phases.get_or_create(&of_phase(phase)));
        }
        registry.register(
            "brupop_updates",
            "Updates that have given their slot back, by what became of them",
            self.updates.clone(),
        );
        registry.register(
            "brupop_updated_nodes_removed",
            "Nodes that were deleted soon after their update",
            self.removed.clone(),
        );
        registry.register(
            "brupop_updated_without_workloads",
            "Updates that ended although a workload had not come back in time, by pool",
            self.without_workloads().series(),
        );
        registry.register_with_unit(
            "brupop_update_duration",
            "From the slot to its end, of updates that reached their version",
            Unit::Seconds,
            self.durations.updates.clone(),
        );
        registry.register_with_unit(
            "brupop_update_phase_duration",
            "How long each phase of an update took that came to its end",
            Unit::Seconds,
            self.durations.phases.clone(),
        );
    }
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
        family
            .get_or_create(&[(label, value.into())])
            .set(number.try_into().unwrap_or(i64::MAX));
    }
    family
}

/// A gauge for each version and variant.
fn of_releases<'a, N: TryInto<i64>>(
    numbers: impl Iterator<Item = (&'a str, &'a str, N)>,
) -> Labelled<2> {
    let family = Labelled::default();
    for (version, variant, number) in numbers {
        let of = [
            ("bottlerocket_version", label(version)),
            ("bottlerocket_variant", label(variant)),
        ];
        family
            .get_or_create(&of)
            .set(number.try_into().unwrap_or(i64::MAX));
    }
    family
}

#[cfg(test)]
mod tests;
