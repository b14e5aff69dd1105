//! The cluster that has to bear it: a fleet behind gateways, with workloads of several kinds.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::host::Durations;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, Options};
use serde_json::{Value as Json, json};

use crate::SHOP;
use crate::fault::Settings;
use crate::people;
use crate::pools;

/// Number of nodes that there are.
pub(crate) const NODES: usize = 20;

/// Stands in the workloads' environment, and must stand in no log.
pub(crate) const SECRET: &str = "hunter2-is-nobodys-business";

/// Writes only; with their bodies those of our own programs, which write no Secret but the webhook's.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"], "omitManagedFields": true,
  "rules": [
    {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete", "deletecollection"], "users": [
      "system:serviceaccount:brupop-bottlerocket-aws:brupop-agent",
      "system:serviceaccount:brupop-bottlerocket-aws:brupop-reconciler"]},
    {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"],
     "users": ["system:serviceaccount:brupop-bottlerocket-aws:brupop-webhook"]},
    {"level": "None"}
  ]
}"#;

/// Deadlines that come to pass within seconds, so that they are part of the test.
const PATIENCE: [(&str, &str); 15] = [
    // Certificates are renewed during each run.
    ("CERTIFICATE_LIFETIME", "60s"),
    ("SOAK_SECONDS", "1"),
    ("WORKLOADS_DEADLINE_SECONDS", "10"),
    ("STAGE_DEADLINE_SECONDS", "20"),
    ("DRAIN_DEADLINE_SECONDS", "15"),
    ("REBOOT_DEADLINE_SECONDS", "8"),
    ("SETTLE_DEADLINE_SECONDS", "12"),
    ("BACK_OFF_BASE_SECONDS", "1"),
    ("CHECK_INTERVAL_SECONDS", "3"),
    ("REFRESH_INTERVAL", "2s"),
    ("POLL_INTERVAL", "100ms"),
    ("HOST_TIMEOUT", "2s"),
    ("REBOOT_REPEAT_INTERVAL", "2s"),
    ("REFUSED_DEADLINE", "8s"),
    ("LEASE_DURATION_SECONDS", "4"),
];

/// Starts it; returns when every agent has reported.
pub(crate) async fn start(settings: &Settings) -> Result<Fleet> {
    let exclusion = settings.exclusion.to_string();
    let set = [("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", exclusion.as_str())];
    let moment = Duration::from_millis(150);
    let durations = Durations {
        refresh: Duration::from_millis(50),
        prepare: moment * 2,
        activate: moment,
        deactivate: moment,
        reboot: moment * 4,
    };
    let options = FleetOptions {
        control_plane: Options {
            audit_policy: Some(AUDIT_POLICY),
            under_faults: true,
            ..Options::CLUSTER
        },
        copied: false,
        behind_gateways: true,
        say: |what| println!("-- {what}"),
        durations,
        variants: &["aws-k8s-1.36", "aws-k8s-1.36-nvidia"],
        ..FleetOptions::quick(NODES, &[&PATIENCE[..], &set].concat())
    };
    let fleet = Fleet::start(&options).await?;
    let [unproven, proven] = settings.failures;
    let threshold = json!({"unproven": unproven, "proven": proven});
    fleet.change(json!({"failureThreshold": threshold})).await?;
    let [component, setting] = ["reconciler", "MAX_CONCURRENT_UPDATE"].map(str::to_owned);
    people::configure(
        fleet.client(),
        component,
        setting,
        settings.limit.to_string(),
    )
    .await?;
    if settings.pools {
        println!("-- three pools, of which one comes after another");
        pools::make(&fleet).await?;
    }
    println!(
        "-- workloads: four with budgets, one without, a daemon, one that comes back wherever it is evicted"
    );
    fleet.apply(&workloads()).await?;
    fleet.until_rolled_out(SHOP, "cart").await?;
    fleet
        .until_rolled_out(NAMESPACE, "brupop-reconciler")
        .await?;
    Ok(fleet)
}

fn workloads() -> [Json; 12] {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}});
    [
        namespace,
        workload(
            "apps/v1",
            "Deployment",
            "cart",
            &json!({"replicas": 16}),
            &json!({}),
        ),
        budget("cart"),
        workload(
            "apps/v1",
            "Deployment",
            "web",
            &json!({"replicas": 10}),
            &json!({}),
        ),
        budget("web"),
        workload(
            "apps/v1",
            "StatefulSet",
            "db",
            &json!({"replicas": 3, "serviceName": "db"}),
            &json!({}),
        ),
        budget("db"),
        workload(
            "apps/v1",
            "Deployment",
            "queue",
            &json!({"replicas": 4}),
            &json!({}),
        ),
        budget("queue"),
        workload(
            "apps/v1",
            "Deployment",
            "cache",
            &json!({"replicas": 5}),
            &json!({}),
        ),
        workload("apps/v1", "DaemonSet", "logs", &json!({}), &json!({})),
        workload(
            "apps/v1",
            "Deployment",
            "sticky",
            &json!({"replicas": 1}),
            &json!({"tolerations": [{"operator": "Exists"}]}),
        ),
    ]
}

fn workload(api_version: &str, kind: &str, name: &str, more: &Json, of_pods: &Json) -> Json {
    let labels = json!({"app": name});
    let mut pod = pod_spec(name);
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": SHOP},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
    });
    json_patch::merge(&mut pod, of_pods);
    json_patch::merge(&mut object["spec"], more);
    object["spec"]["template"]["spec"] = pod;
    object
}

/// The spec of a pod that has the secret and ends at once.
pub(crate) fn pod_spec(container: &str) -> Json {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": container, "image": "none", "env": [{"name": "PASSWORD", "value": SECRET}]}],
    })
}

fn budget(name: &str) -> Json {
    let mut object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"selector": {"matchLabels": {"app": name}}},
    });
    json_patch::merge(&mut object["spec"], &open_budget(name));
    object
}

/// Returns what the spec of a workload's budget says when it is open, as a merge patch.
pub(crate) fn open_budget(name: &str) -> Json {
    match name {
        "cart" => json!({"maxUnavailable": "25%", "minAvailable": null}),
        "queue" => json!({"minAvailable": 3, "maxUnavailable": null}),
        "web" => json!({"minAvailable": "70%", "maxUnavailable": null}),
        _ => json!({"maxUnavailable": 1, "minAvailable": null}),
    }
}

/// Whether this is the key in etcd of an object that the checker reads.
pub(crate) fn is_checked(key: &str) -> bool {
    let Some(rest) = key.strip_prefix("/registry/") else {
        return false;
    };
    let (resource, _) = rest.split_once('/').unwrap_or((rest, ""));
    matches!(resource, "minions" | "pods" | "poddisruptionbudgets")
        || rest.starts_with(brupop_api::names::GROUP)
}
