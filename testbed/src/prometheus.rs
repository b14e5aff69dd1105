//! Debian's Prometheus, which scrapes the operator, and what it answers.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, Config, ResourceExt as _};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::kubelet::PodProcess;
use crate::operator::NAMESPACE;
use crate::sandbox::Process;
use crate::{ControlPlane, await_until};

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

/// The address of a Prometheus.
pub struct Served {
    pub address: SocketAddr,
    /// By TLS with this certificate; otherwise in clear text.
    pub certificate: Option<CertifiedKey<KeyPair>>,
}

/// A running Prometheus; gone when it is dropped.
pub struct Prometheus {
    pub address: SocketAddr,
    folder: PathBuf,
    _process: Process,
    client: Client,
}

/// Values by the value of a label, or of several joined by `/`.
pub type Vector = BTreeMap<String, f64>;

/// A series: its labels, and its values by the time in seconds since 1970.
#[derive(Clone, Debug)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// Time and value, in the order of time.
    pub points: Vec<(f64, f64)>,
}

/// When a question is about: from and until, in seconds since 1970, and how many seconds lie between two answers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: f64,
    pub until: f64,
    pub step: f64,
}

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
        Self::run(
            control_plane,
            folder,
            &configuration,
            &Served {
                address,
                certificate: None,
            },
        )
        .await
    }

    /// Starts it in this folder, with this configuration.
    pub async fn run(
        control_plane: &ControlPlane,
        folder: PathBuf,
        configuration: &Value,
        served: &Served,
    ) -> Result<Self> {
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, configuration.to_string())?;
        promtool(&["check", "config", &file.display().to_string()], "").await?;
        let address = served.address;
        let mut config = Config::new(format!("http://{address}").parse()?);
        let mut command = Command::new(program("prometheus")?);
        if let Some(CertifiedKey { cert, signing_key }) = &served.certificate {
            std::fs::write(folder.join("tls.crt"), cert.pem())?;
            std::fs::write(folder.join("tls.key"), signing_key.serialize_pem())?;
            let web = json!({"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}});
            std::fs::write(folder.join("web.yml"), web.to_string())?;
            command.arg(format!(
                "--web.config.file={}",
                folder.join("web.yml").display()
            ));
            config = Config::new(format!("https://{address}").parse()?);
            config.root_cert = Some(vec![cert.der().to_vec()]);
        }
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .env_clear()
            .current_dir(&folder);
        let mut process = control_plane.sandbox().spawn("prometheus", command)?;
        let client = Client::try_from(config)?;
        await_until("Prometheus is ready", async || {
            let ready = http::Request::get("/-/ready").body(Vec::new()).ok()?;
            if process.check().is_err() {
                return Some(());
            }
            client.request_text(ready).await.ok().map(drop)
        })
        .await?;
        process.check()?;
        Ok(Self {
            address,
            folder,
            _process: process,
            client,
        })
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
        let answer: Value = self.client.request(request).await?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Returns what an expression is now, by these labels.
    pub async fn query(&self, expression: &str, labels: &[&str]) -> Result<Vector> {
        let all = self.series("query", expression, "value", "").await?;
        let of =
            |series: &Series, label: &&str| series.labels.get(*label).cloned().unwrap_or_default();
        let sample = |series: Series| {
            let name: Vec<_> = labels.iter().map(|label| of(&series, label)).collect();
            Some((name.join("/"), series.points.first()?.1))
        };
        Ok(all.into_iter().filter_map(sample).collect())
    }

    /// Returns what an expression is at the end of a window.
    pub async fn at_end(&self, expression: &str, window: Window) -> Result<Vec<Series>> {
        self.series(
            "query",
            expression,
            "value",
            &format!("&time={}", window.until),
        )
        .await
    }

    /// Returns what an expression is all through a window.
    pub async fn over(&self, expression: &str, window: Window) -> Result<Vec<Series>> {
        let Window { from, until, step } = window;
        let when = format!("&start={from}&end={until}&step={step}");
        self.series("query_range", expression, "values", &when)
            .await
    }

    async fn series(
        &self,
        path: &str,
        expression: &str,
        values: &str,
        when: &str,
    ) -> Result<Vec<Series>> {
        let query: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let data = self.ask(&format!("{path}?query={query}{when}")).await?;
        let result = data["result"]
            .as_array()
            .with_context(|| format!("{expression}: {data}"))?;
        result
            .iter()
            .map(|series| read_series(series, &series[values]))
            .collect()
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

/// Of an instant there is one value, of a window there are several.
fn read_series(series: &Value, values: &Value) -> Result<Series> {
    let labels = serde_json::from_value(series["metric"].clone())?;
    let point = |point: &Value| {
        let value = point[1].as_str().context("no value")?.parse()?;
        Ok((point[0].as_f64().context("no time")?, value))
    };
    let points: Vec<&Value> = match values.as_array() {
        Some(several) if several.iter().all(Value::is_array) => several.iter().collect(),
        _ => vec![values],
    };
    let points = points.into_iter().map(point).collect::<Result<_>>()?;
    Ok(Series { labels, points })
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

fn program(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found
        .with_context(|| format!("{name} is not in PATH: `.ci/tools prometheus` installs Debian's"))
}

/// Runs promtool, which must be content.
pub async fn promtool(arguments: &[&str], input: &str) -> Result<()> {
    let mut child = std::process::Command::new(program("promtool")?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("no input")?
        .write_all(input.as_bytes())?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "promtool {arguments:?}: {}",
        String::from_utf8_lossy(&said)
    );
    Ok(())
}
