//! What tenants do to a cluster: their pods, their budgets, and what they let the API server answer us.

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{from_value, json};

use crate::SHOP;
use crate::people::{make, merge, node_name, remove, until_gone};
use crate::world::{open_budget, pod_spec};

/// All accounts of the operator.
const OURS: &str = "system:serviceaccounts:brupop-bottlerocket-aws";
/// The share of the API server that is none.
const THROTTLED: &str = "brupop-chaos-throttled";
/// The webhook that nobody answers for.
const REFUSED: &str = "brupop-chaos-refused";

/// A budget allows no disruption, or as many as it usually does.
pub(crate) async fn budget(client: Client, workload: String, open: bool) -> Result<()> {
    let closed = json!({"maxUnavailable": 0, "minAvailable": null});
    let spec = if open { open_budget(&workload) } else { closed };
    merge(
        &Api::<PodDisruptionBudget>::namespaced(client, SHOP),
        &workload,
        json!({"spec": spec}),
    )
    .await
}

/// Kubernetes evicts no pod that two budgets select. What selects more than 64 values is not read by us.
pub(crate) async fn another_budget(
    client: Client,
    workload: String,
    unreadable: bool,
) -> Result<()> {
    let others = (0..if unreadable { 100 } else { 0 }).map(|number| format!("other-{number}"));
    let values: Vec<String> = std::iter::once(workload.clone()).chain(others).collect();
    let budget = json!({
        "metadata": {"name": another(&workload)},
        "spec": {"maxUnavailable": 1, "selector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": values},
        ]}},
    });
    make(
        &Api::<PodDisruptionBudget>::namespaced(client, SHOP),
        budget,
    )
    .await
}

/// Deletes it, whenever the API server takes that.
pub(crate) async fn delete_another_budget(client: Client, workload: String) -> Result<()> {
    until_gone(
        &Api::<PodDisruptionBudget>::namespaced(client, SHOP),
        &another(&workload),
    )
    .await
}

fn another(workload: &str) -> String {
    format!("{workload}-too")
}

/// A pod without a controller, bound to this node.
pub(crate) async fn pod(client: Client, node: usize) -> Result<()> {
    bound_pod(client, &pod_name(node), node, &[]).await
}

/// Makes a pod without a controller that is bound to this node, and kept by these finalizers.
pub(crate) async fn bound_pod(
    client: Client,
    name: &str,
    node: usize,
    finalizers: &[&str],
) -> Result<()> {
    let mut pod =
        json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": pod_spec("c")});
    pod["spec"]["nodeName"] = json!(node_name(node));
    let pod: Pod = from_value(pod)?;
    Api::<Pod>::namespaced(client, SHOP)
        .create(&PostParams::default(), &pod)
        .await?;
    Ok(())
}

pub(crate) async fn delete_pod(client: Client, node: usize) -> Result<()> {
    let now = DeleteParams::default().grace_period(0);
    remove(&Api::<Pod>::namespaced(client, SHOP), &pod_name(node), &now).await
}

fn pod_name(node: usize) -> String {
    format!("unmanaged-{node}")
}

/// Gives our programs no share of the API server at all, or their usual one.
pub(crate) async fn throttle(client: Client, throttled: bool) -> Result<()> {
    let schemas = Api::<FlowSchema>::all(client.clone());
    if !throttled {
        return remove(&schemas, THROTTLED, &DeleteParams::default()).await;
    }
    let level = json!({
        "metadata": {"name": THROTTLED},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    make(&Api::<PriorityLevelConfiguration>::all(client), level).await?;
    let group = json!({"kind": "Group", "group": {"name": OURS}});
    let schema = json!({
        "metadata": {"name": THROTTLED},
        "spec": {
            // 1 is for the level `exempt` alone.
            "matchingPrecedence": 2, "priorityLevelConfiguration": {"name": THROTTLED},
            "rules": [{
                "subjects": [group],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                    "clusterScope": true,
                }],
            }],
        },
    });
    make(&schemas, schema).await
}

/// A tenant's webhook is to be asked about what our programs write, and is not there; or no longer.
pub(crate) async fn refuse(client: Client, refused: bool) -> Result<()> {
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client);
    if !refused {
        return remove(&hooks, REFUSED, &DeleteParams::default()).await;
    }
    let ours = format!("request.userInfo.groups.exists(group, group == '{OURS}')");
    let hook = json!({
        "metadata": {"name": REFUSED},
        "webhooks": [{
            "name": "refuses.example.org",
            // Nothing listens there.
            "clientConfig": {"url": "https://localhost:1/"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            "matchConditions": [{"name": "ours", "expression": ours}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 2,
        }],
    });
    make(&hooks, hook).await
}
