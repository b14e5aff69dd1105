//! Other people's admission: a mutation of all that the operator writes, and a webhook on Nodes that is down.

use anyhow::{Result, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::host::Faults;
use brupop_testbed::{Fleet, await_until};
use kube::api::DeleteParams;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value as Json, json};

const GROUP: &str = "admissionregistration.k8s.io/v1";
const MARK: &str = "example.org/owner";

/// Annotates each namespaced object at each write, as Gatekeeper's `AssignMetadata` does.
fn annotates_everything() -> [Json; 2] {
    let patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'example.org/owner': 'team'}}]";
    let beside =
        "[JSONPatch{op: 'add', path: '/metadata/annotations/example.org~1owner', value: 'team'}]";
    let expression = format!("has(object.metadata.annotations) ? {beside} : {patch}");
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["*"], "scope": "Namespaced"}]);
    let spec = json!({"failurePolicy": "Ignore", "reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": rules},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]});
    [
        ("MutatingAdmissionPolicy", spec),
        (
            "MutatingAdmissionPolicyBinding",
            json!({"policyName": "others"}),
        ),
    ]
    .map(|(kind, spec)| {
        json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": "others"}, "spec": spec})
    })
}

/// A webhook on Nodes that nobody listens for.
fn dead_webhook() -> Json {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]);
    json!({"apiVersion": GROUP, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "others"}, "webhooks": [{
        "name": "nodes.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn mutations_hinder_nothing_and_denied_node_changes_are_told() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("REBOOT_REPEAT_INTERVAL", "1s")]).await?;
    fleet.apply(&annotates_everything()).await?;
    // The API server hears of a policy a moment after it is there.
    await_until("a shadow that is made again is annotated", async || {
        let shadow = fleet.shadows().get("brs-node-1").await.ok()?;
        if shadow.annotations().contains_key(MARK) {
            return Some(());
        }
        if shadow.meta().deletion_timestamp.is_none() {
            let (shadows, params) = (fleet.shadows(), DeleteParams::default());
            shadows.delete("brs-node-1", &params).await.ok()?;
        }
        None
    })
    .await?;

    let ignore_reboots = |fleet: &Fleet, reboot_ignored| {
        fleet.set_faults(&Faults {
            reboot_ignored,
            ..Faults::default()
        });
    };
    // The host is not back before the webhook is there.
    ignore_reboots(&fleet, true);
    fleet.publish(NEW)?;
    let of_reason = |reason: &str| {
        let history = fleet.history();
        let found = history.now().find(|(_, seen)| seen.reason == reason);
        found.map(|(node, _)| node.to_owned())
    };
    await_until("a host is to reboot", async || of_reason("Rebooting")).await?;
    fleet.apply(&[dead_webhook()]).await?;
    ignore_reboots(&fleet, false);
    let denied = await_until("it cannot be put back", async || {
        of_reason("NodeChangesDenied")
    });
    let said = fleet.progressing(&denied.await?).await?.message;
    ensure!(said.contains("failed calling webhook"), "{said}");
    fleet
        .wait_for_metrics("reconciler", &["brupop_denied_nodes_out_of_service 1"])
        .await?;
    fleet
        .kubectl("delete validatingwebhookconfiguration others")
        .await?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}
