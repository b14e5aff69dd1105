//! Makes faults, and takes them back.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::LEASE;
use brupop_testbed::Fleet;
use brupop_testbed::gateways::Weather;
use brupop_testbed::host::{Answer, Call, Command, Faults, Host};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::sandbox::Signal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fault::{Bad, Fault, HostAnswer, HostCall, Process};
use crate::people::{self, node_name};
use crate::pools;
use crate::prometheus::Prometheus;
use crate::refuser::Refuser;
use brupop_testbed::operator::NAMESPACE;

/// Longest that a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait for the Lease's holder: the API server may be away.
const A_MOMENT: Duration = Duration::from_secs(1);

/// Who makes faults: remembers what is wrong with each host, and what people are about.
pub(crate) struct Maker {
    hosts: Vec<Faults>,
    bad_images: BTreeSet<String>,
    /// How many faults there are by which no host returns.
    nobody_returns: usize,
    /// Programs of the control plane that are to be gone for now.
    down: BTreeSet<String>,
    /// What etcd is to be restored from.
    snapshot: Option<PathBuf>,
    /// Nodes that were made again since etcd was last restored.
    remade: BTreeSet<usize>,
    about: JoinSet<Result<()>>,
    /// Pods whose process stands still.
    frozen: Meant,
    /// Pods whose gateway is bad.
    cut_off: Meant,
    refuser: Refuser,
    pub(crate) prometheus: Prometheus,
}

/// The pods that faults of one kind were made on, by what was meant.
#[derive(Debug, Default)]
struct Meant(Vec<(Process, Vec<String>)>);

impl Meant {
    fn put(&mut self, process: Process, pods: Vec<String>) {
        self.0.push((process, pods));
    }

    /// Those of a fault that is over, but for those of others that are not.
    fn take(&mut self, process: Process) -> Vec<String> {
        let Some(place) = self.0.iter().position(|(meant, _)| *meant == process) else { return vec![] };
        let (_, mut pods) = self.0.remove(place);
        pods.retain(|pod| !self.0.iter().any(|(_, others)| others.contains(pod)));
        pods
    }
}

impl Maker {
    pub(crate) fn new(nodes: usize, prometheus: Prometheus) -> Result<Self> {
        Ok(Self {
            hosts: vec![Faults::default(); nodes],
            bad_images: BTreeSet::new(),
            nobody_returns: 0,
            down: BTreeSet::new(),
            snapshot: None,
            remade: BTreeSet::new(),
            about: JoinSet::new(),
            frozen: Meant::default(),
            cut_off: Meant::default(),
            refuser: Refuser::start()?,
            prometheus,
        })
    }

    /// Makes a fault. What people do goes on by itself.
    pub(crate) async fn make(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Publish { version, bad } => {
                if *bad {
                    self.bad_images.insert(version.clone());
                    self.change_all(fleet, |_| ());
                }
                fleet.publish(version)?;
            }
            Fault::Kill { process } => self.signal(fleet, *process, Signal::KILL).await?,
            Fault::Freeze { process, .. } => self.freeze(fleet, *process).await?,
            Fault::DeletePod { process } => {
                let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
                for pod in self.pods(fleet, *process).await? {
                    let pods = pods.clone();
                    self.person(
                        async move { Ok(pods.delete(&pod, &DeleteParams::default()).await.map(drop)?) },
                    );
                }
            }
            Fault::KillPlane { program, .. } => {
                self.down.insert(program.clone());
                fleet.control_plane.kill(program).await?;
            }
            Fault::FreezePlane { program, .. } => fleet.control_plane.signal(program, Signal::STOP)?,
            Fault::Restore { .. } => {
                ensure!(!self.has_snapshot(), "there is a snapshot that is still to be restored");
                let file = fleet.control_plane.dir().join("snapshot.db");
                fleet.control_plane.save_snapshot(&file).await?;
                self.snapshot = Some(file);
            }
            Fault::Network { process, weather, .. } => {
                let pods = self.pods(fleet, *process).await?;
                let weather = match weather {
                    Bad::Slow => Weather::Slow(Duration::from_millis(500)),
                    Bad::Silent => Weather::Silent,
                    Bad::Deaf => Weather::Deaf,
                    Bad::Shut => Weather::Shut,
                };
                set_weather(fleet, &pods, weather);
                self.cut_off.put(*process, pods);
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(false),
            Fault::Source { wrong, .. } => self.prometheus.set(Some(*wrong)),
            Fault::Rogue { node, .. } => {
                self.freeze(fleet, Process::Agent(*node)).await?;
                let token = timeout(A_MOMENT * 3, fleet.agents_token(&node_name(*node))).await??;
                let client = fleet.control_plane.client_for_token(&token).await?;
                self.person(people::rogue(client, *node, fleet.hosts.len()));
            }
            _ => {
                self.make_on_host(fleet, fault);
                self.ask_a_person(fleet, fault, true);
            }
        }
        Ok(())
    }

