//! How soon something happens: after a release is known, after a leader is gone, after a program is started.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::usage::Usage;
use brupop_testbed::{DEADLINE, Fleet, await_until, median};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::Api;
use serde_json::json;
use tokio::net::TcpStream;

use crate::fleet::{self, Place};
use crate::requests::{is_report, is_spec, node_of_agent};
use crate::say;
use crate::table::Figure;

const NODES: usize = 10;
/// How often each of them is measured.
const TIMES: usize = 5;
/// The port of the webhook's container that answers probes.
const HEALTH: i32 = 8080;

/// Measures all of it on one fleet.
pub async fn measure() -> Result<Vec<Figure>> {
    let settings = [
        ("MAX_CONCURRENT_UPDATE", "unlimited"),
        ("SOAK_SECONDS", "0"),
        ("REFRESH_INTERVAL", "2s"),
        ("START_JITTER", "0s"),
        ("POLL_INTERVAL", "50ms"),
    ];
    let fleet = fleet::start(NODES, Place::Elsewhere, fleet::quick(), &settings).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 8}}))
        .await?;
    let (mut known, mut reports, mut fail_overs, mut webhooks) = (vec![], vec![], vec![], vec![]);
    for time in 1..=TIMES {
        say(&format!("{time} of {TIMES}"));
        known.push(release(&fleet, &format!("1.2{time}.0"), &mut reports).await?);
        fail_overs.push(fail_over(&fleet, &format!("1.2{time}.1")).await?);
        webhooks.push(webhook(&fleet).await?);
    }
    let note = format!("median of {TIMES}");
    let seconds = |times: Vec<SignedDuration>| {
        median(times.into_iter().map(|time| time.as_secs_f64())).unwrap_or(f64::NAN)
    };
    let agents = format!("median of {}", reports.len());
    let moves = "release known to the host -> first spec moves";
    Ok(vec![
        Figure::new(format!("{moves}, {NODES} nodes"), seconds(known), "s")
            .aim(0.1)
            .note(&note),
        Figure::new(
            "leader gone -> the next action, beyond the lease",
            seconds(fail_overs),
            "s",
        )
        .aim(0.2)
        .note(&note),
        Figure::new("agent's start -> its first report", seconds(reports), "s")
            .aim(0.3)
            .note(agents),
        Figure::new("webhook's start -> ready", seconds(webhooks), "s")
            .aim(1.0)
            .note(note),
    ])
}

/// From the moment when the first host has chosen the version to the first change of a spec. Also notes of each agent,
/// which its host has started again, how long after that it reported.
async fn release(
    fleet: &Fleet,
    version: &str,
    reports: &mut Vec<SignedDuration>,
) -> Result<SignedDuration> {
    let mut audit = fleet.control_plane.audit().from_now();
    let published = std::time::Instant::now();
    fleet.publish(version)?;
    let moved = first_spec(&mut audit).await?;
    let chosen = fleet
        .hosts
        .iter()
        .flat_map(brupop_testbed::host::Host::calls);
    let chosen =
        chosen.filter(|call| call.path == "/actions/refresh-updates" && call.at >= published);
    // A refresh takes no time here.
    let chosen = chosen
        .map(|call| call.at)
        .min()
        .context("no host has looked for updates")?;
    let chosen = Timestamp::now() - SignedDuration::try_from(chosen.elapsed())?;
    fleet::until_updated(fleet, version).await?;
    let events = audit.read()?;
    for agent in fleet.processes("agent") {
        let started = Usage::of(agent.pid)?.started;
        let first = events.iter().find(|event| {
            is_report(event)
                && node_of_agent(event) == Some(&agent.node)
                && event.request_received_timestamp >= started
        });
        let first = first.with_context(|| format!("no report of the agent on {}", agent.node))?;
        reports.push(first.request_received_timestamp.duration_since(started));
    }
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
    fleet::until_updated(fleet, version).await?;
    // The one that was frozen is there to take over the next time.
    fleet
        .control_plane
        .until_rolled_out(NAMESPACE, "deployment/brupop-reconciler")
        .await?;
    Ok(moved.duration_since(out))
}

/// From the start of a replica's process to its first answer that it is ready.
async fn webhook(fleet: &Fleet) -> Result<SignedDuration> {
    let before = fleet
        .processes("webhook")
        .into_iter()
        .next()
        .context("no webhook")?;
    fleet.kubelets.signal(NAMESPACE, &before.pod, Signal::KILL);
    let (pid, address) = await_until("another process of the webhook", async || {
        let now = fleet
            .processes("webhook")
            .into_iter()
            .find(|now| now.pod == before.pod)?;
        (now.pid != before.pid).then_some((now.pid, *now.listens.get(&HEALTH)?))
    })
    .await?;
    let started = Usage::of(pid)?.started;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !is_ready(address).await {
        ensure!(
            tokio::time::Instant::now() < deadline,
            "the webhook does not get ready"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = Timestamp::now().duration_since(started);
    fleet
        .control_plane
        .until_rolled_out(NAMESPACE, "deployment/brupop-webhook")
        .await?;
    Ok(took)
}

async fn is_ready(address: SocketAddr) -> bool {
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = http::Request::get("/readyz")
            .header("host", "webhook")
            .body(Empty::<Bytes>::new())?;
        let answer = client.send_request(request).await?;
        connection.abort();
        anyhow::Ok(answer.status().is_success())
    };
    asked.await.unwrap_or(false)
}
