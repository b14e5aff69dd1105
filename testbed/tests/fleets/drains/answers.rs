//! Tests of a real API server's answers to evictions.

use anyhow::{Context as _, Result, ensure};
use brupop_core::drain::PodKey;
use brupop_reconciler::run::evict::remove;
use brupop_testbed::operator::make_namespace;
use brupop_testbed::{ControlPlane, Options};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, from_value, json};

/// Of each pod; not a default of anybody's.
const GRACE_SECONDS: i64 = 77;

#[tokio::test(flavor = "multi_thread")]
async fn every_eviction_response_is_understood() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    // It hands over 429 as the reconciler's does.
    let client = control_plane.impatient_client(None).await?;
    for namespace in ["shop", "closing"] {
        make_namespace(&client, namespace).await?;
    }
    let budget = async |name: &str, app: &str, seen: bool, allowed: i32| {
        make_budget(&client, name, app, seen, allowed).await
    };
    budget("none", "cart", true, 0).await?;
    budget("unseen", "new", false, 1).await?;
    budget("one", "mail", true, 1).await?;
    budget("first", "twice", true, 1).await?;
    budget("second", "twice", true, 1).await?;
    let pod = async |namespace: &str, app: &str| make_pod(&client, namespace, app).await;
    let (cart, new, mail) = (
        pod("shop", "cart").await?,
        pod("shop", "new").await?,
        pod("shop", "mail").await?,
    );
    let (twice, free, last) = (
        pod("shop", "twice").await?,
        pod("shop", "free").await?,
        pod("closing", "last").await?,
    );
    Api::<Namespace>::all(client.clone())
        .delete("closing", &DeleteParams::default())
        .await?;
    let earlier = |pod: &PodKey| PodKey {
        uid: "00000000-0000-4000-8000-000000000000".into(),
        ..pod.clone()
    };
    let gone = PodKey {
        name: "gone".into(),
        ..earlier(&free)
    };

    let stays: &[&str] = &[];
    let mut audit = control_plane.audit().from_now();
    for (what, pod, code, word, says) in [
        ("there is none of this name", &gone, 404, "gone", stays),
        (
            "made again under its name",
            &earlier(&free),
            409,
            "gone",
            stays,
        ),
        (
            "no disruption allowed",
            &cart,
            429,
            "blocked",
            &["budget none", "needs 1 healthy pods and has 1"],
        ),
        (
            "a budget not yet looked at",
            &new,
            429,
            "blocked",
            &["budget unseen", "still being processed"],
        ),
        (
            "two budgets",
            &twice,
            500,
            "failed",
            &["more than one PodDisruptionBudget"],
        ),
        (
            "its namespace is being deleted",
            &last,
            403,
            "namespace-terminating",
            stays,
        ),
        ("a disruption allowed", &mail, 201, "accepted", stays),
        ("without a budget", &free, 201, "accepted", stays),
    ] {
        let answer = remove(client.clone(), pod, true).await;
        let said = format!("{answer:?}");
        ensure!(answer.as_str() == word, "{what}: {said}");
        ensure!(
            says.iter().all(|part| said.contains(part)),
            "{what}: {said}"
        );
        let events = audit.read()?;
        let codes: Vec<u16> = events
            .iter()
            .filter(|event| event.is_about("pods", &pod.name))
            .map(brupop_testbed::audit::Event::code)
            .collect();
        ensure!(codes == [code], "{what}: {codes:?}");
        let leaves = grace_left(&client, pod).await?;
        let goes = code == 201;
        ensure!(
            leaves == goes.then_some(GRACE_SECONDS),
            "{what}: it leaves in {leaves:?} s"
        );
    }

    // By force: the same pod or none, and with the time that it wants.
    ensure!(
        remove(client.clone(), &earlier(&cart), false)
            .await
            .as_str()
            == "gone"
    );
    ensure!(
        grace_left(&client, &cart).await?.is_none(),
        "another pod of that name was deleted"
    );
    ensure!(remove(client.clone(), &cart, false).await.as_str() == "accepted");
    ensure!(grace_left(&client, &cart).await? == Some(GRACE_SECONDS));
    Ok(())
}

/// A budget over the pods of an app, of which there is one, with what its controller would say of it.
async fn make_budget(
    client: &Client,
    name: &str,
    app: &str,
    seen: bool,
    allowed: i32,
) -> Result<()> {
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), "shop");
    let budget = from_value(json!({
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }))?;
    let generation = budgets
        .create(&PostParams::default(), &budget)
        .await?
        .metadata
        .generation;
    let status = json!({"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1, "observedGeneration": if seen { generation } else { Some(0) }});
    merge_status(&budgets, name, &status).await
}

/// A pod of the app that runs and is Ready, on a node whose kubelet says nothing.
async fn make_pod(client: &Client, namespace: &str, app: &str) -> Result<PodKey> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pod = from_value(json!({
        "metadata": {"name": app, "labels": {"app": app}},
        "spec": {"nodeName": "node-0", "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": "c", "image": "none"}]},
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    merge_status(&pods, app, &status).await?;
    Ok(PodKey {
        namespace: namespace.to_owned(),
        name: pod.name_any(),
        uid: pod.uid().context("no UID")?,
    })
}

async fn merge_status<K>(objects: &Api<K>, name: &str, status: &Json) -> Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"status": status}));
    objects
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The seconds that a pod on its way out was given; `None` of one that stays, or is not there.
async fn grace_left(client: &Client, pod: &PodKey) -> Result<Option<i64>> {
    let found = Api::<Pod>::namespaced(client.clone(), &pod.namespace)
        .get_opt(&pod.name)
        .await?;
    let leaving = found
        .map(|pod| pod.metadata)
        .filter(|metadata| metadata.deletion_timestamp.is_some());
    Ok(leaving.and_then(|metadata| metadata.deletion_grace_period_seconds))
}
