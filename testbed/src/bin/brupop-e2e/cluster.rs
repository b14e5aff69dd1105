//! Control plane, two machines, and the default overlay on them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use brupop_testbed::control_plane::CLUSTER;
use brupop_testbed::fleet::{NEW, OLD, watch};
use brupop_testbed::history::History;
use brupop_testbed::host::Durations;
use brupop_testbed::machines::{CONTROL_PLANE, Images, Machine, Network};
use brupop_testbed::operator::{NAMESPACE, throw_away_overlay};
use brupop_testbed::{ControlPlane, Options, Reach, await_within};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

const MACHINES: u8 = 2;
/// As Bottlerocket's user data have it: the kubelet registers its Node with the label.
const OPTED_IN: &str = "bottlerocket.aws/updater-interface-version=2.0.0";
/// For machines to be Ready, images to be unpacked, pods to be started.
const DEADLINE: Duration = Duration::from_mins(3);
/// Durations of commands and reboots on the hosts.
const DURATIONS: Durations = Durations {
    refresh: Duration::from_millis(200),
    prepare: Duration::from_secs(2),
    activate: Duration::from_millis(200),
    deactivate: Duration::from_millis(200),
    reboot: Duration::from_secs(5),
};

/// A running cluster. Fields end in their order: what talks, before what it talks to.
pub struct Cluster {
    _watching: JoinSet<()>,
    history: Arc<Mutex<History>>,
    pub machines: Vec<Machine>,
    network: Network,
    pub control_plane: ControlPlane,
}

impl Cluster {
    /// Starts it, and applies the overlay.
    pub async fn start(image: &Path) -> Result<Self> {
        let images = Images::new(image).await?;
        println!(
            "-- starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy"
        );
        let mut network = Network::make(MACHINES).await?;
        let options = Options {
            // Real kubelets are in the place of kwok.
            programs: &CLUSTER[..2],
            reach: Reach::Network(CONTROL_PLANE),
            ..Options::CLUSTER
        };
        let control_plane = ControlPlane::start(options).await?;
        network.reach_services(&control_plane, images.programs(), "node-0")?;

        println!(
            "-- switching on {MACHINES} machines: each with containerd, kubelet and kube-proxy"
        );
        let mut machines = vec![];
        for number in 0..MACHINES {
            let machine =
                Machine::start(&control_plane, &images, number, OPTED_IN, OLD, DURATIONS)?;
            // Agents look for updates at their start, and then every ten minutes.
            machine.host().publish(NEW)?;
            machines.push(machine);
        }
        println!(
            "-- kubectl apply -k kustomize/overlays/default, with {} as the image",
            image.display()
        );
        let history = Arc::<Mutex<History>>::default();
        apply(&control_plane, &[]).await?;
        let watching = watch::start(&control_plane.client(), &history);
        Ok(Self {
            _watching: watching,
            history,
            machines,
            network,
            control_plane,
        })
    }

