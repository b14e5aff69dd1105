//! The metrics: gauges, computed at each scrape from the cluster and the last pass, and counters.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use brupop_api::crds::VERSION_MAX;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketShadow, State};
use brupop_runtime::authorizer::Refusals;
use brupop_runtime::connections::Drops;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use brupop_core::cluster::Cluster;
use brupop_core::decide::Reason;
use brupop_core::facts::NodeView;
use brupop_core::gates::GateState;

/// At most so many versions get a series of their own, those of most hosts. Versions come from agents, and a fleet runs a
/// handful.
const MAX_VERSIONS: usize = 32;
/// At most so many reasons of failures get a series of their own. The words are ours, or those of an earlier release.
const MAX_FAILURES: usize = 32;
/// At most so many gates of pools get series of their own: those of the first pools by name.
const MAX_GATES: usize = 128;
/// The kinds of objects that may be left alone because they cannot be read.
const SKIPPED_KINDS: [&str; 5] =
    ["BottlerocketPool", "BottlerocketShadow", "Node", "Pod", "PodDisruptionBudget"];

/// What only the last pass of the leader knows.
#[derive(Clone, Debug, Default)]
pub struct LastPass {
    /// How many nodes may be updated at once.
    pub limit: u64,
    /// How many nodes have which reason.
    pub reasons: BTreeMap<&'static str, i64>,
    /// How many objects of which kind cannot be read, and are left alone.
    pub skipped: BTreeMap<&'static str, i64>,
    /// For how many seconds the oldest slot has been held; `None` if no slot is in use.
    pub oldest_slot_seconds: Option<u64>,
    /// How many slots are held for longer than they may be, by the reason of their nodes.
    pub overdue: BTreeMap<&'static str, i64>,
    pub halted: u64,
    /// Were our admission rules seen to be in force?
    pub admission_enforced: bool,
    /// How the gates of pools are that matter now: pool, gate, state.
    pub gates: Vec<(String, String, GateState)>,
    /// Was upstream's operator found, or is it not known any more that it is not here?
    pub other_operator: bool,
}

impl LastPass {
    /// Counts this node by its reason, and its slot.
    pub fn count(&mut self, view: &NodeView<'_>, reason: &Reason<'_>) {
        *self.reasons.entry(reason.as_str()).or_default() += 1;
        self.oldest_slot_seconds = self.oldest_slot_seconds.max(view.time.slot_seconds);
        if view.time.slot_overdue {
            *self.overdue.entry(reason.as_str()).or_default() += 1;
        }
    }

    /// Counts an object of this kind that is left alone.
    pub fn skip(&mut self, kind: &'static str) {
        *self.skipped.entry(kind).or_default() += 1;
    }
}

/// The reconciler's metrics. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    writes: Family<[(&'static str, &'static str); 2], Counter>,
    evictions: Family<[(&'static str, &'static str); 1], Counter>,
    /// Scrapes that were refused.
    pub scrape_refusals: Refusals,
    /// Connections that were dropped.
    pub drops: Drops,
    /// `None` while this process does not lead.
    last_pass: Arc<Mutex<Option<LastPass>>>,
}

impl Metrics {
    pub fn wrote(&self, object: &'static str, result: &'static str) {
        self.writes.get_or_create(&[("object", object), ("result", result)]).inc();
    }

    pub fn evicted(&self, result: &'static str) {
        self.evictions.get_or_create(&[("result", result)]).inc();
    }

    /// Keeps what the last pass knows; `None` if this process does not lead any more.
    pub fn passed(&self, pass: Option<LastPass>) {
        *self.last_pass.lock().unwrap_or_else(PoisonError::into_inner) = pass;
    }

