//! The token that a kubelet has made for an agent, used where it must not be.

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::names::pod_identity;
use brupop_api::{BottlerocketShadow, names};
use brupop_testbed::bearer::extra_of;
use brupop_testbed::machines::processes::running;
use brupop_testbed::objects::merge_status;
use brupop_testbed::operator::NAMESPACE;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const TOKEN: &str = "var/run/secrets/kubernetes.io/serviceaccount/token";

pub async fn see(cluster: &Cluster) -> Result<()> {
    let agent = running("/brupop-agent")?.first().context("no agent")?.pid;
    let token = std::fs::read_to_string(format!("/proc/{agent}/root/{TOKEN}"))
        .context("an agent's token")?;
    let client = cluster.control_plane.client_for_token(&token).await?;
    let (own, other) = own_and_other(cluster, &client).await?;

    println!("-- with the token that the kubelet of {own} has put into its agent's pod");
    let news = json!({"current_version": "6.6.6"});
    let refusal = refused(cluster, &client, &other, news).await?;
    println!("   status of {}: {refusal}", names::shadow_name(&other));
    ensure!(
        refusal.contains("ValidatingAdmissionPolicy"),
        "not refused by the policy"
    );
    let step = json!({"current_state": "MonitoringUpdate"});
    let refusal = refused(cluster, &client, &own, step).await?;
    println!("   a step that is not due, of its own: {refusal}");
    ensure!(
        refusal.contains("admission webhook"),
        "not refused by the webhook"
    );
    Ok(())
}

/// The node that the token names, and another one.
async fn own_and_other(cluster: &Cluster, client: &Client) -> Result<(String, String)> {
    let identity = pod_identity(&extra_of(client).await?).map_err(anyhow::Error::msg)?;
    let own = identity.node_name;
    let mut names = cluster
        .machines
        .iter()
        .map(brupop_testbed::machines::Machine::name);
    let other = names
        .find(|name| *name != own)
        .context("no other machine")?
        .to_owned();
    Ok((own, other))
}

async fn refused(cluster: &Cluster, client: &Client, node: &str, status: Value) -> Result<String> {
    let name = names::shadow_name(node);
    let stored = async || {
        let shadows = Api::<BottlerocketShadow>::namespaced(cluster.client(), NAMESPACE);
        let status = shadows.get(&name).await?.status.unwrap_or_default();
        anyhow::Ok((status.current_version, status.current_state))
    };
    let before = stored().await?;
    let shadows = Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE);
    let Err(refusal) = merge_status(&shadows, &name, status).await else {
        bail!("the API server took it of {name}");
    };
    ensure!(
        stored().await? == before,
        "the refused write has changed {name}"
    );
    match refusal {
        kube::Error::Api(status) => Ok(status.message),
        other => Err(other.into()),
    }
}