    /// Applies the default overlay with these components.
    pub async fn apply(&self, components: &[&str]) -> Result<()> {
        apply(&self.control_plane, components).await
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// Returns what happened so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every machine is Ready, every Deployment and `DaemonSet` available, every shadow Idle.
    pub async fn until_agents_report(&mut self) -> Result<()> {
        self.until("every agent reports", DEADLINE, |history| {
            let now: Vec<_> = history.now().collect();
            now.len() == usize::from(MACHINES) && now.iter().all(|(_, seen)| seen.runs(OLD))
        })
        .await?;
        for what in [
            "deployment/brupop-webhook",
            "deployment/brupop-reconciler",
            "daemonset/brupop-agent",
        ] {
            self.until_rolled_out(what).await?;
        }
        println!("{}", self.kubectl("get nodes,pods -o wide").await?);
        Ok(())
    }

    /// Awaits something of the nodes and their shadows, as long as everything runs, and shows what changes.
    pub async fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        so: impl Fn(&History) -> bool,
    ) -> Result<()> {
        let history = Arc::clone(&self.history);
        let began = Instant::now();
        let mut shown = BTreeMap::new();
        let look = await_within(deadline, what, async || {
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            show_changes(&history, &mut shown, began);
            so(&history).then_some(())
        });
        tokio::pin!(look);
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                result = &mut look => return result,
                _ = ticks.tick() => self.check().await?,
            }
        }
    }

    /// Fails if one of the programs has ended.
    pub async fn check(&mut self) -> Result<()> {
        self.control_plane.check()?;
        self.network.check()?;
        for machine in &mut self.machines {
            machine.check().await?;
        }
        Ok(())
    }

    /// kubectl, in the operator's namespace.
    pub async fn kubectl(&self, words: &str) -> Result<String> {
        let words = ["-n", NAMESPACE].into_iter().chain(words.split(' '));
        self.control_plane.kubectl(words).await
    }

    /// Awaits that a workload is rolled out, and shows that.
    pub async fn until_rolled_out(&self, workload: &str) -> Result<()> {
        let said = self
            .kubectl(&format!("rollout status {workload} --timeout=120s"))
            .await?;
        println!("   {}", said.lines().last().unwrap_or_default());
        Ok(())
    }

    /// For the text of an error.
    pub async fn report(&self) -> String {
        let mut lines = vec![];
        for arguments in [
            "get nodes,pods,brs,brf -A -o wide",
            "get events -A --sort-by=.lastTimestamp",
        ] {
            let found = self.kubectl(arguments).await;
            lines.push(found.unwrap_or_else(|error| error.to_string()));
        }
        let folder = self.control_plane.dir();
        for machine in &self.machines {
            lines.push(format!("--- {}", self.control_plane.log(machine.name())));
            for program in ["containerd", "kubelet", "kube-proxy"] {
                let log = folder.join(machine.name()).join(format!("{program}.log"));
                lines.push(format!(
                    "--- {program} of {}\n{}",
                    machine.name(),
                    brupop_testbed::sandbox::tail(&log)
                ));
            }
        }
        lines.join("\n")
    }

    /// The command that gets one into the cluster's namespaces.
    pub fn enter(&self) -> String {
        format!(
            "nsenter --all --target $(pgrep -f 'brupop-e2e.*--inside' | tail -n1) \
             env KUBECONFIG={} bash",
            self.control_plane.kubeconfig().display()
        )
    }
}

async fn apply(control_plane: &ControlPlane, components: &[&str]) -> Result<()> {
    let overlay = throw_away_overlay(control_plane, "e2e", overlay(components))?;
    control_plane
        .kubectl(["apply".as_ref(), "-k".as_ref(), overlay.as_os_str()])
        .await?;
    Ok(())
}

/// The default overlay, but for what stands in for the host: in all containers of this machine
/// `/proc/sys/kernel/random/boot_id` is this machine's, so agents are told of another file. And these kubelets do not measure
/// their disks, so no pod may ask for a part of one.
fn overlay(components: &[&str]) -> Value {
    let agent = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "brupop-agent", "namespace": NAMESPACE},
        "spec": {"template": {"spec": {
            "containers": [{
                "name": "agent",
                "env": [{"name": "BOOT_ID_FILE", "value": "/run/boot-id"}],
                "volumeMounts": [
                    {"name": "boot-id", "mountPath": "/run/boot-id", "readOnly": true},
                ],
            }],
            "volumes": [
                {"name": "boot-id", "hostPath": {"path": "/run/boot-id", "type": "File"}},
            ],
        }}},
    });
    let anywhere = json!(["requests", "limits"].map(|of| {
        let field = format!("/spec/template/spec/containers/0/resources/{of}/ephemeral-storage");
        json!({"op": "remove", "path": field})
    }));
    json!({
        "resources": ["kustomize/overlays/default"],
        "components": components,
        "patches": [
            {"patch": agent.to_string()},
            {"target": {"kind": "DaemonSet|Deployment"}, "patch": anywhere.to_string()},
        ],
    })
}

/// One line for each node that is seen otherwise than before.
fn show_changes(history: &History, shown: &mut BTreeMap<String, String>, began: Instant) {
    for (node, seen) in history.now() {
        let marks = [
            (!seen.ready, "NotReady"),
            (seen.cordoned, "SchedulingDisabled"),
        ];
        let marks: Vec<&str> = marks
            .into_iter()
            .filter(|(so, _)| *so)
            .map(|(_, mark)| mark)
            .collect();
        let now = format!("{} {} {}", seen.goal, seen.reason, marks.join(","));
        if shown.get(node) != Some(&now) {
            println!(
                "   {:>5.1} s  {node}: {}",
                began.elapsed().as_secs_f32(),
                now.trim_end()
            );
            shown.insert(node.to_owned(), now);
        }
    }
}