    /// All metrics as text. Every replica counts hosts, because each watches all of them. Only the leader shows what
    /// was decided.
    pub fn render(&self, cluster: Option<&Cluster>, watch_failures: u64) -> String {
        let mut registry = Registry::default();
        let pass = self.last_pass.lock().unwrap_or_else(PoisonError::into_inner).clone();
        registry.register("brupop_leader", "1 if this process leads", gauge(pass.is_some()));
        registry.register("brupop_writes", "Writes to the API server", self.writes.clone());
        registry.register(
            "brupop_evictions",
            "Evictions, by the API server's response",
            self.evictions.clone(),
        );
        registry.register(
            "brupop_refused_scrapes",
            "Refused scrapes of /metrics, by reason",
            self.scrape_refusals.family(),
        );
        registry.register(
            "brupop_dropped_connections",
            "Connections dropped, by what they were doing: to make room, or after too long a time",
            self.drops.family(),
        );
        let failures = Counter::<u64>::default();
        failures.inc_by(watch_failures);
        registry.register("brupop_watch_failures", "Times that a watch failed", failures);
        if let Some(cluster) = cluster {
            of_hosts(&mut registry, cluster);
        }
        if let Some(pass) = pass {
            of_pass(&mut registry, &pass);
        }
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &registry) {
            tracing::warn!(%error, "metrics could not be written");
        }
        text
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
) -> Family<[(&'static str, String); 1], Gauge> {
    let family = Family::<_, Gauge>::default();
    for (value, number) in numbers {
        family.get_or_create(&[(label, value.into())]).set(number.try_into().unwrap_or(i64::MAX));
    }
    family
}

/// Counts by name, as the value of a label. The `most` frequent names are told apart, and all others count as `other`.
fn tally<'n>(names: impl Iterator<Item = &'n str>, most: usize) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::<&str, i64>::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let mut labels = BTreeMap::new();
    for (rank, (name, count)) in counts.into_iter().enumerate() {
        let name = if rank < most { label(name) } else { "other".to_owned() };
        *labels.entry(name).or_default() += count;
    }
    labels
}

/// The value of a label. A version is no longer than this, nor is a word that says why.
fn label(text: &str) -> String {
    printable(text, VERSION_MAX).into_owned()
}

fn of_hosts(registry: &mut Registry, cluster: &Cluster) {
    let readable = || cluster.shadows().filter_map(|shadow| shadow.ok());
    let reported = || readable().filter_map(|shadow| shadow.status.as_ref());
    let in_state = |state| reported().filter(|status| status.current_state == Some(state)).count();
    let states = State::ALL.into_iter().map(|state| (state.as_str(), in_state(state)));
    registry.register("brupop_hosts_state", "Bottlerocket hosts by state", gauges("state", states));
    let versions = reported().filter_map(|status| status.current_version.as_deref());
    registry.register(
        "brupop_hosts_version",
        "Bottlerocket hosts by version",
        gauges("bottlerocket_version", tally(versions, MAX_VERSIONS)),
    );
    // A node that failed after it had reached the version has nothing to try again.
    let reached = |shadow: &BottlerocketShadow| {
        let current = shadow.status.as_ref().and_then(|status| status.current_version.as_ref());
        current.is_some() && current == shadow.spec.version.as_ref()
    };
    let failures = readable().filter(|shadow| !reached(shadow));
    let failures = failures.filter_map(|shadow| Some(shadow.spec.failures.as_ref()?.reason.as_str()));
    registry.register(
        "brupop_nodes_failed",
        "Nodes whose last update failed and that do not run its version, by reason",
        gauges("reason", tally(failures, MAX_FAILURES)),
    );
    of_ledger(registry, cluster);
}

/// The ledger itself limits how many slots and versions there are.
fn of_ledger(registry: &mut Registry, cluster: &Cluster) {
    let status = cluster.status();
    let slots = status.map_or(0, |status| status.slots.len());
    registry.register("brupop_slots_in_use", "Updates under way", gauge(slots));
    let versions = status.into_iter().flat_map(|status| &status.versions);
    let failures = versions.map(|(version, record)| (label(version), record.failures.len()));
    registry.register(
        "brupop_version_failures",
        "Nodes that failed to reach a version, of those that the ledger remembers",
        gauges("bottlerocket_version", failures),
    );
}

