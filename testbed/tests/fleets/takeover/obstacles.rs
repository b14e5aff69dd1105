//! Obstacles during the migration: a node is not Ready, and somebody lacks a right.

use anyhow::{Context as _, Result, bail, ensure};
use brupop_testbed::host::HostPower;
use brupop_testbed::objects::cluster_role_binding;
use brupop_testbed::{Fleet, await_until};
use serde_json::json;
use tokio::sync::watch;

use crate::takeover::stored_versions;

const SOMEBODY: &str = "somebody";

/// A node whose kubelet is away: it is not Ready, and no pod goes from it.
pub(crate) struct AbsentNode {
    node: String,
    power: watch::Sender<HostPower>,
    back: HostPower,
}

impl AbsentNode {
    pub(crate) async fn take_down(fleet: &Fleet, number: usize) -> Result<Self> {
        let host = fleet
            .hosts
            .get(number)
            .with_context(|| format!("host {number}"))?;
        let back = HostPower::Up {
            boot_id: host.boot_id(),
            pretty_name: host.pretty_name(),
        };
        let absent = Self {
            node: format!("node-{number}"),
            power: watch::Sender::new(HostPower::Down),
            back,
        };
        fleet
            .kubelets
            .attach(&absent.node, absent.power.subscribe());
        // There is no history yet.
        fleet
            .control_plane
            .wait_for_condition("Ready=False", &["node", &absent.node])
            .await?;
        Ok(absent)
    }

    pub(crate) async fn bring_back(self, fleet: &Fleet) -> Result<()> {
        self.power.send_replace(self.back.clone());
        fleet
            .until_node(&self.node, "it is Ready", |seen| seen.ready)
            .await
    }
}

/// Runs a block where `node-2` is away, and where somebody may not replace the shadow that is stored as `v1`.
pub(crate) async fn run_despite_obstacles(fleet: &Fleet, block: &'static str) -> Result<()> {
    if block.contains("kubectl wait") {
        let impatient = block
            .replace("--timeout=30m", "--timeout=3s")
            .replace("--timeout=5m", "--timeout=3s");
        let (said, went_well) = fleet
            .shell(&fleet.control_plane.kubeconfig(), &impatient)
            .await?;
        // The scheduler may have put none but an agent there.
        let nothing_there = went_well && !block.contains("daemonset");
        ensure!(
            nothing_there || said.contains("timed out waiting"),
            "the node that is away: {said}"
        );
        return Ok(());
    }
    if block.contains("kubectl get pods") {
        let others_went = await_until("only the node that is away is waited for", async || {
            // It is named once for each pod.
            let said = fleet.paste(block).await.ok()?;
            let mut nodes = said
                .lines()
                .skip(1)
                .map(|line| line.split_whitespace().take(2));
            (!said.is_empty() && nodes.all(|node| node.eq(["node-2", "NotReady"]))).then_some(())
        });
        return match others_went.await {
            Ok(()) => Ok(()),
            Err(elapsed) => bail!("{elapsed}: {}", fleet.paste(block).await?),
        };
    }
    if block.contains("storedVersions") {
        allow_all_but_one(fleet).await?;
        let kubeconfig = fleet.control_plane.dir().join(SOMEBODY);
        fleet
            .control_plane
            .kubeconfig_of_user(&kubeconfig, SOMEBODY, None)?;
        let (said, went_well) = fleet.shell(&kubeconfig, block).await?;
        ensure!(
            said.contains("brs-node-0 replaced") && said.contains("\"brs-node-1\" is forbidden"),
            "{said}"
        );
        let stored = stored_versions(fleet).await?;
        ensure!(
            !went_well && stored == ["v1", "v2"],
            "v1 is forgotten, and one is stored so: {stored:?} {said}"
        );
    }
    fleet.paste(block).await.map(drop)
}

/// Somebody may do what makes the API server forget `v1`, and replace all shadows but that of `node-1`.
async fn allow_all_but_one(fleet: &Fleet) -> Result<()> {
    let may = |group: &str, resources: &[&str], names: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs});
    let (group, shadows) = ("brupop.bottlerocket.aws", ["bottlerocketshadows"]);
    let definitions = [
        "customresourcedefinitions",
        "customresourcedefinitions/status",
    ];
    let rules = [
        may("apiextensions.k8s.io", &definitions, &[], &["get", "patch"]),
        may(group, &shadows, &[], &["get", "list"]),
        may(group, &shadows, &["brs-node-0", "brs-node-2"], &["update"]),
    ];
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": SOMEBODY}, "rules": rules});
    fleet
        .apply(&[
            role,
            cluster_role_binding(SOMEBODY, SOMEBODY, "User", SOMEBODY),
        ])
        .await
}
