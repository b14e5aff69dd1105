//! The cluster that has to bear it: a fleet behind gateways, with workloads of several kinds.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::host::Durations;
use brupop_testbed::objects;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, Options};
use serde_json::{Value as Json, json};

use crate::SHOP;
use crate::fault::Settings;
use crate::people;

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
    people::limit_to(fleet.client(), settings.limit).await?;
    println!(
        "-- workloads: three with budgets, one without, a daemon, one that comes back wherever it is evicted"
    );
    fleet.apply(&workloads()).await?;
    fleet.until_rolled_out(SHOP, "cart").await?;
    fleet
        .until_rolled_out(NAMESPACE, "brupop-reconciler")
        .await?;
    Ok(fleet)
}

/// Workloads, by kind, name and replicas.
const WORKLOADS: [(&str, &str, usize); 6] = [
    ("Deployment", "cart", 16),
    ("Deployment", "web", 10),
    ("StatefulSet", "db", 3),
    ("DaemonSet", "logs", 0),
    ("Deployment", "cache", 5),
    ("Deployment", "sticky", 1),
];
/// The workloads that have a budget.
pub(crate) const BUDGETED: [&str; 3] = ["cart", "web", "db"];
/// `maxUnavailable` of a budget that is open.
pub(crate) const OPEN: &str = "25%";

fn workloads() -> Vec<Json> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}});
    let budget = |name| objects::budget(SHOP, name, name, &json!(OPEN));
    let workload = |(kind, name, replicas)| {
        let container =
            json!({"name": name, "image": "none", "env": [{"name": "PASSWORD", "value": SECRET}]});
        let mut pod = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
        // It comes back wherever it is evicted.
        if name == "sticky" {
            pod["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let mut object = objects::deployment(SHOP, name, replicas, &json!({"spec": pod}));
        object["kind"] = json!(kind);
        match kind {
            "StatefulSet" => object["spec"]["serviceName"] = json!(name),
            "DaemonSet" => object["spec"]["replicas"] = Json::Null,
            _ => {}
        }
        object
    };
    let objects = [namespace].into_iter().chain(BUDGETED.map(budget));
    objects.chain(WORKLOADS.map(workload)).collect()
}

/// Whether this is the key in etcd of an object that the checker looks at.
pub(crate) fn is_checked(key: &str) -> bool {
    let Some(rest) = key.strip_prefix("/registry/") else {
        return false;
    };
    let (resource, _) = rest.split_once('/').unwrap_or((rest, ""));
    matches!(resource, "minions" | "pods" | "poddisruptionbudgets")
        || rest.starts_with(brupop_api::names::GROUP)
}
