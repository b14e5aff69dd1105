//! Tests of references between objects.

use std::collections::BTreeSet;

use brupop_api::names;
use serde_json::{Value as Json, json};

/// The Secret of cert-manager, whose name no prefix changes.
const MADE_BY_CERT_MANAGER: &str = "brupop-webhook-tls";
/// The label of the operator's own pods.
const COMPONENT: &str = "brupop.bottlerocket.aws/component";
/// The ports of our containers, with the variables that name them and their defaults.
const LISTENERS: [(&str, &str, u64); 3] = [
    ("admission", "ADMISSION_ADDRESS", 8443),
    ("health", "HEALTH_ADDRESS", 8080),
    ("metrics", "METRICS_ADDRESS", 8444),
];

/// Pointers to names of objects, and the kind of each.
const REFERENCES: [(&str, &str); 13] = [
    ("/subjects/*/name", "ServiceAccount"),
    ("/spec/policyName", "ValidatingAdmissionPolicy"),
    (
        "/spec/priorityLevelConfiguration/name",
        "PriorityLevelConfiguration",
    ),
    (
        "/spec/rules/*/subjects/*/serviceAccount/name",
        "ServiceAccount",
    ),
    ("/webhooks/*/clientConfig/service/name", "Service"),
    (
        "/metadata/annotations/kubernetes.io~1service-account.name",
        "ServiceAccount",
    ),
    (
        "/spec/podMetricsEndpoints/*/authorization/credentials/name",
        "Secret",
    ),
    ("/spec/issuerRef/name", "Issuer"),
    ("/spec/template/spec/priorityClassName", "PriorityClass"),
    ("/spec/template/spec/serviceAccountName", "ServiceAccount"),
    ("/spec/template/spec/volumes/*/configMap/name", "ConfigMap"),
    ("/spec/template/spec/volumes/*/secret/secretName", "Secret"),
    (
        "/spec/template/spec/containers/*/envFrom/*/configMapRef/name",
        "ConfigMap",
    ),
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

/// Returns what stands at this pointer, where `*` is each item of a list that is not optional.
fn at<'j>(value: &'j Json, pointer: &str) -> Vec<&'j Json> {
    match pointer.split_once("/*") {
        None => value.pointer(pointer).into_iter().collect(),
        Some((list, rest)) => {
            let list = value.pointer(list).unwrap_or(&Json::Null);
            let needed = items(list).filter(|item| item["secret"]["optional"] != true);
            needed.flat_map(|item| at(item, rest)).collect()
        }
    }
}

fn of_workload(objects: &[Json], workload: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    let (name, container) = (text(&workload["metadata"]["name"]), container(workload));
    for variable in items(&container["env"]) {
        let kind = match text(&variable["name"]) {
            "WEBHOOK_CONFIGURATION" => "ValidatingWebhookConfiguration",
            "WEBHOOK_SERVICE" => "Service",
            // cert-manager makes its own.
            "WEBHOOK_CERTIFICATES" if variable["value"] != MADE_BY_CERT_MANAGER => "Secret",
            _ => continue,
        };
        if !exists(objects, kind, &variable["value"]) {
            wrong.push(format!("{name}: there is no {kind} of {variable}"));
        }
    }
    for (called, variable, usual) in LISTENERS {
        let told = items(&container["env"])
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
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let (spec, mut wrong) = (&object["spec"], Vec::new());
    let mut needs = |kind_of: &str, of: &Json| {
        if !exists(objects, kind_of, of) {
            wrong.push(format!("{kind} {name}: there is no {kind_of} {of}"));
        }
    };
    let role = &object["roleRef"];
    if !role.is_null() {
        needs(text(&role["kind"]), &role["name"]);
    }
    for (pointer, kind_of) in REFERENCES {
        for of in at(object, pointer) {
            needs(kind_of, of);
        }
    }
    let mut ports = Vec::new();
    match kind {
        "PodMonitor" => {
            let endpoints = at(spec, "/podMetricsEndpoints/*/port");
            ports.extend(endpoints.into_iter().map(|port| (&spec["selector"], port)));
        }
        "ValidatingWebhookConfiguration" => {
            let from = text(&object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]);
            let called =
                |made: &Json| format!("{}/{}", text(&made["namespace"]), text(&made["name"]));
            let is_meant =
                |made: &Json| made["kind"] == "Certificate" && called(&made["metadata"]) == from;
            if !from.is_empty() && !objects.iter().any(is_meant) {
                wrong.push(format!("{kind} {name}: there is no Certificate {from}"));
            }
        }
        "Certificate" if spec["isCA"] != true => {
            // The webhook's, which is called like its Service.
            let namespace = text(&object["metadata"]["namespace"]);
            let service = [
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}"),
            ];
            if spec["dnsNames"] != json!(service) {
                wrong.push(format!("{kind} {name}: is for {}", spec["dnsNames"]));
            }
        }
        "Service" => {
            let targets = at(spec, "/ports/*/targetPort");
            ports.extend(targets.into_iter().map(|port| (&spec["selector"], port)));
        }
        "NetworkPolicy" => {
            let open = at(spec, "/ingress/*/ports/*/port");
            ports.extend(open.into_iter().map(|port| (&spec["podSelector"], port)));
        }
        _ => {}
    }
    for (selector, named) in ports {
        let has = |workload: &&&Json| port(workload, text(named)).is_some();
        let selected: Vec<_> = workloads
            .iter()
            .filter(|workload| selects(selector, workload))
            .collect();
        if selected.is_empty() || !selected.iter().all(has) {
            wrong.push(format!(
                "{kind} {name}: not all that it selects has a port {named}"
            ));
        }
        if kind == "PodMonitor" && workloads.iter().filter(has).count() > selected.len() {
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
