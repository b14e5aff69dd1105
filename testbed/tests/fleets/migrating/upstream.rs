//! An installation of upstream's operator, 1.4, rebuilt from what is known of it: the names, selectors and versions that
//! others meet. What runs in its pods is a program that does nothing.

use anyhow::Result;
use brupop_api::names::shadow_name;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::objects::{kubectl, list, with_file};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, Fleet, Program, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};

const CRD: &str = "bottlerocketshadows.brupop.bottlerocket.aws";

/// Installs all of it.
pub(crate) async fn install(plane: &ControlPlane) -> Result<()> {
    kubectl(plane, &["create"], &[namespace(), crd()]).await?;
    plane
        .wait_for_condition("Established", &["crd", CRD])
        .await?;
    kubectl(plane, &["create"], &operator()).await.map(drop)
}

/// The shadow of the node of this number, as its apiserver makes it for its agent.
pub(crate) async fn make_shadow(fleet: &Fleet, number: usize) -> Result<()> {
    let node = Api::<Node>::all(fleet.client())
        .get(&format!("node-{number}"))
        .await?;
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()});
    let shadow = json!({
        "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
        "metadata": {"name": shadow_name(&node.name_any()), "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"state": "Idle", "state_transition_timestamp": null, "version": null},
    });
    await_until("its shadow is made", async || {
        // The definition is known to the API server a moment after it is there.
        let made = kubectl(
            &fleet.control_plane,
            &["create"],
            std::slice::from_ref(&shadow),
        )
        .await;
        made.ok()
    })
    .await?;
    let status = json!({
        "current_version": OLD, "target_version": NEW, "current_state": "Idle", "crash_count": 0,
        "state_transition_failure_timestamp": null,
    });
    patch_shadow(fleet, number, "status", &status).await
}

/// It changes this part of the shadow of the node of this number.
pub(crate) async fn patch_shadow(
    fleet: &Fleet,
    number: usize,
    part: &str,
    fields: &Json,
) -> Result<()> {
    let name = shadow_name(&format!("node-{number}"));
    let patch = Patch::Merge(json!({part: fields}));
    let (shadows, params) = (fleet.shadows(), PatchParams::default());
    if part == "status" {
        shadows.patch_status(&name, &params, &patch).await?;
    } else {
        shadows.patch(&name, &params, &patch).await?;
    }
    Ok(())
}

/// What stands for cert-manager, with whose certificates upstream works, and for Prometheus' operator, which may read its
/// metrics: somewhere for their objects to be.
pub(crate) async fn install_others(plane: &ControlPlane) -> Result<()> {
    let kinds = [
        ("cert-manager.io", "Certificate", "certificate"),
        ("cert-manager.io", "Issuer", "issuer"),
        ("monitoring.coreos.com", "ServiceMonitor", "servicemonitor"),
    ];
    let crds = kinds.map(|(group, kind, singular)| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{singular}s.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "singular": singular, "plural": format!("{singular}s")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    });
    kubectl(plane, &["create"], &crds).await?;
    plane
        .wait_for_condition("Established", &["crd", "--all"])
        .await
}

/// What of it is there: `<resource>/<name>`, sorted.
pub(crate) async fn what_is_left(plane: &ControlPlane) -> Result<Vec<String>> {
    let mut objects = operator();
    objects.extend([namespace(), crd()]);
    let found = with_file(
        plane,
        &["get", "-o", "name", "--ignore-not-found"],
        &list(&objects),
    )
    .await?;
    let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
    found.sort();
    Ok(found)
}

/// What runs in its pods.
pub(crate) fn programs() -> Vec<(String, Program)> {
    let program = Program {
        binary: "/bin/sleep".into(),
        env: vec![],
        ports: vec![],
    };
    ["./agent", "./apiserver", "./controller"]
        .map(|command| (command.to_owned(), program.clone()))
        .into()
}

/// A version of the CRD, with the fields and the states it had.
fn version(name: &str, storage: bool, states: &[&str], more: &Json) -> Json {
    let text = json!({"type": "string", "nullable": true});
    let state = json!({"type": "string", "enum": states});
    let mut reported = json!({
        "current_version": {"type": "string"}, "target_version": {"type": "string"}, "current_state": state,
    });
    let mut required = vec!["current_state", "current_version", "target_version"];
    if let (Some(reported), Some(more)) = (reported.as_object_mut(), more.as_object()) {
        reported.extend(more.clone());
        required.extend(more.contains_key("crash_count").then_some("crash_count"));
    }
    json!({
        "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "State", "type": "string", "jsonPath": ".status.current_state"}],
        "schema": {"openAPIV3Schema": {
            "type": "object", "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object", "required": ["state"],
                    "properties": {"state": state, "state_transition_timestamp": text, "version": text},
                },
                "status": {"type": "object", "nullable": true, "required": required, "properties": reported},
            },
        }},
    })
}

