//! The test bed itself, on a real control plane.

use anyhow::Result;
use brupop_testbed::{ControlPlane, Options, await_until, make_nodes};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use serde_json::{from_value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_stores_audits_and_cleans_up() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    println!("ready in {:?}", control_plane.ready_in());
    let (dir, group) = (control_plane.dir().to_owned(), control_plane.sandbox().group());
    let api = Api::<ConfigMap>::namespaced(control_plane.client(), "default");
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("seen".to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("key".to_owned(), "value".to_owned())])),
        ..ConfigMap::default()
    };
    api.create(&PostParams::default(), &map).await?;
    // The line is there before the answer is.
    let events = control_plane.audit().from_start().read()?;
    let create = events.iter().find(|e| e.verb == "create" && e.is_about("configmaps", "seen"));
    assert_eq!(create.map(|e| (e.user.username.as_str(), e.code())), Some(("admin", 201)));
    let got = control_plane.kubectl(["get", "configmap", "seen", "-o", "jsonpath={.data.key}"]).await?;
    assert_eq!(got, "value");

    drop(control_plane);
    assert!(!dir.exists());
    assert!(processes_of(group).is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_token_names_node_and_pod() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    let client = control_plane.client();
    let node = make_nodes(&client, 1).await?.remove(0);
    let account: ServiceAccount = from_value(json!({"metadata": {"name": "speaker"}}))?;
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &account).await?;
    let pod: Pod = from_value(json!({
        "metadata": {"name": "speaker"},
        "spec": {
            "nodeName": "node-0", "serviceAccountName": "speaker",
            "containers": [{"name": "speaker", "image": "none"}],
        },
    }))?;
    let pod = Api::namespaced(client.clone(), "default").create(&PostParams::default(), &pod).await?;

    let token = control_plane.bound_token("default", "speaker", "speaker").await?;
    let client = control_plane.client_for_token(&token).await?;
    let review = Api::<SelfSubjectReview>::all(client)
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:speaker"));
    let extra = user.extra.unwrap_or_default();
    let claim = |name: &str| extra.get(&format!("authentication.kubernetes.io/{name}")).cloned();
    assert_eq!(claim("node-name"), Some(vec!["node-0".to_owned()]));
    assert_eq!(claim("node-uid"), Some(vec![node.uid().unwrap_or_default()]));
    assert_eq!(claim("pod-name"), Some(vec!["speaker".to_owned()]));
    assert_eq!(claim("pod-uid"), Some(vec![pod.uid().unwrap_or_default()]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kwok_runs_daemon_sets_and_keeps_node_facts() -> Result<()> {
    let mut control_plane = ControlPlane::start(Options::CLUSTER).await?;
    let client = control_plane.client();
    let made = make_nodes(&client, 2).await?;
    let daemon_set: DaemonSet = from_value(json!({
        "metadata": {"name": "everywhere"},
        "spec": {
            "selector": {"matchLabels": {"app": "everywhere"}},
            "template": {
                "metadata": {"labels": {"app": "everywhere"}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    }))?;
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &daemon_set).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions
            .is_some_and(|conditions| conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
    };
    let running = await_until("two ready pods", DEADLINE, async || {
        let list = pods.list(&ListParams::default().labels("app=everywhere")).await.ok()?;
        (list.items.len() == 2 && list.iter().all(ready)).then_some(list.items)
    });
    let running = running.await?;

    let victim = running[0].name_any();
    pods.delete(&victim, &DeleteParams::default()).await?;
    await_until("the deleted pod has gone", DEADLINE, async || {
        pods.get_opt(&victim).await.ok()?.is_none().then_some(())
    })
    .await?;

    let nodes = Api::<Node>::all(client);
    for made in made {
        let now = nodes.get(&made.name_any()).await?;
        let info = |node: &Node| node.status.as_ref().and_then(|status| status.node_info.clone());
        assert!(info(&made).is_some());
        assert_eq!(info(&now), info(&made));
    }
    control_plane.check()
}

/// Processes of a group that are more than a zombie.
fn processes_of(group: i32) -> Vec<String> {
    let stats = std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        (fields.first() != Some(&"Z") && fields.get(2)?.parse() == Ok(group)).then(|| stat.clone())
    });
    stats.collect()
}
