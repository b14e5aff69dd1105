//! What every replica sees: hosts, failures, the ledger.

use brupop_api::{BottlerocketShadow, State};
use brupop_core::cluster::Cluster;
use prometheus_client::registry::Registry;

use super::labels::{label, tally};
use super::{MAX_VERSIONS, gauge, gauges};

/// The most reasons of failures with a series of their own. The words are ours, or those of an earlier release.
const MAX_FAILURES: usize = 32;

pub(super) fn register(registry: &mut Registry, cluster: &Cluster) {
    let readable = || cluster.shadows().filter_map(|shadow| shadow.ok());
    let reported = || readable().filter_map(|shadow| shadow.status.as_ref());
    let in_state = |state| {
        reported()
            .filter(|status| status.current_state == Some(state))
            .count()
    };
    let states = State::ALL
        .into_iter()
        .map(|state| (state.as_str(), in_state(state)));
    registry.register(
        "brupop_hosts_state",
        "Bottlerocket hosts by state",
        gauges("state", states),
    );
    let versions = reported().filter_map(|status| status.current_version.as_deref());
    registry.register(
        "brupop_hosts_version",
        "Bottlerocket hosts by version",
        gauges("bottlerocket_version", tally(versions, MAX_VERSIONS)),
    );
    // A node that failed after it had reached the version has nothing to try again.
    let reached = |shadow: &BottlerocketShadow| {
        let current = shadow
            .status
            .as_ref()
            .and_then(|status| status.current_version.as_ref());
        current.is_some() && current == shadow.spec.version.as_ref()
    };
    let failures = readable().filter(|shadow| !reached(shadow));
    let failures =
        failures.filter_map(|shadow| Some(shadow.spec.last_failure.as_ref()?.reason.as_str()));
    registry.register(
        "brupop_nodes_failed",
        "Nodes whose last update failed and that do not run its version, by reason",
        gauges("reason", tally(failures, MAX_FAILURES)),
    );
    register_ledger(registry, cluster);
}

/// The ledger itself limits how many slots and versions there are.
fn register_ledger(registry: &mut Registry, cluster: &Cluster) {
    let ledger = cluster.ledger();
    let slots = ledger.map_or(0, |ledger| ledger.slots.len());
    registry.register("brupop_slots_in_use", "Updates under way", gauge(slots));
    let versions = ledger.into_iter().flat_map(|ledger| &ledger.versions);
    let failures = versions.map(|(version, record)| (label(version), record.failures.len()));
    registry.register(
        "brupop_version_failures",
        "Nodes that failed to reach a version, of those that the ledger remembers",
        gauges("bottlerocket_version", failures),
    );
}
