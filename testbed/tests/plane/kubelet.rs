//! The stand-in for the kubelet, on a real control plane and simulated hosts.

use anyhow::{Context as _, Result};
use brupop_testbed::bearer::extra_of;
use brupop_testbed::host::{Durations, Faults, Host, HostOptions};
use brupop_testbed::kubelet::{PodProcess, is_ready};
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{ControlPlane, Kubelets, NewNode, Options, Program, await_until};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, from_value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A control plane with one node, its host, and a `DaemonSet` named `speaker` behind a Service of the same name.
struct Bed {
    // First, so that processes end before what they talk to.
    kubelets: Kubelets,
    host: Host,
    client: Client,
    control_plane: ControlPlane,
}

impl Bed {
    async fn start() -> Result<Self> {
        // What goes wrong in the stand-in is shown with a failed test.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let control_plane = ControlPlane::start(Options::CLUSTER).await?;
        let client = control_plane.client();
        let program = Program {
            binary: env!("CARGO_BIN_EXE_brupop-testbed-pod").into(),
            env: vec![
                ("BOOT_ID_FILE".to_owned(), BOOT_ID.to_owned()),
                ("MARKS".to_owned(), control_plane.dir().display().to_string()),
            ],
            ports: vec![("health".to_owned(), "LISTEN".to_owned())],
        };
        let kubelets = Kubelets::start(&control_plane, [("/speaker".to_owned(), program)]);
        let host = Host::start(HostOptions {
            socket: kubelets.api_socket("node-0")?,
            socket_group: None,
            version: "1.19.4".to_owned(),
            variant: "aws-k8s-1.29".to_owned(),
            arch: "x86_64".to_owned(),
            boot_id_file: kubelets.boot_id_file("node-0")?,
            durations: Durations { reboot: Duration::from_millis(500), ..Durations::default() },
            faults: Faults::default(),
        })
        .await?;
        let node = NewNode { boot_id: host.boot_id(), os_image: host.pretty_name(), ..NewNode::numbered(0)? };
        node.create(&client).await?;
        kubelets.attach("node-0", host.power());

        let labels = json!({"app": "speaker", "brupop.bottlerocket.aws/component": "agent"});
        let daemon_set: DaemonSet = from_value(json!({
            "metadata": {"name": "speaker"},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{
                        "name": "speaker", "image": "none", "command": ["/speaker"],
                        "env": [
                            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                            {"name": "SOCKET", "value": "/run/api.sock"},
                        ],
                        "ports": [{"name": "health", "containerPort": 8080}],
                        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
                        "volumeMounts": [{"name": "api", "mountPath": "/run/api.sock"}],
                    }],
                    "volumes": [{"name": "api", "hostPath": {"path": "/run/api.sock"}}],
                },
            }},
        }))?;
        Api::namespaced(client.clone(), "default").create(&PostParams::default(), &daemon_set).await?;
        let service: Service = from_value(json!({
            "metadata": {"name": "speaker"},
            "spec": {"selector": {"app": "speaker"}, "ports": [{"name": "http", "port": 80, "targetPort": "health"}]},
        }))?;
        Api::namespaced(client.clone(), "default").create(&PostParams::default(), &service).await?;
        Ok(Self { kubelets, host, client, control_plane })
    }

    /// The process and its Ready pod, once `wanted` is true of them.
    async fn running(
        &self,
        what: &str,
        wanted: impl Fn(&PodProcess, &Pod) -> bool,
    ) -> Result<(PodProcess, Pod)> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "default");
        let found = await_until(what, async || {
            let [process] = self.kubelets.processes().try_into().ok()?;
            let pod = pods.get_opt(&process.pod).await.ok()??;
            (is_ready(&pod) && wanted(&process, &pod)).then_some((process, pod))
        });
        found.await
    }

    /// What the pod's process answers, by way of the API server.
    async fn ask(&self, pod: &str, path: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/default/pods/{pod}:8080/proxy/{path}");
        Ok(self.client.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }

    async fn node(&self) -> Result<(bool, String, String)> {
        let node = Api::<Node>::all(self.client.clone()).get("node-0").await?;
        let status = node.status.context("no status")?;
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let info = status.node_info.context("no nodeInfo")?;
        Ok((ready, info.boot_id, info.os_image))
    }
}

