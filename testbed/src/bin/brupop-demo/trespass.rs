//! An agent's own token is used for what it may not do: what the API server says, and what its audit log keeps.

use anyhow::{Context as _, Result, bail};
use brupop_testbed::Fleet;
use kube::Error;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Writes another node's shadow, which a policy refuses, and claims a reboot that nobody granted, which the webhook refuses.
pub async fn try_and_show(fleet: &Fleet) -> Result<()> {
    println!("-- with the token of the agent on node-0:");
    if fleet.hosts.len() > 1 {
        println!("   the status of another node's shadow:");
        refused(fleet, "brs-node-1", json!({"current_version": "6.6.6"})).await?;
    }
    println!("   on its own node's shadow, a claim of a reboot that nobody granted:");
    let shadow = fleet.shadows().get_status("brs-node-0").await?;
    let boot = shadow.status.and_then(|status| status.boot_id);
    refused(fleet, "brs-node-0", json!({"reboot_claimed_boot_id": boot})).await
}

async fn refused(fleet: &Fleet, shadow: &str, status: Value) -> Result<()> {
    let shadows = fleet.agents_shadows("node-0").await?;
    let mut audit = fleet.control_plane.audit().from_now();
    let patch = Patch::Merge(json!({"status": status}));
    let refusal = match shadows
        .patch_status(shadow, &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => bail!("the API server took the status of {shadow}"),
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
                && event.code() == 403
                && event.is_about("bottlerocketshadows", shadow)
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
