//! A cluster with the webhook as shipped, and without reconciler and agents: a benchmark plays these.

use anyhow::Result;
use brupop_api::names;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, only};
use brupop_testbed::{ControlPlane, Kubelets, NewNode, Options};
use kube::Client;

/// Who asked for what, and how it was answered.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [{"level": "Metadata"}]}"#;

/// A control plane, and the webhook on nodes that are not opted in.
pub struct Cluster {
    /// They end before what their processes talk to.
    pub kubelets: Kubelets,
    pub control_plane: ControlPlane,
}

impl Cluster {
    /// Starts it with these nodes. Returns when the webhook is ready.
    pub async fn start(nodes: usize) -> Result<Self> {
        let options = Options {
            audit_policy: Some(AUDIT_POLICY),
            ..Options::CLUSTER
        };
        let control_plane = ControlPlane::start(options).await?;
        apply_overlay(&control_plane, "default").await?;
        let nowhere = r#"{"spec": {"template": {"spec": {"nodeSelector": {"bench": "nowhere"}}}}}"#;
        control_plane
            .kubectl([
                "-n",
                NAMESPACE,
                "patch",
                "daemonset",
                "brupop-agent",
                "-p",
                nowhere,
            ])
            .await?;
        let scale = [
            "-n",
            NAMESPACE,
            "scale",
            "deployment",
            "brupop-reconciler",
            "--replicas=0",
        ];
        control_plane.kubectl(scale).await?;
        for number in 0..nodes {
            let mut node = NewNode::numbered(number)?;
            node.name = format!("infrastructure-{number}");
            node.labels.remove(names::UPDATER_INTERFACE_LABEL);
            node.create(&control_plane.client()).await?;
        }
        let kubelets = Kubelets::start(&control_plane, only(&["brupop-webhook"], &[])?);
        control_plane
            .until_rolled_out(NAMESPACE, "deployment/brupop-webhook")
            .await?;
        Ok(Self {
            kubelets,
            control_plane,
        })
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }
}
