//! Which faults people and tenants make, by the API server.

use anyhow::{Context as _, Result};
use brupop_api::names::{
    FLEET, PAUSE_ANNOTATION, UPDATE_NOW_ANNOTATION, UPDATER_INTERFACE_LABEL,
    UPDATER_INTERFACE_VERSION,
};
use brupop_testbed::host::Host;
use kube::Client;
use serde_json::json;

use crate::fault::Fault;
use crate::{people, pools, tenants, workloads};

/// Somebody does what makes this fault, or what takes it back; nothing, if it is none of theirs. `host`: that of the fault's
/// node.
pub(crate) async fn does(
    client: Client,
    host: Option<Host>,
    fault: Fault,
    make: bool,
) -> Result<()> {
    let host = host.context("there is no such host");
    let annotation =
        |name: &str| json!({"metadata": {"annotations": {name: make.then_some("true")}}});
    match fault {
        Fault::Recreate { node } => {
            people::remove_node(client.clone(), node).await?;
            people::add_node(client, node, host?).await
        }
        Fault::RemovedWhenUpdated { node, .. } if make => {
            people::remove_when_updated(client, node).await
        }
        Fault::Leave { node, .. } if make => people::remove_node(client, node).await,
        Fault::Leave { node, .. } | Fault::RemovedWhenUpdated { node, .. } => {
            people::add_node(client, node, host?).await
        }
        Fault::Relabel { node, pool, .. } if make => pools::label(client, node, pool).await,
        Fault::Relabel { node, .. } => {
            pools::label(client, node, pools::tier(node).to_owned()).await
        }
        Fault::Pool { pool, change, .. } if make => pools::change(client, pool, change).await,
        Fault::Pool { pool, .. } => pools::restore(client, pool).await,
        Fault::Configure {
            component,
            setting,
            value,
        } => people::configure(client, component, setting, value).await,
        Fault::Throttled { .. } => tenants::throttle(client, make).await,
        Fault::Refused { .. } => tenants::refuse(client, make).await,
        Fault::Cordon { node, .. } if make => people::cordon(client, node).await,
        Fault::Drain { node, .. } if make => people::drain(client, node).await,
        Fault::Cordon { node, .. } | Fault::Drain { node, .. } => {
            people::uncordon_own(client, node).await
        }
        Fault::Uncordon { node } => people::uncordon(client, node).await,
        Fault::PauseNode { node, .. } => {
            people::patch_node(&client, node, annotation(PAUSE_ANNOTATION)).await
        }
        Fault::PauseFleet { .. } => {
            people::merge(
                &people::fleets(client),
                FLEET,
                json!({"spec": {"paused": make}}),
            )
            .await
        }
        Fault::ResumeVersions => people::resume_versions(client).await,
        Fault::DeleteFleet => people::delete(&people::fleets(client), FLEET).await,
        Fault::Unlabel { node, .. } => {
            let label =
                json!({UPDATER_INTERFACE_LABEL: (!make).then_some(UPDATER_INTERFACE_VERSION)});
            people::patch_node(&client, node, json!({"metadata": {"labels": label}})).await
        }
        Fault::UpdateNow { node, .. } => {
            people::patch_node(&client, node, annotation(UPDATE_NOW_ANNOTATION)).await
        }
        // The API server stores it, and the reconciler overwrites it.
        Fault::EditSpec { node, spec } => {
            people::merge(
                &people::shadows(client),
                &people::shadow_name(node),
                json!({"spec": spec}),
            )
            .await
        }
        Fault::EditStatus { node, status } => people::edit_status(client, node, status).await,
        Fault::DeleteShadow { node } => {
            people::delete(&people::shadows(client), &people::shadow_name(node)).await
        }
        Fault::CloseBudget { workload, .. } => tenants::budget(client, workload, !make).await,
        Fault::AnotherBudget {
            workload,
            unreadable,
            ..
        } if make => tenants::another_budget(client, workload, unreadable).await,
        Fault::AnotherBudget { workload, .. } => {
            tenants::delete_another_budget(client, workload).await
        }
        Fault::Scale {
            workload, replicas, ..
        } => workloads::scale(client, workload, make.then_some(replicas)).await,
        Fault::BadRollOut { workload, .. } => workloads::roll_out(client, workload, make).await,
        Fault::Unhealthy { workload, pods, .. } => {
            workloads::set_ready(client, workload, pods, !make).await
        }
        Fault::StuckPod { node, .. } if make => workloads::stuck_pod(client, node).await,
        Fault::StuckPod { node, .. } => workloads::release_pod(client, node).await,
        Fault::ClockAhead { node } => people::set_times_ahead(client, node).await,
        Fault::UnmanagedPod { node, .. } if make => tenants::pod(client, node).await,
        Fault::UnmanagedPod { node, .. } => tenants::delete_pod(client, node).await,
        Fault::UnreadableMarker { node, .. } => people::break_marker(client, node, make).await,
        _ => Ok(()),
    }
}
