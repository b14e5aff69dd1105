//! Makes faults, and takes them back.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::Fleet;
use brupop_testbed::control_plane::CLUSTER;
use brupop_testbed::gateways::Weather;
use brupop_testbed::host::{Ending, Faults, Host};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::fault::{Fault, Process};
use crate::people::{self, node_name};

/// Longest that a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait for the Lease's holder: the API server may be away.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The kind of the fault that somebody has made, unless one was taken back; and how that went.
type Done = (Option<String>, Result<()>);

/// Makes faults, and remembers those in force and what people did.
#[derive(Default)]
pub(crate) struct Maker {
    /// Bad releases, and what is wrong with hosts for now.
    of_hosts: Vec<Fault>,
    /// The faults of processes in force, each with the pod that it was made on.
    of_pods: Vec<(Fault, String)>,
    /// Programs of the control plane that are to be gone for now.
    down: BTreeSet<String>,
    /// The snapshot to restore etcd from.
    snapshot: Option<PathBuf>,
    /// Nodes that were made again since etcd was last restored.
    remade: BTreeSet<usize>,
    /// Faults that were made, by kind.
    pub(crate) made: BTreeMap<String, usize>,
    people: JoinSet<Done>,
}

impl Maker {
    /// Makes a fault, and counts it. What people do goes on by itself.
    pub(crate) async fn make(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        self.try_to_make(fleet, fault).await?;
        *self.made.entry(fault.kind()).or_default() += 1;
        Ok(())
    }

    async fn try_to_make(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Publish { version, .. } => {
                self.of_hosts.push(fault.clone());
                self.set_hosts(fleet);
                fleet.publish(version)?;
            }
            Fault::Kill { process } => {
                let pod = pod(fleet, *process).await?;
                fleet.kubelets.signal(NAMESPACE, &pod, Signal::KILL);
            }
            Fault::Freeze { process, .. } | Fault::Network { process, .. } => {
                let pod = pod(fleet, *process).await?;
                set_pod(fleet, fault, &pod, true);
                self.of_pods.push((fault.clone(), pod));
            }
            Fault::Plane {
                program, killed, ..
            } => {
                if *killed {
                    self.down.insert(program.clone());
                    fleet.control_plane.kill(program).await?;
                } else {
                    fleet.control_plane.signal(program, Signal::STOP)?;
                }
            }
            Fault::Restore { .. } => {
                ensure!(!self.has_snapshot(), "another one is to be restored");
                let file = fleet.control_plane.dir().join("snapshot.db");
                fleet.control_plane.save_snapshot(&file).await?;
                self.snapshot = Some(file);
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(false),
            Fault::Reboots { node } => {
                let host = fleet.hosts.get(*node).context("there is no such host")?;
                host.reboot_now();
            }
            _ if is_of_host(fault) => {
                self.of_hosts.push(fault.clone());
                self.set_hosts(fleet);
            }
            _ => self.ask_a_person(fleet, fault, true),
        }
        Ok(())
    }

    pub(crate) async fn take_back(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Freeze { .. } | Fault::Network { .. } => {
                let is_it = |(made, _): &(Fault, String)| made == fault;
                if let Some(at) = self.of_pods.iter().position(is_it) {
                    let (_, pod) = self.of_pods.remove(at);
                    // Another fault of this kind may have been made on it meanwhile.
                    let stays = |(other, on): &(Fault, String)| {
                        *on == pod && discriminant(other) == discriminant(fault)
                    };
                    if !self.of_pods.iter().any(stays) {
                        set_pod(fleet, fault, &pod, false);
                    }
                }
            }
            Fault::Plane { program, .. } => {
                if self.down.remove(program) {
                    fleet.control_plane.start_program(program)?;
                } else {
                    fleet.control_plane.signal(program, Signal::CONT)?;
                }
            }
            Fault::Restore { .. } => {
                let snapshot = self.snapshot.take().context("there is no snapshot")?;
                self.down.clear();
                fleet.control_plane.restore(&snapshot).await?;
                // As kubelets do that are started again.
                fleet.hosts.iter().for_each(Host::tell_again);
                // Their Nodes may be those of before again. Kubelets renew tokens within the hour; we do not wait for that.
                for node in std::mem::take(&mut self.remade) {
                    if let Ok(pod) = pod(fleet, Process::Agent(node)).await {
                        let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
                        self.person(None, async move { people::until_gone(&pods, &pod).await });
                    }
                }
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(true),
            _ if is_of_host(fault) => {
                if let Some(at) = self.of_hosts.iter().position(|made| made == fault) {
                    self.of_hosts.remove(at);
                    self.set_hosts(fleet);
                }
            }
            _ => self.ask_a_person(fleet, fault, false),
        }
        Ok(())
    }

