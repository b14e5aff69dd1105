//! One node with a pod of each kind: what is evicted is what `kubectl drain` would evict. The operator's own pods go last,
//! and run elsewhere meanwhile.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::{bare_pod, deployment};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::drains::held::{HOLD, let_go};
use crate::drains::{evicted_by_us, own_pods};

/// As people drain a node by hand.
const DRAIN: &str = "drain node-0 --ignore-daemonsets --delete-emptydir-data --dry-run=server";

#[tokio::test(flavor = "multi_thread")]
async fn evictions_match_kubectl_drain_with_operator_pods_last() -> Result<()> {
    // In a copied control plane all of our own pods may be on node-1.
    let quick = FleetOptions::quick(2, &[]);
    let mut fleet = Fleet::start(&FleetOptions {
        copied: false,
        ..quick
    })
    .await?;
    for node in ["node-0", "node-1"] {
        fleet.pause_node(node, true).await?;
    }
    fleet.publish(NEW)?;
    // So all that is made now comes to node-0.
    fleet.kubectl("cordon node-1").await?;
    let leaving = Box::pin(populate(&fleet)).await?;
    let by_hand = by_hand(&fleet).await?;
    let (daemon, mirror) = (
        pod_of(&fleet, "logs").await?,
        pod_of(&fleet, "static").await?,
    );
    ensure!(
        !by_hand.iter().any(|pod| *pod == daemon || *pod == mirror),
        "{by_hand:?}"
    );
    let ours: BTreeSet<String> = own_pods(&fleet)
        .await?
        .into_iter()
        .filter(|(_, node)| node == "node-0")
        .map(|(pod, _)| format!("{NAMESPACE}/{pod}"))
        .collect();
    ensure!(
        !ours.is_empty() && ours.is_subset(&by_hand),
        "{ours:?} {by_hand:?}"
    );
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.kubectl("uncordon node-1").await?;
    fleet.pause_node("node-0", false).await?;

    // The drain waits for pods that were ending before, and for the evicted pod with the finalizer.
    fleet
        .until_node("node-0", "it drains", |seen| seen.reason == "Draining")
        .await?;
    await_until("only what has a finalizer is left", async || {
        let left = on_node_0(&fleet).await.ok()?;
        left.iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some())
            .count()
            .eq(&2)
            .then_some(())
    })
    .await?;
    let held = fleet.progressing("node-0").await?;
    ensure!(
        held.reason == "Draining" && !fleet.seen("node-0")?.drained,
        "{held:?}"
    );
    give_up(&fleet).await?;
    fleet.until_runs("node-0", NEW).await?;

    let asked: Vec<Event> = audit
        .read()?
        .into_iter()
        .filter(|event| evicted_by_us(event).is_some())
        .collect();
    let evicted: Vec<String> = asked
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us)
        .collect();
    let all: BTreeSet<String> = evicted.iter().cloned().collect();
    ensure!(all.len() == evicted.len(), "evicted twice: {evicted:?}");
    let gone: BTreeSet<String> = all.iter().chain([&leaving]).cloned().collect();
    ensure!(
        gone == by_hand && !all.contains(&leaving),
        "by hand: {by_hand:?}, by us: {all:?}"
    );
    let first_of_ours = evicted
        .iter()
        .position(|pod| ours.contains(pod))
        .context("ours stayed")?;
    ensure!(
        evicted[first_of_ours..]
            .iter()
            .all(|pod| ours.contains(pod)),
        "{evicted:?}"
    );
    println!("evicted, in this order: {evicted:?}");
    let names: Vec<String> = on_node_0(&fleet).await?.iter().map(name).collect();
    ensure!(
        names.contains(&daemon) && names.contains(&mirror),
        "{names:?}"
    );

    // They came up elsewhere, and come back when it is the other node's turn.
    let moved = own_pods(&fleet).await?;
    ensure!(
        moved.len() == 4 && moved.values().all(|node| node == "node-1"),
        "{moved:?}"
    );
    fleet.pause_node("node-1", false).await?;
    fleet.until_updated(NEW).await?;
    let back = own_pods(&fleet).await?;
    ensure!(
        back.len() == 4 && back.values().all(|node| node == "node-0"),
        "{back:?}"
    );
    ensure!(back.keys().all(|pod| !moved.contains_key(pod)), "{back:?}");
    fleet.check()
}

