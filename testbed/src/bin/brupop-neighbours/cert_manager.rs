//! cert-manager: it makes the webhook's certificate, renews it every ten seconds, and publishes its authority.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, programs, throw_away_overlay};
use brupop_testbed::run::Check;
use brupop_testbed::sandbox::Process;
use brupop_testbed::{ControlPlane, Fleet, FleetOptions};
use jiff::Timestamp;
use serde_json::json;
use tokio::process::Command;
use tokio::time::{interval, sleep};

use crate::report::{apply_files, check, rests};

const PROGRAM: &str = "cert-manager";
const CONFIGURATION: &str = "brupop-webhook";
const NODES: usize = 12;
const RENEWAL: Duration = Duration::from_secs(10);
/// So the update takes a minute, and agents report all the time.
const SOAK: (&str, &str) = ("SOAK_SECONDS", "3");
/// For this long it is counted how often the webhook repairs `caBundle`: every ten seconds at most.
const FIGHT: Duration = Duration::from_mins(1);

/// Renewals refuse no report of an agent, and nobody fights over `caBundle` for ever.
pub async fn beside(neighbours: &Path) -> Result<Vec<Check>> {
    let mut cert_manager = None;
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        apply_files(control_plane, &neighbours.join("definitions/cert-manager")).await?;
        cert_manager = Some(start(control_plane, neighbours)?);
        let kustomization = json!({
            "resources": ["kustomize/overlays/default"], "components": ["kustomize/components/cert-manager"],
        });
        apply_overlay(
            control_plane,
            throw_away_overlay(control_plane, "provided", kustomization)?,
        )
        .await?;
        programs(env)
    };
    let fleet = Fleet::start_with(&FleetOptions::quick(NODES, &[SOAK]), install).await;
    let mut cert_manager = cert_manager.context("cert-manager was not started")?;
    let fleet = fleet.with_context(|| format!("cert-manager said: {}", cert_manager.tail()))?;
    let mut checks = vec![renewals(&fleet).await?];
    checks.push(rests(PROGRAM, fleet.control_plane.audit()).await?);
    checks.push(fight(&fleet).await?);
    cert_manager.check()?;
    Ok(checks)
}

fn start(control_plane: &ControlPlane, neighbours: &Path) -> Result<Process> {
    let mut command = Command::new(neighbours.join(PROGRAM));
    command
        .arg(control_plane.kubeconfig())
        .env_clear()
        .env("HOME", control_plane.dir());
    control_plane.sandbox().spawn(PROGRAM, command)
}

/// While the fleet is updated, the certificate is renewed every ten seconds.
async fn renewals(fleet: &Fleet) -> Result<Check> {
    let control_plane = &fleet.control_plane;
    let mut audit = control_plane.audit().from_now();
    let mut last = served(fleet).await?;
    fleet.publish(NEW)?;
    let mut renewals = 0;
    let renew = async {
        let mut ticks = interval(RENEWAL);
        loop {
            ticks.tick().await;
            let now = served(fleet).await?;
            renewals += u32::from(now != last);
            last = now;
            // As `cmctl renew` does it.
            let issuing = json!({"status": {"conditions": [{
                "type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
                "message": "by-hand", "lastTransitionTime": Timestamp::now(),
            }]}});
            let renew = format!(
                "patch certificate brupop-webhook -n {NAMESPACE} --subresource=status --type=merge --patch={issuing}"
            );
            fleet.kubectl(&renew).await?;
        }
    };
    let ended: Result<()> = tokio::select! {
        failed = renew => failed,
        updated = fleet.until_updated(NEW) => updated,
    };
    ended?;
    ensure!(
        renewals >= 3,
        "cert-manager renewed the certificate {renewals} times only"
    );
    let reports = audit.read()?.into_iter().filter(|event| {
        event.verb == "patch"
            && event.object.resource == "bottlerocketshadows"
            && event.object.subresource == "status"
            && event.is_by("brupop-agent")
    });
    let codes: Vec<u16> = reports.map(|event| event.code()).collect();
    let refused = codes.iter().filter(|code| **code >= 400).count();
    let found = format!(
        "{refused} of {} reports refused, {renewals} renewals",
        codes.len()
    );
    Ok(check(
        PROGRAM,
        "renewals every 10 s in an update refuse no report",
        found,
        refused == 0,
    ))
}

/// Returns what the webhook is to serve, as text.
async fn served(fleet: &Fleet) -> Result<String> {
    let data = r"jsonpath={.data.tls\.crt}";
    let get = format!("get secret brupop-webhook-tls -n {NAMESPACE} -o {data}");
    fleet.kubectl(&get).await
}

/// Our webhook keeps its own certificate again, and the annotation of the component was left behind.
async fn fight(fleet: &Fleet) -> Result<Check> {
    let control_plane = &fleet.control_plane;
    apply_overlay(control_plane, "default").await?;
    let annotation = format!("cert-manager.io/inject-ca-from={NAMESPACE}/brupop-webhook");
    let webhooks = "validatingwebhookconfiguration";
    fleet
        .kubectl(&format!(
            "annotate {webhooks} {CONFIGURATION} --overwrite {annotation}"
        ))
        .await?;
    fleet.until_rolled_out(NAMESPACE, "brupop-webhook").await?;
    sleep(FIGHT).await;
    let mut audit = control_plane.audit().from_now();
    sleep(FIGHT).await;
    let writes = audit.read()?.into_iter().filter(|event| {
        event.is_about("validatingwebhookconfigurations", CONFIGURATION)
            && event.is_write()
            && event.code() < 300
    });
    let users: Vec<String> = writes.map(|event| event.user.username).collect();
    let ours = users
        .iter()
        .filter(|user| user.ends_with(":brupop-webhook"))
        .count();
    let found = format!("{ours} writes of ours, {} in all", users.len());
    // Six by each of two replicas, and what falls on the edges.
    let holds = (1..=14).contains(&ours) && users.len() > ours;
    Ok(check(
        PROGRAM,
        "annotation left behind: caBundle is repaired every ten seconds at most",
        found,
        holds,
    ))
}