    fn make_on_host(&mut self, fleet: &Fleet, fault: &Fault) {
        match fault {
            Fault::HostAnswers { node, call, answer, .. } => {
                let (call, answer) = (call_of(*call), answer_of(*answer));
                self.change(fleet, *node, |faults| match answer {
                    None => drop(faults.unanswered.insert(call)),
                    Some(answer) => drop(faults.answers.insert(call, answer)),
                });
            }
            Fault::CommandFails { node, call, .. } => {
                let Call::Action(command) = call_of(*call) else { return };
                self.change(fleet, *node, |faults| {
                    faults.failing.insert(command, "no space left on device\u{1b}[2J".to_owned());
                });
            }
            Fault::FallsBack { node, .. } => self.change(fleet, *node, |f| f.falls_back_on_boot = true),
            Fault::RebootIgnored { node, .. } => self.change(fleet, *node, |f| f.reboot_ignored = true),
            Fault::StaysDown { node, .. } => self.change(fleet, *node, |f| f.stays_down = true),
            Fault::NobodyReturns { .. } => {
                self.nobody_returns += 1;
                self.change_all(fleet, |faults| faults.stays_down = true);
            }
            Fault::Reboots { node } => on_host(fleet, *node, Host::reboot_now),
            Fault::ApiRestarts { node, ms } => {
                on_host(fleet, *node, |host| host.restart_api(Duration::from_millis(*ms)));
            }
            _ => {}
        }
    }

    /// What a person does, or takes back.
    fn ask_a_person(&mut self, fleet: &Fleet, fault: &Fault, make: bool) {
        let client = fleet.client();
        match fault.clone() {
            Fault::Recreate { node } => {
                self.remade.insert(node);
                if let Some(host) = fleet.hosts.get(node).cloned() {
                    self.person(async move {
                        people::remove_node(client.clone(), node).await?;
                        people::add_node(client, node, host).await
                    });
                }
            }
            Fault::Leave { node, .. } if make => self.person(people::remove_node(client, node)),
            Fault::Leave { node, .. } => {
                self.remade.insert(node);
                if let Some(host) = fleet.hosts.get(node).cloned() {
                    self.person(people::add_node(client, node, host));
                }
            }
            Fault::Pool { pool, change, .. } if make => self.person(pools::change(client, pool, change)),
            Fault::Pool { pool, .. } => self.person(pools::restore(client, pool)),
            Fault::SetLimit { limit } => self.person(people::set_limit(client, limit)),
            Fault::Throttled { .. } => self.person(people::throttle(client, make)),
            Fault::Refused { code, .. } => {
                let refusing = make.then(|| self.refuser.configuration(code));
                self.person(people::refuse(client, refusing));
            }
            Fault::Cordon { node, .. } if make => self.person(people::cordon(client, node)),
            Fault::Drain { node, .. } if make => self.person(people::drain(client, node)),
            Fault::Cordon { node, .. } | Fault::Drain { node, .. } => {
                self.person(people::uncordon_own(client, node));
            }
            Fault::Uncordon { node } => self.person(people::uncordon(client, node)),
            Fault::PauseNode { node, .. } => self.person(people::pause_node(client, node, make)),
            Fault::PauseFleet { .. } => self.person(people::pause_fleet(client, make)),
            Fault::Acknowledge => self.person(people::acknowledge(client)),
            Fault::DeleteFleet => self.person(people::delete_fleet(client)),
            Fault::Unlabel { node, .. } => self.person(people::label(client, node, !make)),
            Fault::UpdateNow { node, .. } => self.person(people::update_now(client, node, make)),
            Fault::EditStatus { node, what } => self.person(people::edit_status(client, node, what)),
            Fault::DeleteShadow { node } => self.person(people::delete_shadow(client, node)),
            Fault::CloseBudget { workload, .. } => self.person(people::budget(client, workload, !make)),
            Fault::UnmanagedPod { node, .. } if make => self.person(people::pod(client, node)),
            Fault::UnmanagedPod { node, .. } => self.person(people::delete_pod(client, node)),
            Fault::UnreadableMarker { node, .. } => self.person(people::break_marker(client, node, make)),
            _ => {}
        }
    }