fn crd() -> Json {
    let first = [
        "Idle",
        "StagedUpdate",
        "PerformedUpdate",
        "RebootedIntoUpdate",
        "MonitoringUpdate",
    ];
    let states = [
        "Idle",
        "StagedAndPerformedUpdate",
        "RebootedIntoUpdate",
        "MonitoringUpdate",
        "ErrorReset",
    ];
    let more = json!({
        "crash_count": {"type": "integer", "format": "uint32", "minimum": 0},
        "state_transition_failure_timestamp": {"type": "string", "nullable": true},
    });
    let service = json!({
        "name": "brupop-apiserver", "namespace": NAMESPACE, "path": "/crdconvert", "port": 443,
    });
    let webhook =
        json!({"clientConfig": {"service": service}, "conversionReviewVersions": ["v2", "v1"]});
    let versions = [
        version("v2", true, &states, &more),
        version("v1", false, &first, &json!({})),
    ];
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": CRD,
            "annotations": {"cert-manager.io/inject-ca-from": format!("{NAMESPACE}/root-certificate")},
        },
        "spec": {
            "group": "brupop.bottlerocket.aws", "scope": "Namespaced",
            "names": {
                "kind": "BottlerocketShadow", "singular": "bottlerocketshadow",
                "plural": "bottlerocketshadows", "shortNames": ["brs"],
            },
            "conversion": {"strategy": "Webhook", "webhook": webhook}, "versions": versions,
        },
    })
}

fn namespace() -> Json {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

/// Everything but namespace and CRD.
fn operator() -> Vec<Json> {
    let mut objects = vec![json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "brupop-controller-high-priority"}, "value": 1_000_000,
        "preemptionPolicy": "Never",
    })];
    objects.extend(
        ["agent", "apiserver", "controller"]
            .iter()
            .flat_map(|component| account(component)),
    );
    let reviews = "brupop-apiserver-auth-delegator-role-binding";
    objects.push(binding(
        reviews,
        "system:auth-delegator",
        &account_of("apiserver"),
    ));
    objects.push(service("brupop-apiserver", "apiserver", 443, 8443));
    objects.push(service(
        "brupop-controller-server",
        "brupop-controller",
        80,
        8080,
    ));
    objects.extend(for_others());
    objects.push(deployment(
        "brupop-apiserver",
        "apiserver",
        3,
        &pod("apiserver", "apiserver", 8443),
    ));
    let mut controller = pod("controller", "brupop-controller", 8080);
    controller["spec"]["priorityClassName"] = json!("brupop-controller-high-priority");
    objects.push(deployment(
        "brupop-controller-deployment",
        "brupop-controller",
        1,
        &controller,
    ));
    objects.push(agent());
    objects
}

fn account_of(component: &str) -> String {
    format!("brupop-{component}-service-account")
}

/// The account of a component, its role and what binds them.
fn account(component: &str) -> [Json; 3] {
    let (account, role) = (account_of(component), format!("brupop-{component}-role"));
    let reads = json!({
        "apiGroups": ["brupop.bottlerocket.aws"], "resources": ["bottlerocketshadows"],
        "verbs": ["get", "list", "watch"],
    });
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": [reads],
        }),
        binding(&format!("{role}-binding"), &role, &account),
    ]
}

fn binding(name: &str, role: &str, account: &str) -> Json {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    })
}

fn service(name: &str, component: &str, port: u16, target: u16) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": labels(component), "ports": [{"port": port, "targetPort": target}]},
    })
}

/// What it asks of cert-manager, the Secrets that it gets, and what has its metrics read.
fn for_others() -> Vec<Json> {
    let object = |api: &str, kind: &str, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
    let certificates = [
        "brupop-apiserver-client-certificate",
        "brupop-apiserver-certificate",
        "brupop-selfsigned-ca",
    ];
    let issuers = ["brupop-root-certificate-issuer", "selfsigned-issuer"];
    let secrets = [
        "brupop-apiserver-client-certificate",
        "brupop-apiserver-certificate",
        "brupop-root-ca-secret",
    ];
    let of_manager = "cert-manager.io/v1";
    let certificates = certificates.map(|name| object(of_manager, "Certificate", name));
    let issuers = issuers.map(|name| object(of_manager, "Issuer", name));
    let secrets = secrets.map(|name| object("v1", "Secret", name));
    let monitor = object(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "brupop-controller",
    );
    certificates
        .into_iter()
        .chain(issuers)
        .chain(secrets)
        .chain([monitor])
        .collect()
}

fn labels(component: &str) -> Json {
    json!({"brupop.bottlerocket.aws/component": component})
}

fn pod(name: &str, component: &str, port: u16) -> Json {
    json!({
        "metadata": {"labels": labels(component)},
        "spec": {
            "serviceAccountName": account_of(name),
            "containers": [{
                "name": "brupop", "image": "upstream", "command": [format!("./{name}"), "infinity"],
                "ports": [{"name": "web", "containerPort": port}],
            }],
        },
    })
}

fn deployment(name: &str, component: &str, replicas: u8, template: &Json) -> Json {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels(component)}, "template": template},
    })
}

fn agent() -> Json {
    let mut template = pod("agent", "agent", 8080);
    let volumes = json!([
        {"name": "bottlerocket-api-socket", "hostPath": {"path": "/run/api.sock", "type": "Socket"}},
        {"name": "bottlerocket-tls-keys", "secret": {"secretName": "brupop-apiserver-client-certificate"}},
    ]);
    template["spec"]["volumes"] = volumes;
    template["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "bottlerocket-api-socket", "mountPath": "/run/api.sock"},
        {"name": "bottlerocket-tls-keys", "mountPath": "/etc/brupop-tls-keys"},
    ]);
    let opted_in = json!({
        "key": "bottlerocket.aws/updater-interface-version", "operator": "In", "values": ["2.0.0"],
    });
    template["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [opted_in]}],
    }}});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "brupop-agent", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels("agent")}, "template": template},
    })
}
