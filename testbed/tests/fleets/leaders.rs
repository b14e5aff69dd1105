//! Two reconcilers that both believe to lead: the shipped program on a real control plane, started here.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{LEASE, RECONCILER_ACCOUNT};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::{Process, Signal};
use brupop_testbed::{Bearer, Fleet, await_until};
use tokio::process::Command;

use crate::went_well::went_well;

const LIMIT: usize = 2;
/// Stands for the pod's name of both: the Lease is held under it.
const TWIN: &str = "twin";

/// Under one name both hold the Lease, renew it, and believe to lead: nothing but the ledger's term and the tests of the
/// writes keeps them apart.
#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_leaders_stay_within_the_limit() -> Result<()> {
    let mut fleet = Fleet::quick(4, &[]).await?;
    fleet.scale("reconciler", 0).await?;
    fleet.deploy("cart", 8, "4").await?;
    fleet.publish(NEW)?;
    let twins = [start(&fleet).await?, start(&fleet).await?];
    let updated = fleet.until_updated(NEW).await;
    updated.with_context(|| fleet.control_plane.log(TWIN))?;
    went_well(&fleet, LIMIT).await?;
    let events = fleet.control_plane.audit().read()?;
    for (_, bearer) in &twins {
        let began = |event: &&Event| bearer.asked(event) && begins_a_term(event);
        let terms = events.iter().filter(began).count();
        ensure!(terms > 1, "it began to lead {terms} times");
    }

    // A leader that ends gives its Lease back, so that nobody waits until it has run out.
    for (twin, _) in &twins {
        twin.signal(Signal::TERM)?;
    }
    let holder = format!("get lease -n {NAMESPACE} {LEASE} -o jsonpath={{.spec.holderIdentity}}");
    await_until("the Lease is given back", async || {
        fleet.kubectl(&holder).await.ok()?.is_empty().then_some(())
    })
    .await?;
    fleet.check()
}

/// Starts a reconciler with a token of its own, by which the audit log tells it from the other one.
async fn start(fleet: &Fleet) -> Result<(Process, Bearer)> {
    let plane = &fleet.control_plane;
    let token = plane.token(NAMESPACE, RECONCILER_ACCOUNT).await?;
    let bearer = Bearer::of(plane, &token, NAMESPACE).await?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).to_string();
    let mut command = Command::new(binaries(&["brupop-reconciler"])?.join("brupop-reconciler"));
    command
        .env_clear()
        .envs(bearer.variables())
        .env("POD_NAME", TWIN)
        .env("HEALTH_ADDRESS", &any_port)
        .env("METRICS_ADDRESS", &any_port)
        .env("MIN_NODE_AGE_SECONDS", "0")
        .env("SOAK_SECONDS", "0")
        .env("MAX_CONCURRENT_UPDATE", LIMIT.to_string())
        .env("LEASE_DURATION_SECONDS", "3");
    Ok((plane.sandbox().spawn(TWIN, command)?, bearer))
}

fn begins_a_term(event: &Event) -> bool {
    let patch = event.request_object.as_ref();
    let operations = patch.and_then(|patch| patch.as_array());
    let sets_term = |operation: &serde_json::Value| {
        operation["path"] == "/status/term" && operation["op"] != "test"
    };
    event.is_about("bottlerocketfleets", "fleet")
        && (200..300).contains(&event.code())
        && operations.is_some_and(|operations| operations.iter().any(sets_term))
}
