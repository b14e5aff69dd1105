//! Karpenter with its default settings, and nodes with nothing to spare: our drains leave pods without a place, for which it
//! launches nodes of the old version, and nodes that come back empty are removed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use brupop_api::names::{UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION};
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::{deployment, kubectl};
use brupop_testbed::operator::{apply_elsewhere, owned, programs};
use brupop_testbed::run::Check;
use brupop_testbed::sandbox::Process;
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, free_port};
use serde_json::{Value as Json, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::launched::Launched;
use crate::report::{apply_files, check, rests};

const PROGRAM: &str = "karpenter";
/// Number of nodes that the workload fills.
const NODES: usize = 4;
/// Longest roll-out. It takes a soak of a minute for each node; one that never ends begins a drain every 36 s.
const ROLL_OUT: Duration = Duration::from_mins(10);
/// Time for which all nodes must be up to date, since Karpenter may remove another one.
const QUIET: Duration = Duration::from_secs(30);

/// The roll-out converges, and what each may take out of service stays within its limit.
pub async fn beside(neighbours: &Path) -> Result<Vec<Check>> {
    let settings = [
        ("REFRESH_INTERVAL", "1s"),
        ("START_JITTER", "0s"),
        // As shipped: the test bed sets this to 0.
        ("CORDONED_BY_OTHERS_SECONDS", "3600"),
    ];
    let options = FleetOptions {
        env: owned(&settings),
        ..FleetOptions::default()
    };
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        apply_elsewhere(control_plane).await?;
        programs(env)
    };
    let mut fleet = Fleet::bare(&options, install).await?;
    fleet.watch();
    apply_files(
        &fleet.control_plane,
        &neighbours.join("definitions/karpenter"),
    )
    .await?;
    fleet
        .kubectl("wait --for=condition=Established crd/nodepools.karpenter.sh --timeout=60s")
        .await?;
    kubectl(
        &fleet.control_plane,
        &["apply", "--server-side"],
        &objects(),
    )
    .await?;
    let mut karpenter = start(&fleet.control_plane, neighbours)?;
    let launched = Launched::default();
    let checks = tokio::select! {
        ended = launched.follow(&fleet) => {
            ended?;
            bail!("the watch of Nodes has ended");
        }
        checks = roll_out(&fleet, &launched) => {
            checks.with_context(|| format!("karpenter said: {}", karpenter.tail()))
        }
    }?;
    karpenter.check()?;
    Ok(checks)
}

async fn roll_out(fleet: &Fleet, launched: &Launched) -> Result<Vec<Check>> {
    fleet
        .until("four nodes are launched and known", |history| {
            let known = history
                .now()
                .filter(|(_, seen)| seen.is_idle() && seen.ready);
            known.filter(|(_, seen)| seen.version.is_some()).count() == NODES
        })
        .await?;
    fleet.until_rolled_out("default", "full").await?;
    let before = launched.seen().launched;
    launched.offer(NEW)?;
    let converged = until_converged(fleet, launched, before).await;
    let mut checks = {
        let seen = launched.seen();
        let (updated, all) = seen.updated();
        let took = match converged {
            Some(took) => format!("{updated} of {all} up to date after {} s", took.as_secs()),
            None => format!(
                "not within {} s: {updated} of {all} up to date",
                ROLL_OUT.as_secs()
            ),
        };
        let needless = seen.launched - before;
        let history = fleet.history();
        let nodes = history.outcomes().into_keys();
        let drains: usize = nodes.map(|node| history.updates(&node).len()).sum();
        let needed = format!("{needless} launches, {drains} drains");
        let (ours, theirs) = (history.most_slots(), seen.most_theirs);
        let away = format!("at most {ours}; Karpenter removed {theirs} at once at most");
        let (of, updated) = (seen.removed, seen.removed_updated);
        [
            (
                "the fleet converges with the defaults of both",
                took,
                converged.is_some(),
            ),
            (
                "it launches nodes for drains, at most one for each",
                needed,
                (1..=drains).contains(&needless),
            ),
            (
                "one node at a time is out of service for an update",
                away,
                ours == 1,
            ),
            (
                "no node is removed that is up to date",
                format!("{updated} of {of} removed nodes were"),
                updated == 0,
            ),
        ]
        .map(|(what, found, holds)| check(PROGRAM, what, found, holds))
        .to_vec()
    };
    if converged.is_some() {
        checks.push(rests(PROGRAM, fleet.control_plane.audit()).await?);
    }
    Ok(checks)
}

/// Awaits that all nodes are up to date, and stay so for [`QUIET`]. Returns how long the roll-out took; `None` if it did not end.
async fn until_converged(fleet: &Fleet, launched: &Launched, before: usize) -> Option<Duration> {
    let began = Instant::now();
    let (mut told, mut done_since) = (String::new(), None);
    while began.elapsed() < ROLL_OUT {
        let now = launched.seen().line(before);
        if now != told {
            eprintln!("{:>5} s  {now}", began.elapsed().as_secs());
            (told, done_since) = (now, None);
        }
        if !fleet
            .history()
            .now()
            .all(|(_, seen)| !seen.has_shadow || seen.runs(NEW))
        {
            done_since = None;
        } else if done_since.get_or_insert_with(Instant::now).elapsed() >= QUIET {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    done_since
        .filter(|since| since.elapsed() >= QUIET)
        .map(|since| since - began)
}

/// A node class, a pool with default settings, and a workload that fills its nodes.
fn objects() -> Vec<Json> {
    vec![
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {
                "metadata": {"labels": {UPDATER_INTERFACE_LABEL: UPDATER_INTERFACE_VERSION}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                },
            }},
        }),
        deployment(
            "default",
            "full",
            NODES * 2,
            &json!({"spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"karpenter.sh/nodepool": "default"},
                "containers": [{
                    "name": "full", "image": "none", "resources": {"requests": {"cpu": "1800m", "memory": "1Gi"}},
                }],
            }}),
        ),
    ]
}

/// The only type of machine there is: two pods of the workload fill it.
fn instance_types() -> Json {
    let zone = |zone: &str| {
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        json!({"Price": 1.0, "Available": true, "Requirements": [
            is("karpenter.sh/capacity-type", "on-demand"), is("topology.kubernetes.io/zone", zone)]})
    };
    json!([{
        "name": "m-4x", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "80Gi", "pods": "110"},
        "offerings": [zone("eu-central-1a"), zone("eu-central-1b")],
    }])
}

fn start(control_plane: &ControlPlane, neighbours: &Path) -> Result<Process> {
    let types = control_plane.dir().join("instance-types.json");
    std::fs::write(&types, instance_types().to_string())?;
    let mut command = Command::new(neighbours.join(PROGRAM));
    command
        .env_clear()
        .env("HOME", control_plane.dir())
        .env("KUBECONFIG", control_plane.kubeconfig())
        .env("SYSTEM_NAMESPACE", "kube-system")
        .env("DISABLE_LEADER_ELECTION", "true")
        .env("METRICS_PORT", free_port()?.to_string())
        .env("HEALTH_PROBE_PORT", free_port()?.to_string())
        .env("INSTANCE_TYPES_FILE_PATH", types);
    control_plane.sandbox().spawn(PROGRAM, command)
}
