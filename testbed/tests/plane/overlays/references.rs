//! Tests of references between objects.

use std::collections::BTreeSet;

use brupop_api::names;
use serde_json::{Value as Json, json};

/// The Secret of cert-manager, whose name no prefix changes.
const MADE_BY_CERT_MANAGER: &str = "brupop-webhook-tls";
/// The label of the operator's own pods.
const COMPONENT: &str = "brupop.bottlerocket.aws/component";
/// By which variables our programs are told what their containers call these ports, and which they take else.
const LISTENERS: [(&str, &str, u64); 3] = [
    ("admission", "ADMISSION_ADDRESS", 8443),
    ("health", "HEALTH_ADDRESS", 8080),
    ("metrics", "METRICS_ADDRESS", 8444),
];

/// Returns what does not fit together.
pub fn wrong(objects: &[Json]) -> Vec<String> {
    let mut wrong = Vec::new();
    let workloads: Vec<_> = workloads(objects).collect();
    let images: Vec<_> = operators(objects)
        .map(|workload| container(workload)["image"].as_str())
        .collect();
    if images.len() != 3 || images.iter().collect::<BTreeSet<_>>().len() != 1 {
        wrong.push(format!("not one image for three workloads: {images:?}"));
    }
    for workload in &workloads {
        wrong.extend(of_workload(objects, workload));
    }
    for object in objects {
        wrong.extend(of_object(objects, &workloads, object));
        wrong.extend(of_selectors(&workloads, object));
        wrong.extend(of_resource_names(objects, object));
    }
    wrong
}

/// Those that run the operator's own programs.
pub fn operators(objects: &[Json]) -> impl Iterator<Item = &Json> {
    workloads(objects).filter(|object| {
        object["spec"]["template"]["metadata"]["labels"]
            .get(COMPONENT)
            .is_some()
    })
}

/// `DaemonSet` and Deployments.
fn workloads(objects: &[Json]) -> impl Iterator<Item = &Json> {
    objects
        .iter()
        .filter(|object| object.pointer("/spec/template/spec/containers").is_some())
}

pub fn container(workload: &Json) -> &Json {
    &workload["spec"]["template"]["spec"]["containers"][0]
}

