//! An agent's own token is used on another node's shadow: what the API server says, and what its audit log keeps.

use anyhow::{Context as _, Result, bail};
use brupop_testbed::Fleet;
use kube::Error;
use kube::api::{Patch, PatchParams};
use serde_json::json;

pub async fn try_and_show(fleet: &Fleet) -> Result<()> {
    if fleet.hosts.len() < 2 {
        return Ok(());
    }
    println!("-- the agent of node-0 tries to write the status of brs-node-1, with its own token:");
    let shadows = fleet.agents_shadows("node-0").await?;
    let mut audit = fleet.control_plane.audit().from_now();
    let lie = Patch::Merge(json!({"status": {"current_version": "6.6.6"}}));
    let refusal = match shadows
        .patch_status("brs-node-1", &PatchParams::default(), &lie)
        .await
    {
        Ok(_) => bail!("the API server took the status of another node"),
        Err(Error::Api(refusal)) => refusal,
        Err(error) => return Err(error.into()),
    };
    println!(
        "   Error from server ({}): {}",
        refusal.reason, refusal.message
    );
    let event = audit
        .wait_for("the refused patch", |event| {
            event.verb == "patch"
                && event.code() >= 400
                && event.is_about("bottlerocketshadows", "brs-node-1")
        })
        .await?;
    let node = event
        .user
        .extra
        .get("authentication.kubernetes.io/node-name")
        .and_then(|names| names.first());
    let kept = json!({
        "verb": event.verb,
        "requestURI": event.request_uri,
        "user": event.user.username,
        "node-name": node.context("the token names no node")?,
        "code": event.code(),
        "annotations": event.annotations,
    });
    println!("   audit log: {kept}");
    Ok(())
}