    /// Has a person do something, or take it back.
    fn ask_a_person(&mut self, fleet: &Fleet, fault: &Fault, make: bool) {
        if let Fault::Leave { node, .. } = fault {
            self.remade.insert(*node);
        }
        let host = fault.node().and_then(|node| fleet.hosts.get(node)).cloned();
        let does = people::does(fleet.client(), host, fault.clone(), make);
        self.person(make.then(|| fault.kind()), does);
    }

    /// Sets the faults of hosts to those in force.
    fn set_hosts(&self, fleet: &Fleet) {
        for (node, host) in fleet.hosts.iter().enumerate() {
            let mut faults = Faults::default();
            for fault in &self.of_hosts {
                if fault.node().is_none_or(|of| of == node) {
                    add(&mut faults, fault);
                }
            }
            host.set_faults(faults);
        }
    }

    /// Whether etcd will be restored.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
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

    /// Nothing is gone, stands still or is cut off any more, and no host is ill, but that bad releases are bad.
    pub(crate) fn heal(&mut self, fleet: &mut Fleet) -> Result<()> {
        self.down.clear();
        for program in ["etcd", "kube-apiserver"].into_iter().chain(CLUSTER) {
            // Who runs cannot be started again.
            if fleet.control_plane.signal(program, Signal::CONT).is_err() {
                fleet.control_plane.start_program(program)?;
            }
        }
        if let Some(gateways) = &fleet.gateways {
            gateways.clear();
        }
        fleet.control_plane.reach_services(true);
        self.of_hosts.retain(|fault| !is_of_host(fault));
        self.set_hosts(fleet);
        for process in fleet.kubelets.processes() {
            fleet.kubelets.signal(NAMESPACE, &process.pod, Signal::CONT);
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
            let done = timeout(PATIENCE, does).await;
            (makes, done.map_err(Into::into).flatten())
        });
    }
}

fn is_of_host(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::HostAnswers { .. }
            | Fault::CommandFails { .. }
            | Fault::RebootIgnored { .. }
            | Fault::StaysDown { .. }
    )
}

/// Adds this fault to what is wrong with a host.
fn add(faults: &mut Faults, fault: &Fault) {
    match fault {
        Fault::Publish { version, bad: true } => {
            faults.bad_images.insert(version.clone());
        }
        Fault::HostAnswers { call, answer, .. } => {
            faults.answers.insert(*call, answer.clone());
        }
        Fault::CommandFails {
            command, silently, ..
        } => {
            let fails = || Ending::Failed("no space left on device\u{1b}[2J".to_owned());
            let ending = if *silently { Ending::Lost } else { fails() };
            faults.endings.insert(*command, ending);
        }
        Fault::RebootIgnored { .. } => faults.reboot_ignored = true,
        Fault::StaysDown { .. } => faults.stays_down = true,
        _ => {}
    }
}

/// The process of this pod stands still or is cut off, or not any more.
fn set_pod(fleet: &Fleet, fault: &Fault, pod: &str, made: bool) {
    if let Fault::Network { weather, .. } = fault {
        let weather = if made { *weather } else { Weather::Clear };
        let gateways = fleet.gateways.iter();
        gateways.for_each(|gateways| gateways.set(pod, weather));
    } else {
        let signal = if made { Signal::STOP } else { Signal::CONT };
        fleet.kubelets.signal(NAMESPACE, pod, signal);
    }
}

/// The pod that is meant. While nobody can say who leads, the leader is the first reconciler.
async fn pod(fleet: &Fleet, process: Process) -> Result<String> {
    let nth = |component: &str, number: usize| {
        let processes = fleet.processes(component);
        let index = number.checked_rem(processes.len())?;
        Some(processes.get(index)?.pod.clone())
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
            let agents = fleet.processes("agent");
            agents.into_iter().find(on_node).map(|process| process.pod)
        }
    };
    pod.with_context(|| format!("{process:?} has no process"))
}

/// The pod that holds the Lease.
async fn leader(fleet: &Fleet) -> Result<String> {
    let leases = Api::<Lease>::namespaced(fleet.client(), NAMESPACE);
    let spec = leases.get(LEASE).await?.spec;
    let holder = spec
        .and_then(|spec| spec.holder_identity)
        .context("nobody leads")?;
    let of = |process: &PodProcess| holder.starts_with(&process.pod);
    let leads = fleet.processes("reconciler").into_iter().find(of);
    Ok(leads.context("the leader has no process")?.pod)
}
