//! Measures what our admission policies add to what a kubelet does most often: it reports the status of its Node.

use std::time::Instant;

use anyhow::{Context as _, Result};
use brupop_testbed::median;
use brupop_testbed::nodes::NewNode;
use brupop_testbed::operator::apply_overlay;
use brupop_testbed::{ControlPlane, Options};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::table::Figure;

/// Number of reports to each of the two API servers.
const REPORTS: u32 = 1500;

/// Reports in turn to an API server without the operator and to one with it.
pub async fn measure() -> Result<Vec<Figure>> {
    let bare = ControlPlane::start(Options::API).await?;
    let installed = ControlPlane::start(Options::API).await?;
    apply_overlay(&installed, "default").await?;
    let node = NewNode::numbered(0);
    let servers = [
        kubelet(&bare, &node).await?,
        kubelet(&installed, &node).await?,
    ];
    let mut times = [vec![], vec![]];
    for number in 0..REPORTS {
        for (nodes, times) in servers.iter().zip(&mut times) {
            let began = Instant::now();
            report(nodes, &node.name, number).await?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let [without, with] = times.map(|times| median(times).unwrap_or(f64::NAN));
    let medians = format!("{with:.2} ms of {without:.2}; median of {REPORTS}");
    let what = "a kubelet's report, relative to a cluster without the operator";
    Ok(vec![
        Figure::new(what, with / without, "")
            .aim(1.02)
            .note(medians),
    ])
}

/// The Nodes as their kubelet reaches them, once there is one.
async fn kubelet(control_plane: &ControlPlane, node: &NewNode) -> Result<Api<Node>> {
    node.create(&control_plane.client()).await?;
    let file = control_plane.dir().join("kubelet");
    let user = format!("system:node:{}", node.name);
    control_plane.kubeconfig_of_user(&file, &user, Some("system:nodes"))?;
    let config = Kubeconfig::read_from(file)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Api::all(Client::try_from(config)?))
}

async fn report(nodes: &Api<Node>, name: &str, number: u32) -> Result<()> {
    // As many images as a kubelet names.
    let image = |of: u32| json!({"names": [format!("registry.example/team/service-{of}:{number}")], "sizeBytes": 4_000_000});
    let images = (0..50).map(image);
    let status = json!({"status": {"images": images.collect::<Vec<_>>()}});
    let (params, status) = (PatchParams::default(), Patch::Strategic(status));
    nodes
        .patch_status(name, &params, &status)
        .await
        .context("a report")?;
    Ok(())
}