/// A series for each state that each of these gates could have.
fn gates(gates: &[(String, String, GateState)]) -> Family<[(&'static str, String); 3], Gauge> {
    let family = Family::<_, Gauge>::default();
    for (pool, gate, is) in gates.iter().take(MAX_GATES) {
        for state in GateState::ALL {
            let labels = [("pool", label(pool)), ("gate", label(gate)), ("state", state.as_str().to_owned())];
            family.get_or_create(&labels).set((state == *is).into());
        }
    }
    family
}

fn of_pass(registry: &mut Registry, pass: &LastPass) {
    let number = |of: &BTreeMap<&str, i64>, word: &str| of.get(word).copied().unwrap_or(0);
    registry.register(
        "brupop_nodes_reason",
        "Nodes, by the reason why their update progresses or waits",
        gauges("reason", Reason::WORDS.iter().map(|&word| (word, number(&pass.reasons, word)))),
    );
    registry.register(
        "brupop_slots_overdue",
        "Slots held for longer than the current step of their update may take, by reason",
        gauges("reason", pass.overdue.clone()),
    );
    registry.register(
        "brupop_oldest_slot_seconds",
        "Seconds for which the oldest slot has been held; 0 if none is in use",
        gauge(pass.oldest_slot_seconds.unwrap_or(0)),
    );
    registry.register(
        "brupop_gate_state",
        "1 for the state of each gate of a pool that has something to update, 0 for all others",
        gates(&pass.gates),
    );
    registry.register("brupop_slots_limit", "Most updates at once", gauge(pass.limit));
    registry.register(
        "brupop_skipped_objects",
        "Objects that cannot be read, by kind",
        gauges("kind", SKIPPED_KINDS.map(|kind| (kind, number(&pass.skipped, kind)))),
    );
    registry.register(
        "brupop_halted_versions",
        "Halted versions, which too many nodes failed to reach",
        gauge(pass.halted),
    );
    registry.register(
        "brupop_admission_enforced",
        "1 if the last dry runs showed that webhook and policy are enforced",
        gauge(pass.admission_enforced),
    );
    registry.register(
        "brupop_other_operator",
        "1 if upstream's operator is installed, or this is not known, so that no update starts",
        gauge(pass.other_operator),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::Item;
    use brupop_api::printable::is_printable;
    use serde_json::json;

    fn cluster(hosts: impl IntoIterator<Item = (&'static str, String)>) -> Cluster {
        let shadow = |(state, version): (&str, String)| -> Item<BottlerocketShadow> {
            serde_json::from_value(json!({
                "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow", "metadata": {},
                "spec": {"state": "Idle"}, "status": {"current_state": state, "current_version": version},
            }))
            .unwrap()
        };
        let mut cluster = Cluster::default();
        for (number, host) in hosts.into_iter().enumerate() {
            cluster.entry(&number.to_string()).shadow = Some(Arc::new(shadow(host)));
        }
        cluster
    }

    #[test]
    fn hosts_are_counted_as_upstreams_users_know_it() {
        let hosts =
            [("Idle", "1.0.0"), ("Idle", "1.1.0"), ("MonitoringUpdate", "1.1.0"), ("Dreaming", "1.1.0")];
        let cluster = cluster(hosts.map(|(state, version)| (state, version.to_owned())));
        let metrics = Metrics::default();
        let reasons = BTreeMap::from([("NoUpdate", 2)]);
        metrics.passed(Some(LastPass {
            limit: 3,
            reasons,
            skipped: BTreeMap::from([("Pod", 1)]),
            halted: 1,
            oldest_slot_seconds: Some(90),
            overdue: BTreeMap::from([("ReturningToService", 1)]),
            admission_enforced: true,
            other_operator: true,
            gates: vec![("web".to_owned(), "no-critical".to_owned(), GateState::Closed)],
        }));
        metrics.wrote("ledger", "written");
        let text = metrics.render(Some(&cluster), 5);
        for line in [
            "brupop_leader 1",
            "brupop_hosts_state{state=\"Idle\"} 2",
            "brupop_hosts_state{state=\"MonitoringUpdate\"} 1",
            "brupop_hosts_state{state=\"ErrorReset\"} 0",
            "brupop_hosts_version{bottlerocket_version=\"1.1.0\"} 2",
            "brupop_nodes_reason{reason=\"NoUpdate\"} 2",
            "brupop_nodes_reason{reason=\"Draining\"} 0",
            "brupop_gate_state{pool=\"web\",gate=\"no-critical\",state=\"Closed\"} 1",
            "brupop_gate_state{pool=\"web\",gate=\"no-critical\",state=\"Open\"} 0",
            "brupop_gate_state{pool=\"web\",gate=\"no-critical\",state=\"Unknown\"} 0",
            "brupop_slots_in_use 0",
            "brupop_slots_limit 3",
            "brupop_skipped_objects{kind=\"Pod\"} 1",
            "brupop_skipped_objects{kind=\"Node\"} 0",
            "brupop_halted_versions 1",
            "brupop_oldest_slot_seconds 90",
            "brupop_slots_overdue{reason=\"ReturningToService\"} 1",
            "brupop_admission_enforced 1",
            "brupop_other_operator 1",
            "brupop_watch_failures_total 5",
            "brupop_writes_total{object=\"ledger\",result=\"written\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn failures_are_counted_by_node_and_by_version() {
        let mut cluster = cluster([]);
        for (name, failures) in [
            ("a", json!({"count": 1, "at": "2026-11-21T04:00:00Z", "reason": "FellBack"})),
            ("b", json!({"count": 3, "at": "2026-11-21T04:00:00Z", "reason": "FellBack"})),
            ("c", json!({"count": 1, "at": "2026-11-21T04:00:00Z", "reason": "DrainTimedOut"})),
            ("d", json!(null)),
        ] {
            let shadow: Item<BottlerocketShadow> = serde_json::from_value(json!({
                "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow", "metadata": {},
                "spec": {"state": "Idle", "failures": failures},
            }))
            .unwrap();
            cluster.entry(name).shadow = Some(Arc::new(shadow));
        }
        let failure = |node| json!({"node": node, "at": "2026-11-21T04:00:00Z", "reason": "FellBack"});
        let ledger = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"versions": {
            "1.20.0": {"failures": [failure("a"), failure("b")]}, "1.20.1": {"succeeded": 1},
        }}});
        cluster.ledger = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
        let text = Metrics::default().render(Some(&cluster), 0);
        for line in [
            "brupop_nodes_failed{reason=\"FellBack\"} 2",
            "brupop_nodes_failed{reason=\"DrainTimedOut\"} 1",
            "brupop_version_failures{bottlerocket_version=\"1.20.0\"} 2",
            "brupop_version_failures{bottlerocket_version=\"1.20.1\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("\nbrupop_nodes_failed{").count(), 2, "{text}");
    }

    #[test]
    fn without_the_lead_only_hosts_are_counted() {
        let metrics = Metrics::default();
        metrics.passed(Some(LastPass::default()));
        metrics.passed(None);
        let text = metrics.render(Some(&cluster([("Idle", "1.0.0".to_owned())])), 0);
        assert!(text.contains("brupop_leader 0\n") && !text.contains("brupop_nodes_reason"), "{text}");
        assert!(text.contains("brupop_hosts_version{bottlerocket_version=\"1.0.0\"} 1\n"), "{text}");
    }

    #[test]
    fn versions_do_not_grow_without_bound() {
        let metrics = Metrics::default();
        metrics.passed(Some(LastPass::default()));
        let made_up = (0..100).map(|n| ("Idle", format!("1.0.{n}")));
        let fleet = (0..3).flat_map(|n| [("Idle", format!("9.0.{n}")), ("Idle", format!("9.0.{n}"))]);
        let text = metrics.render(Some(&cluster(made_up.chain(fleet))), 0);
        let hosts = |version: &str, hosts: u8| {
            let line = format!("brupop_hosts_version{{bottlerocket_version=\"{version}\"}} {hosts}\n");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        };
        for (version, number) in [("9.0.0", 2), ("9.0.2", 2), ("1.0.0", 1), ("other", 71)] {
            hosts(version, number);
        }
        assert_eq!(text.matches("\nbrupop_hosts_version{").count(), MAX_VERSIONS + 1, "{text}");
    }

    #[test]
    fn labels_are_printable_whatever_agents_say() {
        let hostile = ["1.0.0\u{1b}[2J\n\"} 1\nbrupop_leader 7", "\u{202e}", &"9".repeat(5000)];
        let cluster = cluster(hostile.map(|version| ("Idle", version.to_owned())));
        let text = Metrics::default().render(Some(&cluster), 0);
        assert!(text.contains(r#"{bottlerocket_version="\\u{202e}"} 1"#), "{text}");
        assert!(
            text.contains(r#"{bottlerocket_version="1.0.0\\u{1b}[2J\\n\"} 1\\nbrupop_leader 7"} 1"#),
            "{text}"
        );
        assert!(text.lines().all(|line| is_printable(line) && line.len() < 200), "{text}");
        assert_eq!(text.matches("\nbrupop_leader ").count(), 1, "{text}");
    }
}
