//! Admission as it ships: the default overlay, the webhook as its Deployment describes it, real tokens of real pods.

mod bed;
mod outage;
mod tokens;

use anyhow::{Result, ensure};
use bed::{Bed, Gates};
use brupop_admission_cases::{Actor, Host, Request, Row, table};
use brupop_api::BottlerocketShadow;
use brupop_api::names::CONDITIONS_MANAGER;
use brupop_testbed::objects::cluster_role_binding;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, only, throw_away_overlay};
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{ControlPlane, Kubelets, Options, await_until, make_nodes};
use http::Method;
use kube::Resource as _;
use outage::only_agents_depend_on_the_webhook;
use serde_json::{Value as Json, json};
use std::time::Instant;

/// Returns what only the webhook refuses an agent: a claim without a grant. As a dry run.
async fn claim(bed: &Bed) -> Result<bed::Answer> {
    let path = format!("{}/status?dryRun=All", bed.shadow_path(Host::First));
    let claim = json!({"status": {"reboot_claimed_boot_id": "b1"}});
    bed.patch(Actor::Agent, &path, &claim).await
}

/// Returns what both refuse an agent, as a dry run.
async fn other_node(bed: &Bed) -> Result<bed::Answer> {
    let path = format!("{}/status?dryRun=All", bed.shadow_path(Host::Second));
    let news = json!({"status": {"message": "m"}});
    bed.patch(Actor::Agent, &path, &news).await
}

/// Returns what the policy refuses the reconciler, and the webhook is not asked about.
async fn node_check(bed: &Bed) -> Result<bed::Answer> {
    let annotation = json!({brupop_api::names::admission_check::NODE_ANNOTATION: "x"});
    let body = json!({"metadata": {"annotations": annotation}});
    let path = "/api/v1/nodes/node-0?dryRun=All";
    bed.patch(Actor::Reconciler, path, &body).await
}

fn refused(answer: Result<bed::Answer>, word: &str) -> bool {
    matches!(answer, Ok(Err((403, message))) if message.contains(word))
}

/// The gates are as they should be: the API server has heard of what was installed or deleted.
async fn gates_are(bed: &Bed, gates: Gates) -> Result<()> {
    for host in [Host::First, Host::Second] {
        bed.idle_shadow(host).await?;
    }
    let in_force = await_until(format!("{gates:?}"), async || {
        let webhook = refused(claim(bed).await, "agent-claim");
        let check = refused(node_check(bed).await, "reconciler-node-annotations");
        let policy = refused(other_node(bed).await, "ValidatingAdmissionPolicy");
        let expected = match gates {
            Gates::Both => (true, true, true),
            Gates::PolicyAlone => (false, true, true),
            Gates::WebhookAlone => (true, false, false),
        };
        let webhook_away = matches!(claim(bed).await, Ok(Ok(_)));
        ((webhook, check, policy) == expected && webhook != webhook_away).then_some(())
    });
    in_force.await
}

const WEBHOOK: [&str; 3] = ["delete", "validatingwebhookconfiguration", "brupop-webhook"];
const POLICIES: [&str; 3] = ["delete", "validatingadmissionpolicy", "--all"];

/// An agent gives the reconciler's manager nothing to remove with its next apply; and however the agent calls itself, the API
/// server keeps the record of who wrote what short.
async fn agents_name_no_manager(bed: &Bed) -> Result<()> {
    bed.idle_shadow(Host::First).await?;
    let path = bed.shadow_path(Host::First);
    let write = |query: String, content_type, status: &Json| Request {
        method: Method::PATCH,
        path: format!("{path}/status{query}"),
        content_type,
        body:
            json!({"apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": path.rsplit('/').next()}, "status": status})
            .to_string(),
    };
    let apply = async |actor, status: Json| {
        let query = format!("?fieldManager={CONDITIONS_MANAGER}&force=true");
        let asked = write(query, "application/apply-patch+yaml", &status);
        bed.send(actor, asked, "testbed").await
    };
    let first = apply(Actor::Reconciler, json!({"pool": "a"})).await?;
    ensure!(first.is_ok(), "{first:?}");
    for count in [1, 0] {
        let answer = apply(Actor::Agent, json!({"pool": "a", "crash_count": count})).await;
        ensure!(refused(answer, "agent-field-manager"), "{count}");
    }
    let next = apply(Actor::Reconciler, json!({"pool": "b"})).await?;
    ensure!(next.is_ok_and(|stored| stored["status"]["pool"] == "b"));

    let time = "2026-01-01T00:00:00Z";
    let fields = json!({"current_version": "1.19.4", "target_version": "1.20.0", "crash_count": 1, "boot_id": "b2",
        "state_transition_failure_timestamp": time, "problem": "StepFailed", "problem_since": time, "message": "m",
        "staged": {"version": "1.20.0", "at": time, "prefetched": true}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        let asked = write(
            String::new(),
            "application/merge-patch+json",
            &json!({field: value}),
        );
        let answer = bed.send(Actor::Agent, asked, field).await?;
        ensure!(answer.is_ok(), "{answer:?}");
    }
    let stored = bed.get(Actor::Admin, &path).await?;
    let managers = |object: Json| object["metadata"]["managedFields"].as_array().map(Vec::len);
    let managers = stored.map(managers);
    ensure!(
        managers == Ok(Some(11)),
        "ten that update, one that applies: {managers:?}"
    );
    Ok(())
}