fn restart_count(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_process_gets_environment_token_and_service() -> Result<()> {
    let bed = Bed::start().await?;
    let (process, pod) = bed.running("the pod's process", |_, _| true).await?;
    assert_eq!((process.node.as_str(), process.component.as_str(), process.restarts), ("node-0", "agent", 0));

    let environment: BTreeMap<String, Value> =
        serde_json::from_str(&bed.ask(&process.pod, "environment").await?)?;
    assert_eq!(environment["NODE"], json!("node-0"));
    assert_eq!(environment["SOCKET"], json!(bed.kubelets.api_socket("node-0")?));
    assert!(!environment.contains_key("HOME"), "nothing of the test's own environment");
    let folder = Path::new(environment["SERVICE_ACCOUNT_FOLDER"].as_str().context("no folder")?);
    assert_eq!(std::fs::read_to_string(folder.join("namespace"))?, "default");

    let token = std::fs::read_to_string(folder.join("token"))?;
    let extra = extra_of(&bed.control_plane.client_for_token(&token).await?).await?;
    assert_eq!(extra["authentication.kubernetes.io/node-name"], ["node-0"]);
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], [pod.uid().unwrap_or_default()]);

    // By the Service, as the API server calls webhooks: it has to have seen the pod become ready.
    let path = "/api/v1/namespaces/default/services/speaker:http/proxy/boot-id";
    let by_service = await_until("an answer by the Service", async || {
        bed.client.request_text(http::Request::get(path).body(Vec::new()).ok()?).await.ok()
    });
    assert_eq!(by_service.await?.trim(), bed.host.boot_id());

    // A guardian kills all processes before it removes their files.
    let dir = bed.control_plane.dir().to_owned();
    drop(bed);
    assert!(!dir.exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn people_read_logs_and_run_what_the_pod_has() -> Result<()> {
    let bed = Bed::start().await?;
    let (process, _) = bed.running("the pod's process", |_, _| true).await?;
    let kubectl = async |words: &str| {
        let output = bed.control_plane.kubectl_output(words.split(' ')).await?;
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        anyhow::Ok((output.status.code(), said))
    };
    let log = |said: &str| (Some(0), [said.to_owned(), String::new()]);
    let path = bed.control_plane.sandbox().logs().join(format!("{}.log", process.pod));
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    writeln!(file, "one more")?;
    assert_eq!(kubectl("logs daemonset/speaker").await?, log("it listens\none more\n"));
    assert_eq!(kubectl("logs --tail=1 daemonset/speaker").await?, log("one more\n"));

    let exec = async |words: &str| kubectl(&format!("exec daemonset/speaker -- {words}")).await;
    assert_eq!(exec("/speaker /boot-id").await?.1[0].trim(), bed.host.boot_id());
    let (code, [said, environment]) = exec("/speaker /environment").await?;
    assert!(code == Some(0) && said.contains(r#""NODE":"node-0""#), "{said}{environment}");
    let (code, [_, said]) = exec("/speaker /nowhere").await?;
    assert!(code == Some(1) && said.contains("nothing is told at /nowhere"), "{code:?} {said}");
    let (code, [_, said]) = exec("sh").await?;
    assert!(
        code == Some(1) && said.contains(r#"there is no program for the command "sh""#),
        "{code:?} {said}"
    );

    // Followed until the pod has gone.
    let follows = kubectl("logs -f daemonset/speaker");
    let ends = async {
        let pods = Api::<Pod>::namespaced(bed.client.clone(), "default");
        let mut audit = bed.control_plane.audit().from_start();
        let followed = audit.wait_for("the log", |it| it.request_uri.contains("follow=true"));
        followed.await?;
        writeln!(file, "the last")?;
        anyhow::Ok(pods.delete(&process.pod, &DeleteParams::default()).await?)
    };
    let (followed, ended) = tokio::join!(follows, ends);
    ended?;
    assert_eq!(followed?, log("it listens\none more\nthe last\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_restart_and_deleted_pods_end_gracefully() -> Result<()> {
    let bed = Bed::start().await?;
    let (first, _) = bed.running("the pod's process", |_, _| true).await?;
    bed.kubelets.signal("default", &first.pod, Signal::KILL);
    let (second, _) =
        bed.running("a restart", |process, pod| process.pid != first.pid && restart_count(pod) == 1).await?;
    assert_eq!((&second.pod, second.restarts), (&first.pod, 1));

    let terminated = bed.control_plane.dir().join("terminated");
    assert!(!terminated.exists(), "SIGKILL leaves no time");
    Api::<Pod>::namespaced(bed.client.clone(), "default")
        .delete(&second.pod, &DeleteParams::default())
        .await?;
    bed.running("another pod", |process, _| process.pod != second.pod).await?;
    assert!(terminated.exists());
    assert!(!is_alive(second.pid));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_ends_processes_and_changes_the_node() -> Result<()> {
    let bed = Bed::start().await?;
    let (before, _) = bed.running("the pod's process", |_, _| true).await?;
    let boot = bed.host.boot_id();
    assert_eq!(bed.node().await?, (true, boot.clone(), bed.host.pretty_name()));

    bed.host.reboot_now();
    await_until("the node is not ready", async || bed.node().await.ok().filter(|(ready, ..)| !ready)).await?;
    let (after, _) = bed
        .running("the same pod in another boot", |process, pod| {
            process.pid != before.pid && restart_count(pod) == 1
        })
        .await?;
    assert_eq!(after.pod, before.pod);
    assert!(!is_alive(before.pid));
    assert_ne!(bed.host.boot_id(), boot);
    assert_eq!(bed.node().await?, (true, bed.host.boot_id(), bed.host.pretty_name()));
    assert_eq!(bed.ask(&after.pod, "boot-id").await?.trim(), bed.host.boot_id());
    Ok(())
}
