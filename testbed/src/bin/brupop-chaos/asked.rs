//! Which faults people and tenants make, by the API server.

use anyhow::Result;
use brupop_testbed::Fleet;
use brupop_testbed::host::Host;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::fault::Fault;
use crate::refuser::Refuser;
use crate::{people, pools, tenants, workloads};

/// What somebody does by the API server.
pub(crate) type Does = BoxFuture<'static, Result<()>>;

/// What somebody is asked to do so that this fault is made, or taken back; nothing, if it is none of theirs.
pub(crate) fn of(fleet: &Fleet, refuser: &Refuser, fault: &Fault, make: bool) -> Option<Does> {
    let client = fleet.client();
    Some(match fault.clone() {
        Fault::Recreate { node } => {
            let host = host(fleet, node)?;
            let again = async move {
                people::remove_node(client.clone(), node).await?;
                people::add_node(client, node, host).await
            };
            again.boxed()
        }
        Fault::RemovedWhenUpdated { node, .. } if make => people::remove_when_updated(client, node).boxed(),
        Fault::Leave { node, .. } if make => people::remove_node(client, node).boxed(),
        Fault::Leave { node, .. } | Fault::RemovedWhenUpdated { node, .. } | Fault::Join { node } => {
            people::add_node(client, node, host(fleet, node)?).boxed()
        }
        Fault::Relabel { node, pool, .. } if make => pools::label(client, node, pool).boxed(),
        Fault::Relabel { node, .. } => pools::label(client, node, pools::tier(node).to_owned()).boxed(),
        Fault::Pool { pool, change, .. } if make => pools::change(client, pool, change).boxed(),
        Fault::Pool { pool, .. } => pools::restore(client, pool).boxed(),
        Fault::Configure { component, setting, value } => {
            people::configure(client, component, setting, value).boxed()
        }
        Fault::Throttled { .. } => tenants::throttle(client, make).boxed(),
        Fault::Refused { code, .. } => {
            let refusing = make.then(|| refuser.configuration(code));
            tenants::refuse(client, refusing).boxed()
        }
        Fault::Cordon { node, .. } if make => people::cordon(client, node).boxed(),
        Fault::Drain { node, .. } if make => people::drain(client, node).boxed(),
        Fault::Cordon { node, .. } | Fault::Drain { node, .. } => people::uncordon_own(client, node).boxed(),
        Fault::Uncordon { node } => people::uncordon(client, node).boxed(),
        Fault::PauseNode { node, .. } => people::pause_node(client, node, make).boxed(),
        Fault::PauseFleet { .. } => people::pause_fleet(client, make).boxed(),
        Fault::Acknowledge => people::acknowledge(client).boxed(),
        Fault::DeleteFleet => people::delete_fleet(client).boxed(),
        Fault::Unlabel { node, .. } => people::label(client, node, !make).boxed(),
        Fault::UpdateNow { node, .. } => people::update_now(client, node, make).boxed(),
        Fault::EditSpec { node, what } => people::edit_spec(client, node, what).boxed(),
        Fault::EditStatus { node, what } => people::edit_status(client, node, what).boxed(),
        Fault::DeleteShadow { node } => people::delete_shadow(client, node).boxed(),
        Fault::CloseBudget { workload, .. } => tenants::budget(client, workload, !make).boxed(),
        Fault::AnotherBudget { workload, unreadable, .. } if make => {
            tenants::another_budget(client, workload, unreadable).boxed()
        }
        Fault::AnotherBudget { workload, .. } => tenants::delete_another_budget(client, workload).boxed(),
        Fault::Scale { workload, replicas, .. } => {
            workloads::scale(client, workload, make.then_some(replicas)).boxed()
        }
        Fault::BadRollOut { workload, .. } => workloads::roll_out(client, workload, make).boxed(),
        Fault::Unhealthy { workload, pods, .. } => {
            workloads::set_ready(client, workload, pods, !make).boxed()
        }
        Fault::StuckPod { node, .. } if make => workloads::stuck_pod(client, node).boxed(),
        Fault::StuckPod { node, .. } => workloads::release_pod(client, node).boxed(),
        Fault::ClockAhead { node } => people::set_times_ahead(client, node).boxed(),
        Fault::UnmanagedPod { node, .. } if make => tenants::pod(client, node).boxed(),
        Fault::UnmanagedPod { node, .. } => tenants::delete_pod(client, node).boxed(),
        Fault::UnreadableMarker { node, .. } => people::break_marker(client, node, make).boxed(),
        _ => return None,
    })
}

fn host(fleet: &Fleet, node: usize) -> Option<Host> {
    fleet.hosts.get(node).cloned()
}