/// Gives every account of the namespace all rights, or takes them away again; what they had before they keep.
async fn all_rights(bed: &Bed, given: bool) -> Result<()> {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let group = format!("system:serviceaccounts:{}", bed.namespace());
    let binding = cluster_role_binding("everything", "cluster-admin", "Group", &group);
    let (method, path, body) = if given {
        (Method::POST, BINDINGS.to_owned(), binding)
    } else {
        let path = format!("{BINDINGS}/everything");
        (Method::DELETE, path, Json::Null)
    };
    let answer = bed.ask(Actor::Admin, method, &path, &body).await?;
    ensure!(answer.is_ok(), "{answer:?}");
    let secrets = format!("/api/v1/namespaces/{}/secrets", bed.namespace());
    let theirs = [
        Actor::Agent,
        Actor::Reconciler,
        Actor::Webhook,
        Actor::Stray,
    ];
    for actor in theirs {
        await_until(format!("{actor:?}'s rights: {given}"), async || {
            let answer = bed.get(actor, &secrets).await.ok()?;
            (answer.is_ok() == given).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// Every row, and what is behind RBAC. The rows that do not hold.
async fn every_row(bed: &Bed, gates: Gates, setup: &str) -> Result<Vec<String>> {
    let table = table();
    let began = Instant::now();
    let (rows, mut wrong) = bed.check_all(gates, &table).await;
    let took = began.elapsed();
    all_rights(bed, true).await?;
    let (behind, more) = bed.check_behind_rbac(gates, &table).await;
    all_rights(bed, false).await?;
    wrong.extend(more);
    let (took, in_all) = (took.as_secs_f32(), began.elapsed().as_secs_f32());
    println!(
        "{setup}: {rows} rows in {took:.1} s, {behind} again without RBAC, {in_all:.1} s in all"
    );
    ensure!(
        rows >= 150 && behind >= 20,
        "{rows} rows, {behind} of them behind RBAC"
    );
    Ok(wrong)
}

/// A row of each actor for each refusal by each rule.
fn one_of_each() -> Vec<Row> {
    let mut seen = Vec::new();
    let mut table = table();
    table.retain(|row| {
        let kind = (row.actor, row.verdict);
        let is_new = !seen.contains(&kind);
        seen.push(kind);
        is_new
    });
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_write_only_their_own_nodes_status() -> Result<()> {
    // The client calls each refusal by code 500 an error; here they are what is waited for.
    let logs = tracing_subscriber::fmt()
        .with_env_filter("error,kube_client=off")
        .with_test_writer();
    let _ = logs.try_init();
    let control_plane = ControlPlane::start(Options::CLUSTER).await?;
    let began = Instant::now();
    let passed = |stage: &str| println!("{:>5.1} s: {stage}", began.elapsed().as_secs_f32());

    apply_overlay(&control_plane, "default").await?;
    let nodes = make_nodes(&control_plane.client(), 2).await?;
    let kubelets = Kubelets::start(
        &control_plane,
        only(&["brupop-webhook"], &[("LINGER_SECONDS", "0")])?,
        None,
    );
    let bed = Bed::take_part(&control_plane, NAMESPACE, &nodes).await?;
    passed("everybody is there");
    let mut wrong = Vec::new();
    gates_are(&bed, Gates::Both).await?;
    passed("both gates are closed");
    wrong.extend(every_row(&bed, Gates::Both, "both").await?);
    agents_name_no_manager(&bed).await?;
    passed("webhook and policies");

    control_plane.kubectl(WEBHOOK).await?;
    gates_are(&bed, Gates::PolicyAlone).await?;
    wrong.extend(every_row(&bed, Gates::PolicyAlone, "the policies alone").await?);
    passed("the policies alone");

    apply_overlay(&control_plane, "default").await?;
    control_plane.kubectl(POLICIES).await?;
    gates_are(&bed, Gates::WebhookAlone).await?;
    wrong.extend(every_row(&bed, Gates::WebhookAlone, "the webhook alone").await?);
    passed("the webhook alone");

    apply_overlay(&control_plane, "default").await?;
    gates_are(&bed, Gates::Both).await?;
    passed("both gates are closed again");
    let webhooks = kubelets.processes();
    for process in &webhooks {
        kubelets.signal(&process.namespace, &process.pod, Signal::STOP);
    }
    only_agents_depend_on_the_webhook(&bed, "hung").await?;
    for process in &webhooks {
        kubelets.signal(&process.namespace, &process.pod, Signal::CONT);
    }
    let scale = format!("scale -n {NAMESPACE} deployment brupop-webhook --replicas=0");
    control_plane.kubectl(scale.split(' ')).await?;
    await_until("the end of the webhook", async || {
        kubelets.processes().is_empty().then_some(())
    })
    .await?;
    passed("the webhook has ended");
    only_agents_depend_on_the_webhook(&bed, "dead").await?;
    passed("without the webhook");

    // Two operators in one cluster would each be asked about both: one is enough to be held to.
    control_plane.kubectl(WEBHOOK).await?;
    control_plane.kubectl(POLICIES).await?;
    let renamed = json!({
        "namespace": "updates", "namePrefix": "team-", "nameSuffix": "-blue", "resources": ["manifests"],
    });
    apply_overlay(
        &control_plane,
        throw_away_overlay(&control_plane, "renamed", renamed)?,
    )
    .await?;
    let renamed = Bed::take_part(&control_plane, "updates", &nodes).await?;
    gates_are(&renamed, Gates::Both).await?;
    let (_, more) = renamed.check_all(Gates::Both, &one_of_each()).await;
    wrong.extend(more);
    passed("under other names");

    ensure!(
        wrong.is_empty(),
        "{} rows do not hold:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}
