//! One pod as a process: started, probed, restarted, ended.

use super::container::{
    CommandLine, ConfigMaps, command_line, config_maps, host_paths, only_container,
};
use super::node::Boot;
use super::probe::Probe;
use super::status::{self, Said, State};
use super::{Kubelet, PodProcess};
use crate::control_plane::free_port;
use crate::kubeconfig::PodVariables;
use crate::sandbox::{Process, Signal};
use anyhow::{Context as _, Result};
use brupop_api::names::COMPONENT_LABEL;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Below the pod's folder: what is mounted of its service account.
const SERVICE_ACCOUNT: &str = "serviceaccount";
/// A token is replaced after four fifths of its life.
const TOKEN_RENEWAL: Duration = Duration::from_mins(48);
/// Before the second restart, and doubled by each further one. The first comes at once.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A process that ran this long starts with a clean record.
const RAN_WELL: Duration = Duration::from_secs(10);
/// Pause after a call to the API server, or a start, that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Everything about one pod; runs in a task of its own.
pub(super) struct PodTask {
    pub kubelet: Arc<Kubelet>,
    /// The pod as last seen; closed when it has gone.
    pub pod: watch::Receiver<Arc<Pod>>,
    pub boot: watch::Receiver<Boot>,
    /// Signals that a test sends to the process.
    pub signals: mpsc::UnboundedReceiver<Signal>,
    /// A made-up address of the pod.
    pub ip: String,
}

/// Reasons why a process is not running any more, or shall not be.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exited(String),
    HostDown,
    /// The pod is being deleted.
    Deleting,
    Gone,
}

impl PodTask {
    /// Runs the pod until it has gone.
    pub(super) async fn run(mut self) {
        let uid = self.pod.borrow().uid().unwrap_or_default();
        let mut restarts = 0;
        let mut failures = 0u32;
        loop {
            let up = tokio::select! {
                biased;
                end = ended(&mut self.pod) => Err(end),
                boot = up(&mut self.boot) => boot.ok_or(End::Gone),
            };
            let boot = match up {
                Ok(boot) => boot,
                Err(end) => break self.finish(end).await,
            };
            let began = Instant::now();
            let end = match self.start(restarts).await {
                Ok(running) => running.until_end(&mut self, boot, restarts).await,
                Err(error) => End::Exited(format!("{error:#}")),
            };
            self.kubelet.set_process(&uid, None);
            match end {
                End::Exited(why) => {
                    failures = if began.elapsed() < RAN_WELL {
                        failures + 1
                    } else {
                        1
                    };
                    tracing::info!(
                        pod = self.pod.borrow().name_any(),
                        why,
                        "a pod's process ended"
                    );
                    let pause = pause_before_restart(failures);
                    let reason = if pause.is_zero() {
                        "Restarting"
                    } else {
                        "CrashLoopBackOff"
                    };
                    self.say(
                        State::Waiting {
                            reason,
                            message: why,
                        },
                        false,
                        restarts + 1,
                    )
                    .await;
                    tokio::select! {
                        () = sleep(pause) => {}
                        _ = ended(&mut self.pod) => {}
                        () = another(&mut self.boot, boot) => {}
                    }
                }
                End::HostDown => failures = 0,
                End::Deleting | End::Gone => break self.finish(end).await,
            }
            restarts += 1;
        }
        self.kubelet.shared.services.forget(&uid);
    }

    async fn start(&mut self, restarts: i32) -> Result<Running> {
        let pod = Arc::clone(&self.pod.borrow_and_update());
        let container = only_container(&pod)?;
        let (command, addresses) = self.command(&pod, container).await?;
        let process = self
            .kubelet
            .shared
            .sandbox
            .spawn(&pod.name_any(), command)?;
        let uid = pod.uid().unwrap_or_default();
        for &(port, address) in &addresses {
            self.kubelet
                .shared
                .services
                .listens(&uid, &self.ip, port, address);
        }
        let listens = addresses.iter().copied().collect();
        self.kubelet.set_process(
            &uid,
            process.id().map(|pid| PodProcess {
                namespace: pod.namespace().unwrap_or_default(),
                pod: pod.name_any(),
                node: node_of(&pod).to_owned(),
                component: pod
                    .labels()
                    .get(COMPONENT_LABEL)
                    .cloned()
                    .unwrap_or_default(),
                pid,
                restarts,
                listens,
            }),
        );
        let probe = Probe::readiness(container).and_then(|probe| {
            let (_, address) = addresses.iter().find(|(port, _)| *port == probe.port)?;
            Some((probe, *address))
        });
        Ok(Running {
            process,
            probe,
            since: Timestamp::now(),
        })
    }

