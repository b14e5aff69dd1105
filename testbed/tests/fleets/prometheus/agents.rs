//! Agents, whose metrics somebody has asked for: the component agent-metrics.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::host::Host;
use brupop_testbed::operator::{apply_overlay, programs, throw_away_overlay};
use brupop_testbed::prometheus::{Prometheus, Vector};
use brupop_testbed::scrape::Scraper;
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, await_until};
use serde_json::json;

use crate::prometheus::number;

/// A fleet whose agents serve metrics, too.
pub async fn fleet(options: &FleetOptions) -> Result<Fleet> {
    let overlay = json!({
        "resources": ["kustomize/overlays/default"], "components": ["kustomize/components/agent-metrics"],
    });
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        let folder = throw_away_overlay(control_plane, "agents-too", overlay)?;
        apply_overlay(control_plane, &folder).await?;
        programs(env)
    };
    Fleet::start_with(options, install).await
}

/// Each agent lets those in who may read, by the rights of the component and no others.
pub async fn are_for_those_who_may_read_them(
    fleet: &Fleet,
    reader: &Scraper,
    stranger: &Scraper,
) -> Result<()> {
    let agents = fleet.processes("agent");
    ensure!(agents.len() == fleet.hosts.len(), "{agents:?}");
    for agent in &agents {
        for (says, scraper, expected) in [
            ("no token", &Scraper::without_token(), 401),
            ("a made-up token", &Scraper::with_token("made-up"), 401),
            ("an account that may not", stranger, 403),
            ("an account that may", reader, 200),
        ] {
            let status = scraper.status(agent).await?;
            ensure!(status == expected, "{}: {says}: {status}", agent.pod);
        }
    }
    let events = fleet.control_plane.audit().from_start().read()?;
    for resource in ["tokenreviews", "subjectaccessreviews"] {
        let mut asked = events
            .iter()
            .filter(|event| event.is_by("brupop-agent") && event.object.resource == resource);
        let first = asked
            .next()
            .with_context(|| format!("no agent asked for {resource}"))?;
        let why = &first.annotations["authorization.k8s.io/reason"];
        ensure!(
            first.code() == 201 && why.contains(r#"ClusterRoleBinding "brupop-agent-metrics""#),
            "{why}"
        );
    }
    Ok(())
}

/// What agents have asked their hosts is what the hosts were asked. To be asked before a reboot: an agent then counts
/// again.
pub async fn calls_are_those_of_the_hosts(fleet: &Fleet, prometheus: &Prometheus) -> Result<()> {
    let (mut told, hosts) = (Vector::new(), number(fleet.hosts.len())?);
    let agree = await_until("the hosts' calls are counted", async || {
        let calls = "sum by (call, result) (brupop_agent_host_api_calls_total)";
        told = prometheus.query(calls, &["call", "result"]).await.ok()?;
        let enough = ["os/ok", "status/ok", "refresh/begun"]
            .iter()
            .all(|what| told.get(*what) >= Some(&hosts));
        // An agent asks what runs once for each boot. The others it makes all the time.
        let asked = fleet
            .hosts
            .iter()
            .flat_map(Host::calls)
            .filter(|call| call.path == "/os")
            .count();
        (enough && told["os/ok"] == number(asked).ok()?).then_some(())
    });
    agree.await.with_context(|| format!("{told:?}"))?;
    let requests = "sum by (verb, code) (brupop_agent_api_requests_total)";
    let requests = prometheus.query(requests, &["verb", "code"]).await?;
    let drops = "sum by (port) (brupop_agent_dropped_connections_total)";
    let drops = prometheus.query(drops, &["port"]).await?;
    ensure!(drops.contains_key("metrics"), "{drops:?}");
    // Each agent has reported.
    ensure!(requests.get("patch/200") >= Some(&hosts), "{requests:?}");
    Ok(())
}