pub fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn items(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn exists(objects: &[Json], kind: &str, name: &Json) -> bool {
    objects
        .iter()
        .any(|object| object["kind"] == kind && object["metadata"]["name"] == *name)
}

/// The number of a container's port by its name.
fn port(workload: &Json, name: &str) -> Option<u64> {
    items(&container(workload)["ports"]).find(|port| port["name"] == name)?["containerPort"]
        .as_u64()
}

fn of_workload(objects: &[Json], workload: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    let (name, pod, container) = (
        text(&workload["metadata"]["name"]),
        &workload["spec"]["template"]["spec"],
        container(workload),
    );
    let mut needs = |kind: &str, of: &Json| {
        if !exists(objects, kind, of) {
            wrong.push(format!("{name}: there is no {kind} {of}"));
        }
    };
    if let Some(class) = pod.get("priorityClassName") {
        needs("PriorityClass", class);
    }
    needs("ServiceAccount", &pod["serviceAccountName"]);
    for volume in items(&pod["volumes"]) {
        for (source, field, kind) in [
            ("configMap", "name", "ConfigMap"),
            ("secret", "secretName", "Secret"),
        ] {
            // The administrator makes optional objects, if at all.
            if let Some(source) = volume
                .get(source)
                .filter(|source| source["optional"] != true)
            {
                needs(kind, &source[field]);
            }
        }
    }
    for from in items(&container["envFrom"]) {
        needs("ConfigMap", &from["configMapRef"]["name"]);
    }
    let variables = || items(&container["env"]);
    for variable in variables() {
        match text(&variable["name"]) {
            "WEBHOOK_CONFIGURATION" => needs("ValidatingWebhookConfiguration", &variable["value"]),
            "WEBHOOK_SERVICE" => needs("Service", &variable["value"]),
            // cert-manager makes its own.
            "WEBHOOK_CERTIFICATES" if variable["value"] != MADE_BY_CERT_MANAGER => {
                needs("Secret", &variable["value"]);
            }
            _ => {}
        }
    }
    for (called, variable, usual) in LISTENERS {
        let told = variables()
            .find(|told| told["name"] == variable)
            .map(|told| text(&told["value"]));
        let listens = told.map_or(Some(usual), |address| {
            address.rsplit(':').next()?.parse().ok()
        });
        if port(workload, called).is_some_and(|number| Some(number) != listens) {
            wrong.push(format!(
                "{name} listens on {listens:?}, and its port {called} is another"
            ));
        }
    }
    for probe in ["livenessProbe", "readinessProbe"] {
        let asked = &container[probe]["httpGet"]["port"];
        if !asked.is_null() && port(workload, text(asked)).is_none() {
            wrong.push(format!("{name}: {probe} asks port {asked}"));
        }
    }
    wrong
}

fn of_object(objects: &[Json], workloads: &[&Json], object: &Json) -> Vec<String> {
    let (kind, name, spec) = (
        text(&object["kind"]),
        text(&object["metadata"]["name"]),
        &object["spec"],
    );
    let mut wrong = Vec::new();
    let mut needs = |kind_of: &str, of: &Json| {
        if !exists(objects, kind_of, of) {
            wrong.push(format!("{kind} {name}: there is no {kind_of} {of}"));
        }
    };
    let mut ports = Vec::new();
    match kind {
        "RoleBinding" | "ClusterRoleBinding" => {
            needs(text(&object["roleRef"]["kind"]), &object["roleRef"]["name"]);
            items(&object["subjects"])
                .for_each(|subject| needs("ServiceAccount", &subject["name"]));
        }
        "ValidatingAdmissionPolicyBinding" => {
            needs("ValidatingAdmissionPolicy", &spec["policyName"]);
        }
        "FlowSchema" => {
            needs(
                "PriorityLevelConfiguration",
                &spec["priorityLevelConfiguration"]["name"],
            );
            let subjects = items(&spec["rules"]).flat_map(|rule| items(&rule["subjects"]));
            subjects
                .for_each(|subject| needs("ServiceAccount", &subject["serviceAccount"]["name"]));
        }
        "ValidatingWebhookConfiguration" => {
            items(&object["webhooks"])
                .for_each(|webhook| needs("Service", &webhook["clientConfig"]["service"]["name"]));
            let from = text(&object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]);
            let is_meant = |made: &Json| {
                let made_by = |metadata: &Json| {
                    format!(
                        "{}/{}",
                        text(&metadata["namespace"]),
                        text(&metadata["name"])
                    )
                };
                made["kind"] == "Certificate" && made_by(&made["metadata"]) == from
            };
            if !from.is_empty() && !objects.iter().any(is_meant) {
                wrong.push(format!("{kind} {name}: there is no Certificate {from}"));
            }
        }
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            needs(
                "ServiceAccount",
                &object["metadata"]["annotations"]["kubernetes.io/service-account.name"],
            );
        }
        "PodMonitor" => {
            for endpoint in items(&spec["podMetricsEndpoints"]) {
                needs("Secret", &endpoint["authorization"]["credentials"]["name"]);
                ports.push((&spec["selector"], &endpoint["port"]));
            }
        }
        "Certificate" => {
            needs("Issuer", &spec["issuerRef"]["name"]);
            // The webhook's, which is called like its Service.
            let namespace = text(&object["metadata"]["namespace"]);
            let service = [
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}"),
            ];
            if spec["isCA"] != true && spec["dnsNames"] != json!(service) {
                wrong.push(format!("{kind} {name}: is for {}", spec["dnsNames"]));
            }
        }
        "Service" => {
            ports
                .extend(items(&spec["ports"]).map(|port| (&spec["selector"], &port["targetPort"])));
        }
        "NetworkPolicy" => {
            let open = items(&spec["ingress"]).flat_map(|rule| items(&rule["ports"]));
            ports.extend(open.map(|port| (&spec["podSelector"], &port["port"])));
        }
        _ => {}
    }
    for (selector, named) in ports {
        let selected: Vec<_> = workloads
            .iter()
            .filter(|workload| selects(selector, workload))
            .collect();
        let has_none = |workload: &Json| port(workload, text(named)).is_none();
        if selected.is_empty() || selected.iter().any(|workload| has_none(workload)) {
            wrong.push(format!(
                "{kind} {name}: not all that it selects has a port {named}"
            ));
        }
        let forgotten =
            |workload: &Json| port(workload, text(named)).is_some() && !selects(selector, workload);
        if kind == "PodMonitor" && workloads.iter().any(|workload| forgotten(workload)) {
            wrong.push(format!(
                "{kind} {name}: not all that has a port {named} is selected"
            ));
        }
    }
    wrong
}

