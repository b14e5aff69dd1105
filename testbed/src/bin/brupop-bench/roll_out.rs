//! One roll-out: hosts act at once and reboot in 2 s, there is nothing to drain, and no node tries the version first.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::names;
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::{History, Outcome};
use brupop_testbed::host::Durations;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, binaries, programs, throw_away_overlay};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, NewNode, Options, await_until};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use crate::moments::{self, Moment};
use crate::requests::{self, Requests};

/// How long a host is away.
pub const REBOOT: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(90);
/// Nothing more is to come of a roll-out when nothing came for so long: conditions are written after 0.4 s, and after 5 s
/// at the latest.
const AT_REST: Duration = Duration::from_secs(6);
/// Who asked for what, with the bodies that tell what was written.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived"], "omitManagedFields": true,
  "rules": [
    {"level": "Request", "verbs": ["create", "patch", "update"], "resources": [
      {"group": "brupop.bottlerocket.aws"}, {"group": "", "resources": ["nodes", "nodes/status"]},
      {"group": "events.k8s.io"}]},
    {"level": "Metadata"}
  ]
}"#;

/// Where reconciler and webhook run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the nodes that are updated, as in most clusters: then they are evicted like other pods.
    OnTheFleet,
    /// On nodes that are not opted in.
    Elsewhere,
}

impl Display for Place {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::OnTheFleet => "on these nodes",
            Self::Elsewhere => "on other nodes",
        })
    }
}

/// What was measured.
pub struct RollOut {
    /// What became of each node.
    pub outcomes: BTreeMap<String, Outcome>,
    /// From the first change of a spec to the last node's Idle.
    pub took: Duration,
    /// What the operator asked of the API server.
    pub requests: Requests,
    /// What happened to each node, in order.
    pub moments: BTreeMap<String, Vec<Moment>>,
}

impl RollOut {
    /// Starts a fleet, publishes a version, and awaits that every node runs it.
    ///
    /// # Errors
    /// Something does not start, or the fleet is not updated in time.
    pub async fn run(nodes: usize, limit: &str, place: Place) -> Result<Self> {
        let fleet = start(nodes, limit, place).await?;
        let mut audit = fleet.control_plane.audit().from_now();
        let published = Timestamp::now();
        fleet.publish(NEW)?;
        let updated = |history: &History| history.now().all(|(_, seen)| !seen.has_shadow || seen.runs(NEW));
        fleet.until("every node is updated", DEADLINE, updated).await?;
        let mut events: Vec<Event> = vec![];
        let mut since = Instant::now();
        await_until("nothing more is asked", DEADLINE, async || {
            let came = audit.read().ok()?;
            if came.iter().any(requests::is_of_a_roll_out) {
                since = Instant::now();
            }
            events.extend(came);
            (since.elapsed() >= AT_REST).then_some(())
        })
        .await?;
        let history = fleet.history();
        let outcomes: BTreeMap<_, _> =
            history.outcomes().into_iter().filter(|(_, outcome)| outcome.duration.is_some()).collect();
        Ok(Self {
            took: history.duration().context("no update")?,
            outcomes,
            requests: Requests::of(&events),
            moments: moments::of(&events, &fleet.hosts, published),
        })
    }

    /// Median of what each node took beyond host, drain and reboot.
    pub fn overhead(&self) -> Duration {
        let beyond = |outcome: &Outcome| Some(outcome.duration?.saturating_sub(REBOOT + outcome.drain));
        let mut all: Vec<Duration> = self.outcomes.values().filter_map(beyond).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

async fn start(nodes: usize, limit: &str, place: Place) -> Result<Fleet> {
    let binaries = binaries(&["brupop-agent", "brupop-reconciler", "brupop-webhook"])?;
    // The shipped configuration, but for what a benchmark has no time for.
    let env = [
        ("MAX_CONCURRENT_UPDATE", limit),
        ("MAX_FAILURES_OF_NEW_VERSION", "unlimited"),
        ("SOAK_SECONDS", "0"),
        ("REFRESH_INTERVAL", "2s"),
        ("START_JITTER", "0s"),
        ("POLL_INTERVAL", "50ms"),
    ];
    let options = FleetOptions {
        nodes,
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        durations: Durations { reboot: REBOOT, ..Durations::default() },
        control_plane: Options { audit_policy: Some(AUDIT_POLICY), ..Options::CLUSTER },
        ..FleetOptions::default()
    };
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        match place {
            Place::OnTheFleet => apply_overlay(control_plane, "default").await?,
            Place::Elsewhere => install_elsewhere(control_plane).await?,
        };
        Ok(programs(&binaries, env))
    };
    let mut fleet = Fleet::bare(&options, install, |_| ()).await?;
    fleet.watch();
    for number in 0..nodes {
        fleet.join(number, options.durations).await?;
    }
    let idle = |history: &History| {
        let of_fleet: Vec<_> = history.now().filter(|(_, seen)| seen.has_shadow).collect();
        of_fleet.len() == nodes && of_fleet.iter().all(|(_, seen)| seen.is_idle() && seen.version.is_some())
    };
    fleet.until("every shadow is Idle and every host is known", DEADLINE, idle).await?;
    // A leader whose replicas all run has nothing left to do that would be counted.
    for workload in ["deployment/brupop-webhook", "deployment/brupop-reconciler"] {
        let arguments = ["-n", NAMESPACE, "rollout", "status", workload, "--timeout=60s"];
        fleet.control_plane.kubectl(arguments).await?;
    }
    Ok(fleet)
}

/// Label of the nodes that reconciler and webhook run on.
const INFRASTRUCTURE: &str = "bench/infrastructure";

/// Three nodes that are not opted in, and the overlay with reconciler and webhook on them.
async fn install_elsewhere(control_plane: &ControlPlane) -> Result<String> {
    for number in 0..3 {
        let mut node = NewNode::numbered(number)?;
        node.name = format!("infrastructure-{number}");
        node.labels.remove(names::UPDATER_INTERFACE_LABEL);
        node.labels.insert(INFRASTRUCTURE.to_owned(), "true".to_owned());
        node.create(&control_plane.client()).await?;
    }
    let there = json!([{
        "op": "add", "path": "/spec/template/spec/nodeSelector", "value": {INFRASTRUCTURE: "true"},
    }]);
    let patch =
        |name: &str| json!({"target": {"kind": "Deployment", "name": name}, "patch": there.to_string()});
    let overlay = json!({
        "resources": ["kustomize/overlays/default"],
        "patches": [patch("brupop-reconciler"), patch("brupop-webhook")],
    });
    let overlay = throw_away_overlay(control_plane, "elsewhere", overlay)?;
    apply_overlay(control_plane, overlay).await
}
