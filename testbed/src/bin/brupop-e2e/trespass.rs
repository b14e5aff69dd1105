//! The token that a kubelet has made for an agent, used where it must not be.

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::identity::pod_identity;
use brupop_api::shadow::BottlerocketShadowStatus;
use brupop_api::{BottlerocketShadow, names};
use brupop_testbed::bearer::extra_of;
use brupop_testbed::machines::processes::running;
use brupop_testbed::operator::NAMESPACE;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const TOKEN: &str = "var/run/secrets/kubernetes.io/serviceaccount/token";
/// Prefix of the webhook's annotations in the audit log.
const OF_THE_WEBHOOK: &str = "shadows.brupop.bottlerocket.aws/";

pub async fn see(cluster: &Cluster) -> Result<()> {
    let agent = running("/brupop-agent")?.first().context("no agent")?.pid;
    let token = std::fs::read_to_string(format!("/proc/{agent}/root/{TOKEN}"))
        .context("an agent's token")?;
    let client = cluster.control_plane.client_for_token(&token).await?;
    let (own, other) = own_and_other(cluster, &client).await?;

    println!("-- with the token that the kubelet of {own} has put into its agent's pod");
    let refusal = refused(
        cluster,
        &client,
        &other,
        json!({"status": {"current_version": "6.6.6"}}),
    )
    .await?;
    println!("   status of {}: {refusal}", names::shadow_name(&other));
    ensure!(
        refusal.contains("ValidatingAdmissionPolicy"),
        "not refused by the policy"
    );

    let refusal = refused(
        cluster,
        &client,
        &own,
        json!({"status": {"current_state": "MonitoringUpdate"}}),
    )
    .await?;
    println!("   a step that is not due, of its own: {refusal}");
    ensure!(
        refusal.contains("admission webhook"),
        "not refused by the webhook"
    );

    // A write without a change is allowed, but reviewed all the same.
    let mut audit = cluster.control_plane.audit().from_now();
    let shadows = Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE);
    let status = status(cluster, &own).await?;
    let same = Patch::Merge(json!({"status": {"current_version": status.current_version}}));
    shadows
        .patch_status(&names::shadow_name(&own), &PatchParams::default(), &same)
        .await?;
    let event = audit
        .wait_for("a report that passed the webhook", |event| {
            event.verb == "patch"
                && event.code() == 200
                && event.is_about("bottlerocketshadows", &names::shadow_name(&own))
                && event
                    .annotations
                    .keys()
                    .any(|key| key.starts_with(OF_THE_WEBHOOK))
        })
        .await?;
    let kept = event
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with(OF_THE_WEBHOOK));
    println!(
        "   audit log of what it may write: {}",
        json!(kept.collect::<std::collections::BTreeMap<_, _>>())
    );
    Ok(())
}

/// The node that the token names, and another one.
async fn own_and_other(cluster: &Cluster, client: &Client) -> Result<(String, String)> {
    let own = pod_identity(&extra_of(client).await?)?.node_name;
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

async fn refused(cluster: &Cluster, client: &Client, node: &str, patch: Value) -> Result<String> {
    let shadows = Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE);
    let name = names::shadow_name(node);
    let before = status(cluster, node).await?;
    let Err(refusal) = shadows
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    else {
        bail!("the API server took {patch} of {name}");
    };
    ensure!(
        status(cluster, node).await? == before,
        "the refused write has changed {name}"
    );
    match refusal {
        kube::Error::Api(status) => Ok(status.message),
        other => Err(other.into()),
    }
}

/// Returns what its agent has written.
async fn status(cluster: &Cluster, node: &str) -> Result<BottlerocketShadowStatus> {
    let shadows = Api::<BottlerocketShadow>::namespaced(cluster.client(), NAMESPACE);
    let status = shadows
        .get(&names::shadow_name(node))
        .await?
        .status
        .unwrap_or_default();
    Ok(BottlerocketShadowStatus {
        pool: None,
        conditions: vec![],
        ..status
    })
}
