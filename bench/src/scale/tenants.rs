//! What tenants have: pods on all nodes, and budgets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_api::BottlerocketPool;
use brupop_testbed::operator::{NAMESPACE, make_namespace};
use brupop_testbed::{ControlPlane, await_within};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, GetParams, Patch, PatchParams, PostParams};
use kube::core::request::Request;
use serde_json::{Value as Json, from_value, json};
use tokio::time::interval;

const TENANT: &str = "tenant";
/// A tenant with a namespace of its own. Evictions of others' pods do not read what is in it.
const HOARDER: &str = "hoarder";
/// Requests under way at once.
const PARALLEL: usize = 50;
/// Objects that etcd is given in one request, of some 8 kB each; and how many of these are under way at once.
const STORED_AT_ONCE: usize = 64;
const STORES: usize = 8;
const DEADLINE: Duration = Duration::from_mins(10);
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);
/// Labels of a large budget, of 130 bytes each: 1.2 MB, of the 1.5 that etcd takes.
const LABELS: usize = 9_000;
/// Labels of a pod in a crowd, of 60 bytes each: nearly the 8 kB that are read.
const CROWD_LABELS: usize = 128;

/// Makes pods on each of these nodes.
///
/// The API server is asked for those of the first node. Those of the others differ in name, node and UID, and are put into
/// etcd: asking for 150,000 takes two cores 39 minutes.
pub async fn make_pods(control_plane: &ControlPlane, nodes: usize, per_node: usize) -> Result<()> {
    let client = &control_plane.client();
    make_namespace(client, TENANT).await?;
    let (pods, mut first) = (
        Request::new(format!("/api/v1/namespaces/{TENANT}/pods")),
        vec![],
    );
    for number in 0..per_node {
        make_pod(client, number).await?;
        first.push(
            client
                .request::<Json>(pods.get(&pod_name(0, number), &GetParams::default())?)
                .await?,
        );
    }
    let all = (1..nodes).flat_map(|node| (0..per_node).map(move |number| (node, number)));
    let mut copies: Vec<_> = all.collect();
    let last = copies.pop();
    let of = |(node, number): (usize, usize)| copy(&first[number], node, number);
    store(control_plane, copies.into_iter().map(of)).await?;
    // A cache that has the last one has all.
    if let Some((node, number)) = last {
        control_plane.store(&[of((node, number))]).await?;
        let last = pods.get(&pod_name(node, number), &GetParams::any())?;
        await_within(
            DEADLINE,
            "the API server's cache has all pods",
            async || client.request::<Json>(last.clone()).await.ok(),
        )
        .await?;
    }
    Ok(())
}

async fn store(
    control_plane: &ControlPlane,
    pods: impl Iterator<Item = (String, Json)>,
) -> Result<()> {
    futures::stream::iter(pods)
        .chunks(STORED_AT_ONCE)
        .map(async |pods| control_plane.store(&pods).await)
        .buffer_unordered(STORES)
        .try_collect()
        .await
}

fn pod_name(node: usize, number: usize) -> String {
    format!("cart-{node}-{number}")
}

/// This pod of the first node as it is on another one, and its key.
fn copy(pod: &Json, node: usize, number: usize) -> (String, Json) {
    let (mut pod, name) = (pod.clone(), pod_name(node, number));
    let key = format!("/registry/pods/{TENANT}/{name}");
    // etcd has its own revisions.
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    pod["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{node:06x}{number:06x}"));
    pod["spec"]["nodeName"] = json!(format!("node-{node}"));
    pod["metadata"]["name"] = json!(name);
    (key, pod)
}

/// For this long, the status of another pod of these nodes changes each hundredth of a second, agents' pods among them; returns
/// how many did.
pub async fn change_pods(
    client: &Client,
    nodes: Range<usize>,
    per_node: usize,
    time: Duration,
) -> Result<usize> {
    let began = Instant::now();
    let ticks = futures::stream::unfold(
        (interval(BETWEEN_CHANGES), 0),
        async |(mut ticks, number)| {
            ticks.tick().await;
            (began.elapsed() < time).then_some((number, (ticks, number + 1)))
        },
    );
    let changes = ticks.map(async |number| {
        let node = nodes.start + number % nodes.len();
        let (namespace, name) = match number % (per_node + 1) {
            0 => (NAMESPACE, format!("brupop-agent-node-{node}")),
            nth => (TENANT, pod_name(node, nth - 1)),
        };
        let status = Patch::Merge(json!({"status": {"message": format!("change {number}")}}));
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        pods.patch_status(&name, &PatchParams::default(), &status)
            .await
            .with_context(|| name.clone())
    });
    changes
        .buffer_unordered(PARALLEL)
        .try_fold(0, async |sum, _| Ok(sum + 1))
        .await
}

