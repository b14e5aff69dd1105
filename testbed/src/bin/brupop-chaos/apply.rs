//! Makes faults, and takes them back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::Fleet;
use brupop_testbed::gateways::Weather;
use brupop_testbed::host::Host;
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::sandbox::Signal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::asked;
use crate::fault::{Fault, Process};
use crate::hosts::Hosts;
use crate::people::{self, node_name};
use crate::world::NODES;
use brupop_testbed::operator::NAMESPACE;

/// Longest that a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait for the Lease's holder: the API server may be away.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The kind of the fault that somebody has made, unless one was taken back; and how that went.
type Done = (Option<String>, Result<()>);

/// Who makes faults: remembers what is wrong, and what people do.
pub(crate) struct Maker {
    pub(crate) hosts: Hosts,
    /// Programs of the control plane that are to be gone for now.
    down: BTreeSet<String>,
    /// What etcd is to be restored from.
    snapshot: Option<PathBuf>,
    /// Nodes that were made again since etcd was last restored.
    remade: BTreeSet<usize>,
    /// Faults that were made, by kind.
    pub(crate) made: BTreeMap<String, usize>,
    people: JoinSet<Done>,
    /// Pods whose process stands still.
    frozen: Meant,
    /// Pods whose gateway is bad.
    cut_off: Meant,
}

/// The pods that faults of one kind were made on, and what was meant.
#[derive(Debug, Default)]
struct Meant(Vec<(Process, String)>);

impl Meant {
    fn put(&mut self, process: Process, pod: String) {
        self.0.push((process, pod));
    }

    /// The one of a fault that is over, unless another one that is not was made on it.
    fn take(&mut self, process: Process) -> Option<String> {
        let place = self.0.iter().position(|(meant, _)| *meant == process)?;
        let (_, pod) = self.0.remove(place);
        (!self.0.iter().any(|(_, other)| *other == pod)).then_some(pod)
    }
}

impl Maker {
    pub(crate) fn new() -> Self {
        Self {
            hosts: Hosts::new(NODES),
            down: BTreeSet::new(),
            snapshot: None,
            remade: BTreeSet::new(),
            made: BTreeMap::new(),
            people: JoinSet::new(),
            frozen: Meant::default(),
            cut_off: Meant::default(),
        }
    }

    /// Makes a fault, and counts it. What people do goes on by itself.
    pub(crate) async fn make(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        self.try_to_make(fleet, fault).await?;
        *self.made.entry(fault.kind()).or_default() += 1;
        Ok(())
    }

    async fn try_to_make(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Publish { version, bad } => {
                if *bad {
                    self.hosts.image_is_bad(fleet, version);
                }
                fleet.publish(version)?;
            }
            Fault::Kill { process } => {
                let pod = self.pod(fleet, *process).await?;
                fleet.kubelets.signal(NAMESPACE, &pod, Signal::KILL);
            }
            Fault::Freeze { process, .. } => {
                let pod = self.pod(fleet, *process).await?;
                fleet.kubelets.signal(NAMESPACE, &pod, Signal::STOP);
                self.frozen.put(*process, pod);
            }
            Fault::DeletePod { process } => {
                let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
                let pod = self.pod(fleet, *process).await?;
                let deletes = async move {
                    anyhow::Ok(
                        pods.delete(&pod, &DeleteParams::default())
                            .await
                            .map(drop)?,
                    )
                };
                self.person(Some(fault.kind()), deletes);
            }
            Fault::KillPlane { program, .. } => {
                self.down.insert(program.clone());
                fleet.control_plane.kill(program).await?;
            }
            Fault::FreezePlane { program, .. } => {
                fleet.control_plane.signal(program, Signal::STOP)?;
            }
            Fault::Restore { .. } => {
                ensure!(
                    !self.has_snapshot(),
                    "there is a snapshot that is still to be restored"
                );
                let file = fleet.control_plane.dir().join("snapshot.db");
                fleet.control_plane.save_snapshot(&file).await?;
                self.snapshot = Some(file);
            }
            Fault::Network {
                process, weather, ..
            } => {
                let pod = self.pod(fleet, *process).await?;
                set_weather(fleet, &pod, *weather);
                self.cut_off.put(*process, pod);
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(false),
            _ => {
                self.hosts.set(fleet, fault, true);
                self.ask_a_person(fleet, fault, true);
            }
        }
        Ok(())
    }

    /// Has a person do something, or take it back.
    fn ask_a_person(&mut self, fleet: &Fleet, fault: &Fault, make: bool) {
        if let Fault::Recreate { node }
        | Fault::Leave { node, .. }
        | Fault::RemovedWhenUpdated { node, .. } = fault
        {
            self.remade.insert(*node);
        }
        let host = fault.node().and_then(|node| fleet.hosts.get(node)).cloned();
        let does = asked::does(fleet.client(), host, fault.clone(), make);
        self.person(make.then(|| fault.kind()), does);
    }

