//! A fleet with nothing to do.

use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_fleet_sends_no_requests() -> Result<()> {
    const QUIET: Duration = Duration::from_mins(1);
    let env = [
        ("REFRESH_INTERVAL", "10s"),
        ("CHECK_INTERVAL_SECONDS", "20"),
        ("LEASE_DURATION_SECONDS", "9"),
    ];
    let mut fleet = Fleet::quick(3, &env).await?;
    let ours = |event: &Event| {
        event
            .user
            .username
            .starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
    };
    // Leases and checks have clocks of their own, and show that the log is read. Watches are renewed after minutes. Beside
    // its check the reconciler looks for upstream's operator.
    let is_lease = |event: &Event| event.object.resource == "leases";
    let is_check = |event: &Event| event.is_dry_run();
    let is_look = |event: &Event| event.verb == "get" && event.object.resource == "deployments";
    let allowed = |event: &Event| {
        event.verb == "watch" || is_lease(event) || is_check(event) || is_look(event)
    };
    let refreshes = |fleet: &Fleet| -> Vec<usize> {
        fleet
            .hosts
            .iter()
            .map(|host| host.count("refresh-updates"))
            .collect()
    };

    let mut audit = fleet.control_plane.audit().from_now();
    let mut since = Instant::now();
    let mut begun = refreshes(&fleet);
    let (mut leases, mut checks, mut looks) = (0, 0, 0);
    let quiet = await_until("60 s without a request", async || {
        for event in audit.read().ok()?.iter().filter(|event| ours(event)) {
            leases += usize::from(is_lease(event) && event.code() == 200);
            checks += usize::from(is_check(event));
            looks += usize::from(is_look(event));
            if !allowed(event) {
                (since, begun) = (Instant::now(), refreshes(&fleet));
                (leases, checks, looks) = (0, 0, 0);
            }
        }
        (since.elapsed() >= QUIET).then_some(())
    });
    quiet.await?;
    ensure!(leases >= 10, "only {leases} renewals of the lease");
    ensure!(checks >= 2, "only {checks} checks");
    ensure!(
        (4..=8).contains(&looks),
        "{looks} questions for upstream's two Deployments"
    );
    let asked: Vec<_> = refreshes(&fleet)
        .iter()
        .zip(begun)
        .map(|(now, before)| now - before)
        .collect();
    ensure!(
        asked.iter().all(|count| *count >= 3),
        "agents that did nothing: {asked:?} refreshes"
    );
    fleet.check()
}