/// A pod of each kind on node-0; returns the one that is on its way out.
async fn populate(fleet: &Fleet) -> Result<String> {
    let pods = Api::<Pod>::default_namespaced(fleet.client());
    let template = json!({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}});
    let of = |kind: &str, name: &str, more: Json| {
        let mut object = deployment("default", name, 1, &template);
        object["kind"] = json!(kind);
        json_patch::merge(&mut object, &more);
        object
    };
    // It is no obstacle before it should have ended.
    let held =
        json!({"metadata": {"finalizers": [HOLD]}, "spec": {"terminationGracePeriodSeconds": 600}});
    let once = json!({"apiVersion": "batch/v1", "spec": {
        "replicas": null, "selector": null, "template": {"spec": {"restartPolicy": "Never"}},
    }});
    let bare = |name: &str, annotations: Json| {
        bare_pod(
            "default",
            name,
            "node-0",
            &json!({"metadata": {"annotations": annotations}}),
        )
    };
    fleet
        .apply(&[
            of("Deployment", "web", json!({})),
            of("Deployment", "held", json!({"spec": {"template": held}})),
            of("StatefulSet", "db", json!({"spec": {"serviceName": "db"}})),
            of("DaemonSet", "logs", json!({"spec": {"replicas": null}})),
            of("Job", "once", once),
            bare("static", json!({"kubernetes.io/config.mirror": "x"})),
            bare("done", json!({})),
            bare("debug", json!({})),
        ])
        .await?;
    for app in ["web", "held", "db", "logs", "static", "debug"] {
        until_phase(fleet, app, "Running").await?;
    }
    until_phase(fleet, "once", "Succeeded").await?;
    until_phase(fleet, "done", "Running").await?;
    let finished = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status("done", &PatchParams::default(), &finished)
        .await?;
    let leaving = pod_of(fleet, "held").await?;
    pods.delete(
        leaving.trim_start_matches("default/"),
        &DeleteParams::default(),
    )
    .await?;
    await_until("another one in its place", async || {
        let held = pods
            .list(&ListParams::default().labels("app=held"))
            .await
            .ok()?;
        let runs = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                == Some("Running")
        };
        (held.items.len() == 2 && held.iter().all(runs)).then_some(())
    })
    .await?;
    Ok(leaving)
}

/// Returns what `kubectl drain` says that it would evict. It refuses as long as there is a pod that nothing would bring back.
async fn by_hand(fleet: &Fleet) -> Result<BTreeSet<String>> {
    let refused = fleet.control_plane.kubectl_output(DRAIN.split(' ')).await?;
    let why = String::from_utf8(refused.stderr)?;
    ensure!(
        !refused.status.success()
            && why.contains("declare no controller")
            && why.contains("default/debug"),
        "{why}"
    );
    fleet.kubectl("delete pod debug").await?;
    let drain = fleet.control_plane.kubectl_output(DRAIN.split(' ')).await?;
    let said = format!(
        "{}{}",
        String::from_utf8(drain.stdout)?,
        String::from_utf8(drain.stderr)?
    );
    ensure!(drain.status.success(), "{said}");
    let evicting = said
        .lines()
        .filter_map(|line| line.strip_prefix("evicting pod ")?.split(' ').next());
    Ok(evicting.map(str::to_owned).collect())
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

async fn on_node_0(fleet: &Fleet) -> Result<Vec<Pod>> {
    let on_node = ListParams::default().fields("spec.nodeName=node-0");
    Ok(Api::<Pod>::all(fleet.client()).list(&on_node).await?.items)
}

/// The pod of this app on node-0.
async fn pod_of(fleet: &Fleet, app: &str) -> Result<String> {
    let pods = on_node_0(fleet).await?;
    let found = pods
        .iter()
        .find(|pod| pod.labels().get("app").is_some_and(|label| label == app));
    found
        .map(name)
        .with_context(|| format!("{app} is not on node-0"))
}

async fn until_phase(fleet: &Fleet, app: &str, phase: &str) -> Result<()> {
    let waited = await_until(format!("{app} on node-0 is {phase}"), async || {
        let pods = on_node_0(fleet).await.ok()?;
        let found = pods
            .iter()
            .find(|pod| pod.labels().get("app").is_some_and(|label| label == app))?;
        (found.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(())
    });
    waited.await
}

/// The workload whose pods are held back is given up, and their holder lets go.
async fn give_up(fleet: &Fleet) -> Result<()> {
    fleet.kubectl("delete deployment held --wait=false").await?;
    await_until("they are gone", async || {
        // A pod that goes meanwhile is an error, and what is wanted.
        (let_go(fleet).await.ok()? == 0).then_some(())
    })
    .await
}