    /// Is etcd going to be restored?
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Takes a fault back.
    pub(crate) async fn take_back(&mut self, fleet: &mut Fleet, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Freeze { process, .. } => self.thaw(fleet, *process),
            Fault::Rogue { node, .. } => self.thaw(fleet, Process::Agent(*node)),
            Fault::KillPlane { program, .. } => {
                self.down.remove(program);
                fleet.control_plane.start_program(program)?;
            }
            Fault::FreezePlane { program, .. } => fleet.control_plane.signal(program, Signal::CONT)?,
            Fault::Restore { .. } => {
                let snapshot = self.snapshot.take().context("there is no snapshot")?;
                self.down.clear();
                fleet.control_plane.restore(&snapshot).await?;
                // As kubelets do that are started anew.
                fleet.hosts.iter().for_each(Host::tell_again);
                // Their Nodes may be those of before again. Kubelets renew tokens within the hour; we do not wait for that.
                for node in std::mem::take(&mut self.remade) {
                    for pod in self.pods(fleet, Process::Agent(node)).await? {
                        self.person(people::delete_operator_pod(fleet.client(), pod));
                    }
                }
            }
            Fault::Network { process, .. } => {
                set_weather(fleet, &self.cut_off.take(*process), Weather::Clear);
            }
            Fault::WebhookUnreachable { .. } => fleet.control_plane.reach_services(true),
            Fault::Source { .. } => self.prometheus.set(None),
            Fault::HostAnswers { node, call, .. } => {
                let call = call_of(*call);
                self.change(fleet, *node, |faults| {
                    faults.answers.remove(&call);
                    faults.unanswered.remove(&call);
                });
            }
            Fault::CommandFails { node, .. } => self.change(fleet, *node, |faults| faults.failing.clear()),
            Fault::FallsBack { node, .. } => self.change(fleet, *node, |f| f.falls_back_on_boot = false),
            Fault::RebootIgnored { node, .. } => self.change(fleet, *node, |f| f.reboot_ignored = false),
            Fault::StaysDown { node, .. } => self.change(fleet, *node, |f| f.stays_down = false),
            Fault::NobodyReturns { .. } => {
                self.nobody_returns = self.nobody_returns.saturating_sub(1);
                let still = self.nobody_returns > 0;
                self.change_all(fleet, |faults| faults.stays_down = still);
            }
            _ => self.ask_a_person(fleet, fault, false),
        }
        Ok(())
    }

    /// Nothing is wrong with any host any more, but that bad images are bad.
    pub(crate) fn heal_hosts(&mut self, fleet: &Fleet) {
        self.change_all(fleet, |faults| *faults = Faults::default());
    }

    /// Starts what has ended of the control plane by itself.
    pub(crate) fn mend(&self, fleet: &mut Fleet) -> Result<()> {
        for program in fleet.control_plane.ended().iter().filter(|program| !self.down.contains(*program)) {
            fleet.control_plane.start_program(program)?;
            println!("   {program} had ended, and is started again");
        }
        Ok(())
    }

    /// No program of the control plane is gone or stands still any more.
    pub(crate) fn raise_plane(&mut self, fleet: &mut Fleet) -> Result<()> {
        self.down.clear();
        for program in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            // Who runs cannot be started again.
            if fleet.control_plane.signal(program, Signal::CONT).is_err() {
                fleet.control_plane.start_program(program)?;
            }
        }
        Ok(())
    }

    /// Awaits what people are about.
    pub(crate) async fn until_people_are_done(&mut self) {
        while let Some(done) = self.about.join_next().await {
            if let Ok(Err(error)) = done {
                println!("   a person, in vain: {}", people::why(&error));
            }
        }
    }

    fn person(&mut self, does: impl Future<Output = Result<()>> + Send + 'static) {
        self.about.spawn(async move { timeout(PATIENCE, does).await? });
    }

    fn change(&mut self, fleet: &Fleet, node: usize, change: impl FnOnce(&mut Faults)) {
        if let Some(faults) = self.hosts.get_mut(node) {
            change(faults);
            faults.bad_images.clone_from(&self.bad_images);
            let faults = faults.clone();
            on_host(fleet, node, |host| host.set_faults(faults));
        }
    }

    fn change_all(&mut self, fleet: &Fleet, change: impl Fn(&mut Faults)) {
        (0..self.hosts.len()).for_each(|node| self.change(fleet, node, &change));
    }

    async fn freeze(&mut self, fleet: &Fleet, process: Process) -> Result<()> {
        let pods = self.pods(fleet, process).await?;
        signal_all(fleet, &pods, Signal::STOP);
        self.frozen.put(process, pods);
        Ok(())
    }

    fn thaw(&mut self, fleet: &Fleet, process: Process) {
        signal_all(fleet, &self.frozen.take(process), Signal::CONT);
    }

    async fn signal(&self, fleet: &Fleet, process: Process, signal: Signal) -> Result<()> {
        signal_all(fleet, &self.pods(fleet, process).await?, signal);
        Ok(())
    }

    /// The pods that are meant; usually one.
    async fn pods(&self, fleet: &Fleet, process: Process) -> Result<Vec<String>> {
        let nth = |component: &str, number: usize| {
            let processes = fleet.processes(component);
            let index = number.checked_rem(processes.len());
            index.and_then(|index| processes.get(index)).map(|process| process.pod.clone())
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
                fleet.processes("agent").into_iter().find(on_node).map(|process| process.pod)
            }
        };
        Ok(pod.into_iter().collect())
    }
}

