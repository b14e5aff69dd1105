//! Properties of every roll-out in which hosts obey, whatever became of the operator's processes.

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::NEW;
use brupop_testbed::fleet::Records as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

/// Each node was rebooted once, and never more than the limit were out of service.
pub fn assert_kind(fleet: &Fleet, limit: usize) -> Result<()> {
    let history = fleet.history();
    for (node, outcome) in history.outcomes() {
        let reboots = outcome.boots - 1;
        ensure!(reboots == 1, "{node} was rebooted {reboots} times");
    }
    let away = history.most_unavailable();
    ensure!(away <= limit, "{away} nodes were away at once");
    Ok(())
}

/// The same; never more than the limit had a slot, every update is counted once, none failed, and nothing is left on any
/// Node. No policy refused the reconciler's Lease or its Events: that an Event is lost shows nowhere else.
pub async fn went_well(fleet: &Fleet, limit: usize) -> Result<()> {
    assert_kind(fleet, limit)?;
    let slots = fleet.history().most_slots();
    ensure!(slots == limit, "{slots} slots were taken at once");
    let status = fleet.until_no_slot_is_taken().await?;
    let record = status.record(NEW);
    let nodes = u64::try_from(fleet.hosts.len())?;
    ensure!(
        record.succeeded == nodes && record.failures.is_empty(),
        "{record:?}"
    );
    for node in Api::<Node>::all(fleet.client())
        .list(&ListParams::default())
        .await?
    {
        fleet.assert_node_is_clean(&node.name_any()).await?;
    }
    for shadow in fleet.shadows().list(&ListParams::default()).await? {
        let crashes = shadow
            .status
            .and_then(|status| status.crash_count)
            .unwrap_or(0);
        ensure!(
            crashes == 0 && shadow.spec.last_failure.is_none(),
            "{crashes} crashes: {:?}",
            shadow.spec
        );
    }
    for event in fleet.control_plane.audit().read()? {
        let refused = event.message().contains("'brupop-reconciler-records'");
        ensure!(!refused, "{}: {}", event.object.resource, event.message());
    }
    Ok(())
}