    /// The process as the pod describes it, and which port of the container is where.
    async fn command(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<(Command, Vec<(i32, SocketAddr)>)> {
        let namespace = pod.namespace().unwrap_or_default();
        let api = Api::<ConfigMap>::namespaced(self.kubelet.shared.client.clone(), &namespace);
        let mut maps = ConfigMaps::new();
        for name in config_maps(container)? {
            if let Some(map) = api.get_opt(&name).await? {
                maps.insert(name, map.data.unwrap_or_default());
            }
        }
        let command = container
            .command
            .iter()
            .flatten()
            .next()
            .context("no command")?;
        let program = self.kubelet.program(command)?;
        let mut overrides = program.env.clone();
        let mut addresses = vec![];
        // The program is told to listen elsewhere than in a pod of its own: by `METRICS_ADDRESS` for the port `metrics`.
        for port in container.ports.iter().flatten() {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
            let name = port.name.as_deref().unwrap_or_default();
            overrides.push((
                format!("{}_ADDRESS", name.to_uppercase()),
                address.to_string(),
            ));
            addresses.push((port.container_port, address));
        }
        let paths = host_paths(pod, container, &self.kubelet.node_dir(node_of(pod))?);
        let CommandLine {
            command,
            environment,
        } = command_line(pod, &maps, &overrides, &paths)?;

        let account = self.renew_token(pod).await?;
        let mut process = Command::new(&program.binary);
        process
            .args(&command[1..])
            .env_clear()
            .envs(environment)
            .envs(account)
            .current_dir(self.dir(pod)?);
        Ok((process, addresses))
    }

    /// Writes what kubelets mount, and returns the variables that name it.
    async fn renew_token(&self, pod: &Pod) -> Result<PodVariables> {
        let shared = &self.kubelet.shared;
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.as_deref());
        let namespace = pod.namespace().unwrap_or_default();
        let token = shared
            .token(&namespace, account.unwrap_or("default"), Some(pod))
            .await?;
        let server = self.kubelet.server(&pod.name_any())?;
        let folder = self.dir(pod)?.join(SERVICE_ACCOUNT);
        server.write_service_account(&folder, &token, &namespace)
    }

    /// A folder of the pod's own.
    fn dir(&self, pod: &Pod) -> Result<PathBuf> {
        let dir = self
            .kubelet
            .shared
            .sandbox
            .dir()
            .join("pods")
            .join(pod.uid().unwrap_or_default());
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }

    async fn say(&self, state: State, ready: bool, restarts: i32) -> bool {
        let pod = Arc::clone(&self.pod.borrow());
        let Ok(container) = only_container(&pod) else {
            return false;
        };
        let said = Said {
            state,
            ready,
            restarts,
            ip: self.ip.clone(),
        };
        status::patch(&self.kubelet.shared.client, &pod, &said.status(container)).await
    }