    /// Whether the run restores etcd.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    pub(crate) async fn take_back(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Freeze { process, .. } => {
                if let Some(pod) = self.frozen.take(*process) {
                    fleet.kubelets.signal(NAMESPACE, &pod, Signal::CONT);
                }
            }
            Fault::KillPlane { program, .. } => {
                self.down.remove(program);
                fleet.control_plane.start_program(program)?;
            }
            Fault::FreezePlane { program, .. } => {
                fleet.control_plane.signal(program, Signal::CONT)?;
            }
            Fault::Restore { .. } => {
                let snapshot = self.snapshot.take().context("there is no snapshot")?;
                self.down.clear();
                fleet.control_plane.restore(&snapshot).await?;
                // As kubelets do that are started again.
                fleet.hosts.iter().for_each(Host::tell_again);
                // Their Nodes may be those of before again. Kubelets renew tokens within the hour; we do not wait for that.
                for node in std::mem::take(&mut self.remade) {
                    if let Ok(pod) = self.pod(fleet, Process::Agent(node)).await {
                        let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
                        self.person(None, async move { people::until_gone(&pods, &pod).await });
                    }
                }
            }
            Fault::Network { process, .. } => {
                if let Some(pod) = self.cut_off.take(*process) {
                    set_weather(fleet, &pod, Weather::Clear);
                }
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(true),
            _ => {
                self.hosts.set(fleet, fault, false);
                self.ask_a_person(fleet, fault, false);
            }
        }
        Ok(())
    }

    /// Starts what has ended of the control plane by itself.
    pub(crate) fn mend(&self, fleet: &mut Fleet) -> Result<()> {
        for program in fleet
            .control_plane
            .ended()
            .iter()
            .filter(|program| !self.down.contains(*program))
        {
            fleet.control_plane.start_program(program)?;
            println!("   {program} had ended, and is started again");
        }
        Ok(())
    }

    /// No program of the control plane is gone or stands still any more.
    pub(crate) fn raise_plane(&mut self, fleet: &mut Fleet) -> Result<()> {
        self.down.clear();
        for program in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kwok",
        ] {
            // Who runs cannot be started again.
            if fleet.control_plane.signal(program, Signal::CONT).is_err() {
                fleet.control_plane.start_program(program)?;
            }
        }
        Ok(())
    }

    /// Takes note of what people have done.
    pub(crate) fn hear(&mut self) {
        while let Some(done) = self.people.try_join_next() {
            self.heard(done);
        }
    }

    pub(crate) async fn until_people_are_done(&mut self) {
        while let Some(done) = self.people.join_next().await {
            self.heard(done);
        }
    }

    /// A fault that could not be injected does not count.
    fn heard(&mut self, done: Result<Done, JoinError>) {
        let (makes, done) = done.unwrap_or_else(|error| (None, Err(error.into())));
        let Err(error) = done else { return };
        println!(
            "   {}, skipped: {}",
            makes.as_deref().unwrap_or("taking back"),
            people::why(&error)
        );
        if let Some(made) = makes.and_then(|kind| self.made.get_mut(&kind)) {
            *made = made.saturating_sub(1);
        }
    }

    /// Somebody does something, by which a fault of this kind is made, or one is taken back.
    fn person(
        &mut self,
        makes: Option<String>,
        does: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        self.people.spawn(async move {
            (
                makes,
                timeout(PATIENCE, does).await.map_err(Into::into).flatten(),
            )
        });
    }

    /// The pod that is meant. While nobody can say who leads, the leader is the first reconciler.
    async fn pod(&self, fleet: &Fleet, process: Process) -> Result<String> {
        let nth = |component: &str, number: usize| {
            let processes = fleet.processes(component);
            let index = number.checked_rem(processes.len());
            index
                .and_then(|index| processes.get(index))
                .map(|process| process.pod.clone())
        };
        let pod = match process {
            Process::Leader => match timeout(A_MOMENT, leader(fleet)).await {
                Ok(Ok(pod)) => Some(pod),
                _ => nth("reconciler", 0),
            },
            Process::Reconciler(number) => nth("reconciler", number),
            Process::Webhook(number) => nth("webhook", number),
            Process::Agent(node) => {
                let on_node = |process: &PodProcess| process.node == node_name(node);
                fleet
                    .processes("agent")
                    .into_iter()
                    .find(on_node)
                    .map(|process| process.pod)
            }
        };
        pod.with_context(|| format!("{process:?} has no process"))
    }
}

/// The pod that holds the Lease.
async fn leader(fleet: &Fleet) -> Result<String> {
    let lease = Api::<Lease>::namespaced(fleet.client(), NAMESPACE)
        .get(LEASE)
        .await?;
    let holder = lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .context("nobody leads")?;
    let of = |process: &PodProcess| holder.starts_with(&process.pod);
    let pods = fleet.processes("reconciler");
    Ok(pods
        .into_iter()
        .find(of)
        .context("the leader has no process")?
        .pod)
}

/// Nothing of ours stands still any more.
pub(crate) fn go_on(fleet: &Fleet) {
    for process in fleet.kubelets.processes() {
        fleet.kubelets.signal(NAMESPACE, &process.pod, Signal::CONT);
    }
}

fn set_weather(fleet: &Fleet, pod: &str, weather: Weather) {
    if let Some(gateways) = &fleet.gateways {
        gateways.set(pod, weather);
    }
}