/// The pod that holds the Lease.
async fn leader(fleet: &Fleet) -> Result<String> {
    let lease = Api::<Lease>::namespaced(fleet.client(), NAMESPACE).get(LEASE).await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).context("nobody leads")?;
    let of = |process: &PodProcess| holder.starts_with(&process.pod);
    let pods = fleet.processes("reconciler");
    Ok(pods.into_iter().find(of).context("the leader has no process")?.pod)
}

/// Nothing of ours stands still any more.
pub(crate) fn go_on(fleet: &Fleet) {
    for process in fleet.kubelets.processes() {
        fleet.kubelets.signal(NAMESPACE, &process.pod, Signal::CONT);
    }
}

fn signal_all(fleet: &Fleet, pods: &[String], signal: Signal) {
    for pod in pods {
        fleet.kubelets.signal(NAMESPACE, pod, signal);
    }
}

fn set_weather(fleet: &Fleet, pods: &[String], weather: Weather) {
    if let Some(gateways) = &fleet.gateways {
        for pod in pods {
            gateways.set(pod, weather);
        }
    }
}

fn on_host(fleet: &Fleet, node: usize, change: impl FnOnce(&Host)) {
    if let Some(host) = fleet.hosts.get(node) {
        change(host);
    }
}

fn call_of(call: HostCall) -> Call {
    match call {
        HostCall::Os => Call::Os,
        HostCall::Status => Call::Status,
        HostCall::Refresh => Call::Action(Command::Refresh),
        HostCall::Prepare => Call::Action(Command::Prepare),
        HostCall::Activate => Call::Action(Command::Activate),
        HostCall::Reboot => Call::Reboot,
    }
}

fn answer_of(answer: HostAnswer) -> Option<Answer> {
    let why = || "a fault was made\u{1b}[2J".to_owned();
    match answer {
        HostAnswer::Locked => Some(Answer::Locked),
        HostAnswer::NotFound => Some(Answer::NotFound(why())),
        HostAnswer::NotAllowed => Some(Answer::NotAllowed(why())),
        HostAnswer::Refused => Some(Answer::Refused(why())),
        HostAnswer::Nonsense => Some(Answer::Nonsense("{\"a\": 1}".to_owned())),
        HostAnswer::Half => Some(Answer::Half),
        HostAnswer::Hang => Some(Answer::Hang),
        HostAnswer::Unanswered => None,
    }
}