/// Whether a selector, of a Service or of the newer kind, selects the workload's pods.
fn selects(selector: &Json, workload: &Json) -> bool {
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let newer = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let equal = if newer {
        &selector["matchLabels"]
    } else {
        selector
    };
    let one_of = |asked: &Json| {
        asked["operator"] == "In"
            && items(&asked["values"]).any(|value| labels.get(text(&asked["key"])) == Some(value))
    };
    equal
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value))
        && items(&selector["matchExpressions"]).all(one_of)
}

/// A budget or policy of two workloads at once or of the wrong one, a spread over another's pods: no API server minds.
fn of_selectors(workloads: &[&Json], object: &Json) -> Vec<String> {
    let (kind, name, spec) = (
        text(&object["kind"]),
        text(&object["metadata"]["name"]),
        &object["spec"],
    );
    let selectors: Vec<_> = match kind {
        "PodDisruptionBudget" => vec![&spec["selector"]],
        "NetworkPolicy" => vec![&spec["podSelector"]],
        "DaemonSet" | "Deployment" => items(&spec["template"]["spec"]["topologySpreadConstraints"])
            .map(|constraint| &constraint["labelSelector"])
            .chain([&spec["selector"]])
            .collect(),
        _ => Vec::new(),
    };
    let component = |object: &Json| {
        text(&object["metadata"]["labels"]["app.kubernetes.io/component"]).to_owned()
    };
    let mut wrong = Vec::new();
    for selector in selectors {
        let selected = workloads
            .iter()
            .filter(|workload| selects(selector, workload));
        let selected: Vec<_> = selected.map(|workload| component(workload)).collect();
        if selected != [component(object)] {
            wrong.push(format!("{kind} {name}: {selector} selects {selected:?}"));
        }
    }
    wrong
}

/// Rights to objects by name: they are there, or will be made under that name.
fn of_resource_names(objects: &[Json], object: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    for rule in items(&object["rules"]) {
        for (resource, of) in items(&rule["resources"])
            .flat_map(|resource| items(&rule["resourceNames"]).map(move |of| (resource, of)))
        {
            let there = match text(resource) {
                "leases" => of == names::LEASE,
                "secrets" if of == MADE_BY_CERT_MANAGER => objects
                    .iter()
                    .any(|made| made["kind"] == "Certificate" && made["spec"]["secretName"] == *of),
                "secrets" => exists(objects, "Secret", of),
                // Upstream's, which nobody of ours makes.
                "deployments" => {
                    ["brupop-controller-deployment", "brupop-apiserver"].contains(&text(of))
                }
                // The reconciler makes it.
                "bottlerocketfleets" => of == names::FLEET,
                "validatingwebhookconfigurations" => {
                    exists(objects, "ValidatingWebhookConfiguration", of)
                }
                _ => false,
            };
            if !there {
                let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
                wrong.push(format!(
                    "{kind} {name} gives rights to {resource} {of}, which nobody makes"
                ));
            }
        }
    }
    wrong
}