/// Makes a pod on the first node.
async fn make_pod(client: &Client, number: usize) -> Result<()> {
    let name = pod_name(0, number);
    let env: Vec<_> = (0..20)
        .map(|nth| json!({"name": format!("SETTING_{nth}"), "value": "x".repeat(40)}))
        .collect();
    let pod: Pod = from_value(json!({
        "metadata": {"name": name, "labels": {"app": "cart", "pod-template-hash": "5d8f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-5d8f", "uid": "u",
                "controller": true}]},
        "spec": {"nodeName": "node-0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "cart", "image": "example.org/cart:1", "env": env}]},
    }))?;
    make_running(client, TENANT, &name, &pod).await
}

/// Makes this pod, and says that it runs and is Ready.
pub(super) async fn make_running(
    client: &Client,
    namespace: &str,
    name: &str,
    pod: &Pod,
) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), pod)
        .await
        .with_context(|| name.to_owned())?;
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now()});
    let status = Patch::Merge(json!({"status": {"phase": "Running", "conditions": [ready]}}));
    pods.patch_status(name, &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// Makes budgets that cover no pod, usual ones and large ones.
pub async fn make_budgets(client: &Client, usual: usize, large: usize) -> Result<()> {
    make_namespace(client, HOARDER).await?;
    let padding: BTreeMap<String, String> = (0..LABELS)
        .map(|number| (format!("{number:0>60}"), "x".repeat(63)))
        .collect();
    let all = (0..usual)
        .map(|_| None)
        .chain((0..large).map(|_| Some(&padding)));
    futures::stream::iter(all.enumerate())
        .map(|(number, labels)| make_budget(client, number, labels))
        .buffer_unordered(8)
        .try_collect()
        .await
}

async fn make_budget(
    client: &Client,
    number: usize,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<()> {
    let name = format!("budget-{number}");
    let budget: PodDisruptionBudget = from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": format!("nobody-{number}")}}},
    }))?;
    let budgets = Api::namespaced(
        client.clone(),
        if labels.is_some() { HOARDER } else { TENANT },
    );
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .with_context(|| name)?;
    Ok(())
}

/// Makes this number of pods on the first node, with as many bytes of labels as are read of a pod. They run nothing.
pub async fn make_crowd(control_plane: &ControlPlane, count: usize) -> Result<()> {
    let client = &control_plane.client();
    make_namespace(client, TENANT).await?;
    let labels: BTreeMap<String, String> = (0..CROWD_LABELS)
        .map(|number| (format!("{number:0>30}"), "x".repeat(30)))
        .collect();
    let (pods, name) = (
        Api::<Pod>::namespaced(client.clone(), TENANT),
        pod_name(0, 0),
    );
    let pod: Pod = from_value(json!({
        "metadata": {"name": name, "labels": labels,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-5d8f", "uid": "u",
                "controller": true}]},
        "spec": {"nodeName": "node-0", "containers": [{"name": "cart", "image": "example.org/cart:1"}]},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let asked = Request::new(format!("/api/v1/namespaces/{TENANT}/pods"))
        .get(&name, &GetParams::default())?;
    let first = client.request::<Json>(asked).await?;
    store(
        control_plane,
        (1..count).map(|number| copy(&first, 0, number)),
    )
    .await
}

/// Makes this number of pools that select no node, as large as their schema takes them.
pub async fn make_pools(client: &Client, count: usize) -> Result<()> {
    let values: Vec<String> = (0..32).map(|number| format!("{number:x>63}")).collect();
    let expressions: Vec<Json> = (0..16)
        .map(
            |number| json!({"key": format!("nobody-{number}"), "operator": "In", "values": values}),
        )
        .collect();
    let gates: Vec<Json> = (0..4)
        .map(|number| {
            let query = format!("up == {}", "1".repeat(1000));
            json!({"name": format!("g-{number}"),
                "prometheus": {"source": "main", "query": query, "requires": query}})
        })
        .collect();
    let windows: Vec<Json> = (0..16)
        .map(|number| json!({"schedule": format!("{number} 2 * * SAT"), "duration": "1h", "timeZone": "Europe/Berlin"}))
        .collect();
    let spec = json!({"nodeSelector": {"matchExpressions": expressions}, "gates": gates, "windows": windows});
    futures::stream::iter(0..count)
        .map(async |number| {
            let name = format!("pool-{number}");
            let pool: BottlerocketPool =
                from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
            let pools = Api::<BottlerocketPool>::namespaced(client.clone(), NAMESPACE);
            pools
                .create(&PostParams::default(), &pool)
                .await
                .with_context(|| name)?;
            Ok(())
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}

/// Changes all large budgets at the same time.
pub async fn change_budgets(client: &Client, count: usize) -> Result<()> {
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), HOARDER);
    let change = Patch::Merge(json!({"metadata": {"annotations": {"changed": "true"}}}));
    let params = PatchParams::default();
    let changes = (0..count).map(async |number| {
        budgets
            .patch(&format!("budget-{number}"), &params, &change)
            .await
    });
    futures::future::try_join_all(changes).await?;
    Ok(())
}
