//! The policies and the flow schemas that are shipped, at work in the API server, under any name.

mod attacks;
mod bed;
mod flow;
mod large;

use anyhow::{Context as _, Result, ensure};
use attacks::{ALLOWED, Attacks, Row};
use bed::{Actor, Bed, Overlay};
use brupop_api::names;
use brupop_testbed::await_until;
use http::Method;
use serde_json::{Value as Json, json};

/// A new policy is in force once the API server's informers have heard of it: all of those that this test asks about.
async fn policies_are_in_force(bed: &Bed) -> Result<()> {
    let check =
        json!({"metadata": {"annotations": {names::admission_check::NODE_ANNOTATION: "x"}}});
    let held_long = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": names::LEASE},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 301}});
    let leases = bed.ours("coordination.k8s.io/v1", "leases?dryRun=All");
    let webhook = (bed.named)("brupop-webhook");
    let configuration = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{webhook}?dryRun=All"
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let marker = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: "{}"}}});
    let component =
        json!({"metadata": {"labels": {"brupop.bottlerocket.aws/component": "webhook"}}});
    let node = "/api/v1/nodes/in?dryRun=All";
    let pod = "/api/v1/namespaces/default/pods/pod?dryRun=All";
    let in_force = await_until("the policies are in force", async || {
        let code = async |actor, method, path: &str, body: &Json| {
            let answer = bed.ask(actor, None, method, path, body).await.ok()?;
            Some(answer.code)
        };
        let found = [
            code(Actor::Reconciler, Method::PATCH, node, &check).await?,
            code(Actor::Reconciler, Method::POST, &leases, &held_long).await?,
            code(Actor::Webhook, Method::PATCH, &configuration, &label).await?,
            code(Actor::Member, Method::PATCH, node, &marker).await?,
            code(Actor::Member, Method::PATCH, pod, &component).await?,
        ];
        (found == [403; 5]).then_some(())
    });
    in_force.await
}

/// A pod that may be evicted, in `default`; its UID.
async fn pod(bed: &Bed) -> Result<String> {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    bed.must(Method::POST, accounts, &account).await?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
        "spec": {"nodeName": "in", "containers": [{"name": "c", "image": "none"}]}});
    let made = bed
        .must(Method::POST, "/api/v1/namespaces/default/pods", &pod)
        .await?;
    Ok(made["metadata"]["uid"]
        .as_str()
        .context("no UID")?
        .to_owned())
}

async fn check_all(bed: &Bed, rows: impl Iterator<Item = &Row>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        if let Err(error) = attacks::check(bed, row).await {
            wrong.push(format!("{:?}: {}: {error:#}", row.actor, row.says));
        }
    }
    wrong
}

/// The accounts may do everything: now the policies stand alone. What roles refuse is in the test of docs/rights.txt.
async fn give_everything(bed: &Bed) -> Result<()> {
    let accounts = format!("system:serviceaccounts:{}", bed.namespace);
    bed.bind("everything", "cluster-admin", "Group", &accounts)
        .await?;
    // On the oldest Kubernetes kubelets may write Events by the older API only.
    let group = "rbac.authorization.k8s.io";
    let may = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "events"},
        "rules": [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}]});
    let roles = format!("/apis/{group}/v1/clusterroles");
    bed.must(Method::POST, &roles, &may).await?;
    bed.bind("events", "events", "Group", "system:nodes")
        .await?;
    for actor in [Actor::Reconciler, Actor::Webhook] {
        let heard = await_until("the roles are wide open", async || {
            let answer = bed.get(actor, "/api/v1/secrets").await.ok()?;
            (answer.code == 200).then_some(())
        });
        heard.await?;
    }
    Ok(())
}

/// Reconciler and webhook, and not the agents, ask for trusted nodes; and no kubelet can call itself trusted.
async fn placement_is_trusted(bed: &Bed) -> Result<()> {
    const LABEL: &str = "brupop.node-restriction.kubernetes.io/trusted";
    for (kind, name, trusted) in [
        ("deployments", "brupop-reconciler", true),
        ("deployments", "brupop-webhook", true),
        ("daemonsets", "brupop-agent", false),
    ] {
        let path = bed.ours("apps/v1", &format!("{kind}/{}", (bed.named)(name)));
        let pod = &bed.must(Method::GET, &path, &Json::Null).await?["spec"]["template"]["spec"];
        ensure!(
            (pod["nodeSelector"][LABEL] == "true") == trusted,
            "{name}: {pod}"
        );
        let tolerations = pod["tolerations"].to_string();
        let tolerates = tolerations.contains("brupop.bottlerocket.aws/trusted");
        ensure!(tolerates == trusted, "{name}: {pod}");
    }
    let body = json!({"metadata": {"labels": {LABEL: "true"}}});
    let answer = bed.patch_as("in", "/api/v1/nodes/in", &body).await?;
    ensure!(
        answer.code == 403 && answer.message().contains("is not allowed to modify labels"),
        "{answer:?}"
    );
    Ok(())
}

async fn hold_under(overlay: Overlay) -> Result<()> {
    let mut bed = Bed::start(overlay).await?;
    Attacks::of(&bed, "")?.prepare(&bed).await?;
    let uid = pod(&bed).await?;
    policies_are_in_force(&bed).await?;
    attacks::register(&mut bed).await?;
    flow::requests_are_classified(&bed).await?;
    if overlay.with_components {
        placement_is_trusted(&bed).await?;
    } else {
        flow::agents_keep_each_other_waiting_and_nobody_else(&bed).await?;
    }
    let attacks = Attacks::of(&bed, &uid)?;
    let rows = attacks.rows(&bed).await?;
    let allowed = rows.iter().filter(|row| row.verdict == ALLOWED);
    let mut wrong = check_all(&bed, allowed).await;
    give_everything(&bed).await?;
    wrong.extend(check_all(&bed, rows.iter()).await);
    attacks.plant(&bed).await?;
    let planted = attacks.planted(&bed).await?;
    wrong.extend(check_all(&bed, planted.iter()).await);
    println!("{}: {} attacks", bed.namespace, rows.len() + planted.len());
    ensure!(
        wrong.is_empty(),
        "{} rows do not hold:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_confine_machines() -> Result<()> {
    hold_under(Overlay::DEFAULT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_hold_under_other_names_and_placement() -> Result<()> {
    hold_under(Overlay::RENAMED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_many_labels_can_be_updated() -> Result<()> {
    let bed = Bed::start(Overlay::DEFAULT).await?;
    Attacks::of(&bed, "")?.prepare(&bed).await?;
    pod(&bed).await?;
    policies_are_in_force(&bed).await?;
    large::check(&bed).await
}
