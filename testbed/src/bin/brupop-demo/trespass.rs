//! An agent's own token is used on another node's shadow: what the API server says, and what its audit log keeps.

use anyhow::{Context as _, Result, bail};
use brupop_api::BottlerocketShadow;
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use kube::Error;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Status;
use serde_json::json;

pub async fn try_and_show(fleet: &Fleet) -> Result<()> {
    if fleet.hosts.len() < 2 {
        return Ok(());
    }
    println!("-- the agent of node-0 tries to write the status of brs-node-1, with its own token:");
    let client = fleet.control_plane.client_for_token(&fleet.agents_token("node-0").await?).await?;
    let shadows = Api::<BottlerocketShadow>::namespaced(client, NAMESPACE);
    let mut audit = fleet.control_plane.audit().from_now();
    let lie = Patch::Merge(json!({"status": {"current_version": "6.6.6"}}));
    let refusal = match shadows.patch_status("brs-node-1", &PatchParams::default(), &lie).await {
        Ok(_) => bail!("the API server took the status of another node"),
        Err(Error::Api(refusal)) => refusal,
        Err(error) => return Err(error.into()),
    };
    println!("   {}", as_kubectl_says_it(&refusal));
    let event = audit
        .wait_for("the refused patch", |event| {
            event.verb == "patch"
                && event.code() >= 400
                && event.is_about("bottlerocketshadows", "brs-node-1")
        })
        .await?;
    let node = event.user.extra.get("authentication.kubernetes.io/node-name").and_then(|names| names.first());
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

/// One line, as kubectl prints a refusal.
fn as_kubectl_says_it(refusal: &Status) -> String {
    format!("Error from server ({}): {}", refusal.reason, refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line() {
        let refusal: Status = serde_json::from_value(json!({
            "status": "Failure", "reason": "Forbidden", "code": 403, "details": {"name": "brs-node-1"},
            "message": "brs-node-1 is forbidden: agent-own-node",
        }))
        .unwrap();
        let said = as_kubectl_says_it(&refusal);
        assert_eq!(said, "Error from server (Forbidden): brs-node-1 is forbidden: agent-own-node");
    }
}
