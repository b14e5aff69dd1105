//! Other people's admission: mutations, rules, quotas and webhooks on what the operator writes.

use anyhow::{Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::fleet::NEW;
use brupop_testbed::host::Faults;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value as Json, json};

const GROUP: &str = "admissionregistration.k8s.io/v1";
const MARK: &str = "example.org/owner";

/// A policy and its binding, in this version of Kubernetes' API.
fn policy(kind: &str, spec: Json) -> [Json; 2] {
    let named = |kind: String, spec: Json| json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": "others"}, "spec": spec});
    let mut binding = json!({"policyName": "others"});
    if kind == "ValidatingAdmissionPolicy" {
        binding["validationActions"] = json!(["Deny"]);
    }
    [
        named(kind.to_owned(), spec),
        named(format!("{kind}Binding"), binding),
    ]
}

/// Annotates each namespaced object at each write, as Gatekeeper's `AssignMetadata` does.
fn annotates_everything() -> [Json; 2] {
    let patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'example.org/owner': 'team'}}]";
    let beside =
        "[JSONPatch{op: 'add', path: '/metadata/annotations/example.org~1owner', value: 'team'}]";
    let expression = format!("has(object.metadata.annotations) ? {beside} : {patch}");
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["*"], "scope": "Namespaced"}]);
    policy(
        "MutatingAdmissionPolicy",
        json!({"failurePolicy": "Ignore", "reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": rules},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}),
    )
}

/// Denies these operations on shadows where the expression is false.
fn denies_shadows(operation: &str, expression: &str) -> [Json; 2] {
    let rules = json!([{"apiGroups": ["brupop.bottlerocket.aws"], "apiVersions": ["*"], "operations": [operation],
        "resources": ["bottlerocketshadows"]}]);
    let validations = json!([{"expression": expression, "message": "shadows are frozen"}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": validations});
    policy("ValidatingAdmissionPolicy", spec)
}

/// No update that is staged may go on, nor be given up.
fn freezes_staged() -> [Json; 2] {
    denies_shadows(
        "UPDATE",
        "oldObject.spec.state != 'StagedAndPerformedUpdate' || object.spec.state == oldObject.spec.state",
    )
}

/// A webhook on Nodes that nobody listens for.
fn dead_webhook() -> Json {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]);
    json!({"apiVersion": GROUP, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "others"}, "webhooks": [{
        "name": "nodes.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules}]})
}

const LET_GO: &str = "delete validatingadmissionpolicybinding others";

/// This node waits, cordoned or not, and says in these words why.
async fn until_denied(fleet: &Fleet, node: &str, words: &str) -> Result<()> {
    fleet
        .until_node(node, "says what is denied", |seen| {
            seen.reason == "NodeChangesDenied"
        })
        .await?;
    let said = fleet.progressing(node).await?.message;
    ensure!(said.contains(words), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_that_annotates_everything_hinders_nothing() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.apply(&annotates_everything()).await?;
    let leases = Api::<Lease>::namespaced(fleet.client(), NAMESPACE);
    await_until("the Lease is annotated, and goes on", async || {
        leases
            .get(LEASE)
            .await
            .ok()
            .filter(|lease| lease.annotations().contains_key(MARK))
    })
    .await?;
    fleet
        .shadows()
        .delete("brs-node-1", &DeleteParams::default())
        .await?;
    await_until("the shadow is made again", async || {
        let shadow = fleet.shadows().get("brs-node-1").await.ok()?;
        (shadow.meta().deletion_timestamp.is_none() && shadow.annotations().contains_key(MARK))
            .then_some(())
    })
    .await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_shadow_puts_its_node_back_before_it_is_drained() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "600")]).await?;
    fleet.apply(&freezes_staged()).await?;
    fleet.publish(NEW)?;
    let excluded = |reason: &str| reason == "Draining";
    fleet
        .until_node("node-0", "is out of load balancers", |seen| {
            excluded(&seen.reason)
        })
        .await?;
    // So the update is to be given up.
    fleet.pause_node("node-0", true).await?;
    until_denied(&fleet, "node-0", "shadows are frozen").await?;
    await_until("it is put back", async || {
        fleet.assert_node_is_clean("node-0").await.ok()
    })
    .await?;
    fleet.kubectl(LET_GO).await?;
    fleet
        .until_node(
            "node-0",
            "is given up",
            brupop_testbed::history::Seen::is_idle,
        )
        .await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_waits_until_its_shadow_takes_changes() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[]).await?;
    fleet.apply(&freezes_staged()).await?;
    fleet.publish(NEW)?;
    until_denied(&fleet, "node-0", "shadows are frozen").await?;
    ensure!(
        fleet.seen("node-0")?.is_unavailable(),
        "a grant may be on its way"
    );
    fleet
        .wait_for_metrics("reconciler", &["brupop_denied_nodes_out_of_service 1"])
        .await?;
    fleet.kubectl(LET_GO).await?;
    fleet
        .until_node("node-0", "is given up", |seen| {
            seen.is_idle() && !seen.is_unavailable()
        })
        .await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_on_nodes_that_is_down_is_told() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("REBOOT_REPEAT_INTERVAL", "1s")]).await?;
    let ignore_reboots = |fleet: &Fleet, reboot_ignored| {
        for host in &fleet.hosts {
            host.set_faults(Faults {
                reboot_ignored,
                ..Faults::default()
            });
        }
    };
    // The host is not back before the webhook is there.
    ignore_reboots(&fleet, true);
    fleet.publish(NEW)?;
    fleet
        .until("a host is to reboot", |history| {
            history.now().any(|(_, seen)| seen.reason == "Rebooting")
        })
        .await?;
    fleet.apply(&[dead_webhook()]).await?;
    ignore_reboots(&fleet, false);
    let of_reason = |fleet: &Fleet, reason: &str| {
        fleet
            .history()
            .now()
            .find(|(_, seen)| seen.reason == reason)
            .map(|(node, _)| node.to_owned())
    };
    let denied = "NodeChangesDenied";
    let first = await_until("it cannot be put back", async || of_reason(&fleet, denied)).await?;
    let said = fleet.progressing(&first).await?.message;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_down_before_the_cordon_ends_the_update() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[]).await?;
    fleet.apply(&[dead_webhook()]).await?;
    fleet.publish(NEW)?;
    let failed = await_until("the update is given up", async || {
        fleet.failures("node-0").await.ok()?
    })
    .await?;
    ensure!(failed.reason == "NodeChangesDenied", "{failed:?}");
    ensure!(
        !fleet.seen("node-0")?.is_unavailable(),
        "nothing was done to the node"
    );
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_on_shadows_is_told() -> Result<()> {
    let options = FleetOptions::quick(1, &[]);
    let mut fleet = Fleet::start(&options).await?;
    let hard = json!({"count/bottlerocketshadows.brupop.bottlerocket.aws": "1"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "shadows", "namespace": NAMESPACE}, "spec": {"hard": hard}});
    fleet.apply(&[quota]).await?;
    await_until("the quota counts", async || {
        let quota = fleet
            .kubectl(&format!(
                "get quota -n {NAMESPACE} shadows -o jsonpath={{.status.used}}"
            ))
            .await;
        quota
            .ok()
            .filter(|used| used.contains("bottlerocketshadows"))
    })
    .await?;
    fleet.join(1, options.durations).await?;
    fleet
        .wait_for_event("node-1", "NodeChangesDenied", "exceeded quota")
        .await?;
    fleet
        .wait_for_metrics(
            "reconciler",
            &["brupop_nodes_reason{reason=\"NodeChangesDenied\"} 1"],
        )
        .await?;
    fleet.check()
}
