//! Measures delays after a release is known and after a leader is gone, and memory.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::host::Host;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::usage::Usage;
use brupop_testbed::{Fleet, median};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::Api;

use crate::fleet;
use crate::requests::is_spec;
use crate::say;
use crate::table::Figure;

const NODES: usize = 10;
/// Number of measurements of each delay.
const TIMES: usize = 5;

/// Measures all of it on one fleet.
pub async fn measure() -> Result<Vec<Figure>> {
    let settings = [
        ("MAX_CONCURRENT_UPDATE", "unlimited"),
        ("SOAK_SECONDS", "0"),
        ("REFRESH_INTERVAL", "2s"),
        ("START_JITTER", "0s"),
        ("POLL_INTERVAL", "50ms"),
    ];
    let fleet = fleet::start(NODES, true, &settings).await?;
    let (mut known, mut fail_overs) = (vec![], vec![]);
    for time in 1..=TIMES {
        say(&format!("{time} of {TIMES}"));
        known.push(release(&fleet, &format!("1.2{time}.0")).await?);
        fail_overs.push(fail_over(&fleet, &format!("1.2{time}.1")).await?);
    }
    let note = format!("median of {TIMES}");
    let seconds = |times: Vec<SignedDuration>| {
        median(times.into_iter().map(|time| time.as_secs_f64())).unwrap_or(f64::NAN)
    };
    let moves = "from the host's report of a release to the first step";
    let mut figures = vec![
        Figure::new(format!("{moves}, {NODES} nodes"), seconds(known), "s")
            .aim(0.1)
            .note(&note),
        Figure::new(
            "leader gone -> the next action, beyond the lease",
            seconds(fail_overs),
            "s",
        )
        .aim(0.2)
        .note(note),
    ];
    for (component, aim) in [("agent", 5.5), ("webhook", 10.0), ("reconciler", 12.0)] {
        let mut most: f64 = 0.0;
        for process in fleet.processes(component) {
            most = most.max(Usage::of(process.pid)?.resident);
        }
        let what = format!("{component}: resident, at most, {NODES} nodes");
        figures.push(Figure::new(what, most, "MiB").aim(aim));
    }
    Ok(figures)
}

/// From the moment when the first host has chosen the version to the first change of a spec.
async fn release(fleet: &Fleet, version: &str) -> Result<SignedDuration> {
    let mut audit = fleet.control_plane.audit().from_now();
    let published = std::time::Instant::now();
    fleet.publish(version)?;
    let moved = first_spec(&mut audit).await?;
    let calls = fleet.hosts.iter().flat_map(Host::calls);
    let looks =
        calls.filter(|call| call.path == "/actions/refresh-updates" && call.at >= published);
    // A refresh takes no time here.
    let chosen = looks.map(|call| call.at).min();
    let chosen = chosen.context("no host has looked for updates")?;
    let chosen = Timestamp::now() - SignedDuration::try_from(chosen.elapsed())?;
    fleet.until_updated(version).await?;
    Ok(moved.duration_since(chosen))
}

/// Awaits the first change of a spec; returns when it was asked for.
async fn first_spec(audit: &mut AuditReader) -> Result<Timestamp> {
    Ok(audit
        .wait_for("a change of a spec", is_spec)
        .await?
        .request_received_timestamp)
}

/// From the moment when the Lease of a leader has run out, which is frozen while its fleet learns of a version, to the
/// first change of a spec by the next one.
async fn fail_over(fleet: &Fleet, version: &str) -> Result<SignedDuration> {
    let leases = Api::<Lease>::namespaced(fleet.client(), NAMESPACE);
    let held = async || leases.get(LEASE).await?.spec.context("an empty Lease");
    let leader = held().await?.holder_identity.context("nobody leads")?;
    fleet.kubelets.signal(NAMESPACE, &leader, Signal::STOP);
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.publish(version)?;
    let LeaseSpec {
        holder_identity,
        renew_time,
        lease_duration_seconds,
        ..
    } = held().await?;
    ensure!(
        holder_identity.as_ref() == Some(&leader),
        "another leader came before this one was gone"
    );
    let renewed = renew_time.context("a Lease that was never renewed")?.0;
    let out =
        renewed + SignedDuration::from_secs(lease_duration_seconds.context("no duration")?.into());
    let moved = first_spec(&mut audit).await?;
    fleet.kubelets.signal(NAMESPACE, &leader, Signal::KILL);
    fleet.until_updated(version).await?;
    // The one that was frozen is there to take over the next time.
    fleet
        .until_rolled_out(NAMESPACE, "brupop-reconciler")
        .await?;
    Ok(moved.duration_since(out))
}
