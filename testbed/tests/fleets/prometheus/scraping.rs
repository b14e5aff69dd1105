//! A Prometheus that scrapes the operator as the shipped configuration says, and what it answers.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::ControlPlane;
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::prometheus::{Prometheus as Running, Served};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

pub const SCRAPE_SECONDS: f64 = 0.5;
/// The rules that are shipped.
pub const RULES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../kustomize/components/prometheus-sample/alerts.yaml"
);

const TARGETS: &str = "targets.json";
/// The configuration that is shipped.
const SHIPPED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../kustomize/components/prometheus-sample/prometheus.yaml"
);

/// The shipped job of the operator's pods, under another name and with this token.
pub struct Job<'a> {
    pub name: &'static str,
    /// The token that it sends.
    pub token: &'a str,
}

/// A running Prometheus; gone when it is dropped.
pub struct Prometheus {
    running: Running,
    folder: PathBuf,
}

/// Values by the value of a label, or of several joined by `/`.
pub type Vector = BTreeMap<String, f64>;

impl Prometheus {
    /// Starts it with the shipped rules, with the shipped job of the operator's pods once for each of these, and with that of
    /// the API server, which gets the token of the first.
    pub async fn start(control_plane: &ControlPlane, jobs: &[Job<'_>]) -> Result<Self> {
        let folder = control_plane.dir().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let pods = shipped("brupop")?;
        let mut configs = jobs
            .iter()
            .map(|job| of_pods(&folder, &pods, job))
            .collect::<Result<Vec<_>>>()?;
        configs.push(of_api_server(control_plane, &configs[0])?);
        let every = format!("{:.0}ms", SCRAPE_SECONDS * 1000.0);
        let configuration = json!({
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [Path::new(RULES).canonicalize()?],
            "scrape_configs": configs,
        });
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let running = Running::run(
            control_plane,
            folder.clone(),
            &configuration,
            &Served {
                address,
                certificate: None,
            },
        )
        .await?;
        Ok(Self { running, folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Tells Prometheus the pods, as Kubernetes discovery would by the shipped configuration: Debian's is built without it. Of the processes it is known where they listen on this machine.
    pub async fn aim(&self, kubernetes: &Client, processes: &[PodProcess]) -> Result<()> {
        let discovery = &shipped("brupop")?["kubernetes_sd_configs"];
        let of_its_namespace = json!([{"role": "pod", "namespaces": {"own_namespace": true}}]);
        ensure!(*discovery == of_its_namespace, "{discovery}");
        let pods = Api::<Pod>::namespaced(kubernetes.clone(), NAMESPACE)
            .list(&ListParams::default())
            .await?;
        let groups: Vec<_> = pods
            .iter()
            .flat_map(|pod| target_groups(pod, processes))
            .collect();
        let groups = json!(groups).to_string();
        let file = self.folder.join(TARGETS);
        if std::fs::read_to_string(&file).ok().as_ref() != Some(&groups) {
            // It is read as soon as it is there; not by halves.
            let draft = self.folder.join("draft");
            std::fs::write(&draft, groups)?;
            std::fs::rename(draft, file)?;
        }
        Ok(())
    }

    async fn ask(&self, path: &str) -> Result<Value> {
        let request = http::Request::get(format!("/api/v1/{path}")).body(Vec::new())?;
        let answer: Value = self.running.client.request(request).await?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Returns the series of an expression: by `query` with one value, by `query_range` with all `values` of a time.
    pub async fn series(&self, path: &str, expression: &str, when: &str) -> Result<Vec<Value>> {
        let query: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let data = self.ask(&format!("{path}?query={query}{when}")).await?;
        let result = data["result"].as_array();
        Ok(result
            .with_context(|| format!("{expression}: {data}"))?
            .clone())
    }

    /// Returns what an expression is now, by these labels.
    pub async fn query(&self, expression: &str, labels: &[&str]) -> Result<Vector> {
        let sample = |series: &Value| {
            let of = |label: &&str| series["metric"][*label].as_str().unwrap_or_default();
            let name: Vec<_> = labels.iter().map(of).collect();
            let value = series["value"][1].as_str().context("no value")?;
            Ok((name.join("/"), value.parse()?))
        };
        let found = self.series("query", expression, "").await?;
        found.iter().map(sample).collect()
    }

    pub async fn alerts(&self) -> Result<Vec<String>> {
        let data = self.ask("rules?type=alert").await?;
        let groups = data["groups"]
            .as_array()
            .with_context(|| format!("no rules: {data}"))?;
        let rules: Vec<&Value> = groups
            .iter()
            .filter_map(|group| group["rules"].as_array())
            .flatten()
            .collect();
        ensure!(!rules.is_empty(), "no rules: {data}");
        let sick = rules.iter().find(|rule| rule["health"] != "ok");
        ensure!(sick.is_none(), "a rule cannot be evaluated: {sick:?}");
        let firing = rules.iter().filter(|rule| rule["state"] == "firing");
        Ok(firing
            .filter_map(|rule| rule["name"].as_str())
            .map(str::to_owned)
            .collect())
    }
}

/// The job of this name in the shipped configuration.
fn shipped(job: &str) -> Result<Value> {
    let file: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(SHIPPED).context(SHIPPED)?)?;
    let mut jobs = file["scrape_configs"].as_array().into_iter().flatten();
    let found = jobs.find(|found| found["job_name"] == job);
    found
        .cloned()
        .with_context(|| format!("{SHIPPED} has no {job}"))
}

/// The shipped job of API servers, with the token of another job. API servers tell much, so this one is asked less often.
fn of_api_server(control_plane: &ControlPlane, with_token: &Value) -> Result<Value> {
    let server = control_plane.server();
    let url: http::Uri = server.url.parse()?;
    let mut config = shipped("apiserver")?;
    let address = url.authority().context("no address")?.as_str();
    config["scrape_interval"] = json!("2s");
    config["scrape_timeout"] = json!("2s");
    config["authorization"] = with_token["authorization"].clone();
    config["tls_config"]["ca_file"] = json!(server.certificate_authority);
    config["static_configs"][0]["targets"] = json!([address]);
    Ok(config)
}

fn of_pods(folder: &Path, shipped: &Value, job: &Job<'_>) -> Result<Value> {
    let token = folder.join(format!("{}.token", job.name));
    std::fs::write(&token, job.token)?;
    let mut config = shipped.clone();
    config["job_name"] = json!(job.name);
    config["authorization"]["credentials_file"] = json!(token);
    config
        .as_object_mut()
        .context("no job")?
        .remove("kubernetes_sd_configs");
    config["file_sd_configs"] = json!([{"files": [folder.join(TARGETS)]}]);
    Ok(config)
}

/// Returns what Kubernetes discovery tells of a pod, as far as the shipped job asks: a target for each port of a container, if
/// the pod has an address.
fn target_groups(pod: &Pod, processes: &[PodProcess]) -> Vec<Value> {
    let Some(ip) = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_ref())
    else {
        return vec![];
    };
    let process = processes.iter().find(|process| {
        process.pod == pod.name_any() && Some(&process.namespace) == pod.metadata.namespace.as_ref()
    });
    let mut labels = json!({"__meta_kubernetes_pod_name": pod.name_any()});
    for (key, value) in pod.labels() {
        let key = key.replace(|character: char| !character.is_ascii_alphanumeric(), "_");
        labels[format!("__meta_kubernetes_pod_label_{key}")] = json!(value);
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .map(|port| {
            let here = process.and_then(|process| process.listens.get(&port.container_port));
            let address = here.map_or_else(
                || format!("{ip}:{}", port.container_port),
                ToString::to_string,
            );
            labels["__meta_kubernetes_pod_container_port_name"] = json!(port.name);
            json!({"targets": [address], "labels": labels})
        })
        .collect()
}