    /// Takes the pod from the API server once nothing of it runs; not from a host that is down.
    async fn finish(&mut self, end: End) {
        let pod = Arc::clone(&self.pod.borrow());
        let client = self.kubelet.shared.client.clone();
        let pods = Api::<Pod>::namespaced(client, &pod.namespace().unwrap_or_default());
        let same = Preconditions {
            uid: pod.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().grace_period(0).preconditions(same);
        while end == End::Deleting && up(&mut self.boot).await.is_some() {
            match pods.delete(&pod.name_any(), &params).await {
                Ok(_) => break,
                Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => break,
                Err(error) => {
                    tracing::warn!(pod = pod.name_any(), %error, "deleting a pod");
                    sleep(RETRY).await;
                }
            }
        }
        if let Ok(dir) = self.dir(&pod) {
            // Goes with the sandbox at the latest.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn node_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// A process of a pod.
struct Running {
    process: Process,
    probe: Option<(Probe, SocketAddr)>,
    since: Timestamp,
}

impl Running {
    /// Looks after the process until it has ended; when that is the pod's or the host's doing, ends it.
    async fn until_end(mut self, task: &mut PodTask, boot: Boot, restarts: i32) -> End {
        let running = State::Running { since: self.since };
        let mut ready = self.probe.is_none();
        let mut failures = 0;
        let mut said = task.say(running.clone(), ready, restarts).await;
        let mut next_probe = Instant::now();
        let mut renewal = Instant::now() + TOKEN_RENEWAL;
        let mut boots = task.boot.clone();
        loop {
            let was_ready = ready;
            tokio::select! {
                status = self.process.wait() => {
                    return End::Exited(status.map_or_else(|error| format!("{error:#}"), |status| status.to_string()));
                }
                () = another(&mut boots, boot) => {
                    self.kill(Signal::KILL, Duration::from_secs(5)).await;
                    return End::HostDown;
                }
                Some(signal) = task.signals.recv() => self.signal(signal),
                changed = task.pod.changed() => {
                    let pod = Arc::clone(&task.pod.borrow_and_update());
                    if changed.is_err() {
                        self.kill(Signal::KILL, Duration::from_secs(5)).await;
                        return End::Gone;
                    }
                    if pod.metadata.deletion_timestamp.is_some() {
                        let grace = pod.metadata.deletion_grace_period_seconds.and_then(|s| u64::try_from(s).ok());
                        self.kill(Signal::TERM, Duration::from_secs(grace.unwrap_or(30))).await;
                        return End::Deleting;
                    }
                    // Somebody else, as the controller that watches nodes, says otherwise: it is so as we say.
                    said &= status::is_ready(&pod) == ready;
                }
                () = sleep_until(next_probe), if self.probe.is_some() => {
                    if let Some((probe, address)) = &self.probe {
                        let answer = probe.ask(*address).await;
                        failures = if answer.is_ok() { 0 } else { failures + 1 };
                        ready = answer.is_ok() || (ready && failures < probe.failures);
                        next_probe = Instant::now() + probe.pause(ready);
                    }
                }
                () = sleep_until(renewal) => {
                    let pod = Arc::clone(&task.pod.borrow());
                    let renewed = task.renew_token(&pod).await;
                    renewal = Instant::now() + if renewed.is_ok() { TOKEN_RENEWAL } else { RETRY };
                }
                () = sleep(RETRY), if !said => {}
            }
            if ready != was_ready || !said {
                said = task.say(running.clone(), ready, restarts).await;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = self.process.signal(signal) {
            tracing::warn!(process = self.process.name(), %error, "signal");
        }
    }

    /// Ends the process, by force after the grace period.
    async fn kill(&mut self, signal: Signal, grace: Duration) {
        self.signal(signal);
        if timeout(grace, self.process.wait()).await.is_err() {
            self.signal(Signal::KILL);
            // SIGKILL does not fail; who cannot be waited for is not waited for.
            let _ = self.process.wait().await;
        }
    }
}

/// Resolves when the pod is being deleted or has gone.
async fn ended(pod: &mut watch::Receiver<Arc<Pod>>) -> End {
    match pod
        .wait_for(|pod| pod.metadata.deletion_timestamp.is_some())
        .await
    {
        Ok(_) => End::Deleting,
        Err(_) => End::Gone,
    }
}

/// Resolves to the node's boot once it is up; to nothing when there will not be one.
async fn up(boots: &mut watch::Receiver<Boot>) -> Option<Boot> {
    boots.wait_for(|boot| boot.up).await.ok().map(|boot| *boot)
}

/// Resolves when this boot of the node is over.
async fn another(boots: &mut watch::Receiver<Boot>, boot: Boot) {
    // Without the sender there are no kubelets any more.
    let _ = boots.wait_for(|now| *now != boot).await;
}

fn pause_before_restart(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        n => FIRST_PAUSE
            .saturating_mul(1 << (n - 2).min(16))
            .min(LONGEST_PAUSE),
    }
}
