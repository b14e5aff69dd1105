//! A simulated Bottlerocket host: its API on a Unix socket of its own, its partitions, its boots.
//!
//! [`machine`] is the host without sockets and time, [`faults`] what can go wrong with it; the rest is a thin shell.

#![allow(
    clippy::missing_errors_doc,
    reason = "of a test bed they are for people, and say themselves what failed"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

pub mod faults;
mod life;
pub mod machine;
mod server;
#[cfg(test)]
mod tests;

pub use faults::{Answer, Call, Faults};
pub use life::{Ended, HostPower};
pub use machine::{Command, Ending};
use machine::{Machine, Refusal};
pub use semver::Version;

/// The options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub socket: PathBuf,
    /// The group that may use the socket, as 274 on Bottlerocket; `None`: anyone who may write to its folder.
    pub socket_group: Option<u32>,
    /// The version it runs, such as `1.19.4`.
    pub version: String,
    /// Its variant, such as `aws-k8s-1.29`.
    pub variant: String,
    pub boot_id_file: PathBuf,
    pub durations: Durations,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Durations {
    pub refresh: Duration,
    pub prepare: Duration,
    pub activate: Duration,
    pub deactivate: Duration,
    /// From the end of the API to its return.
    pub reboot: Duration,
}

impl Durations {
    fn of(&self, command: Command) -> Duration {
        match command {
            Command::Refresh => self.refresh,
            Command::Prepare => self.prepare,
            Command::Activate => self.activate,
            Command::Deactivate => self.deactivate,
        }
    }
}

/// A call that reached the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub at: Instant,
    /// Path of the request, without the query.
    pub path: String,
}

/// A running host. Clones are the same host; with the last one it is gone.
#[derive(Clone, Debug)]
pub struct Host {
    shared: Arc<Shared>,
    _life: Arc<JoinSet<()>>,
}

/// The state that connections, commands and handles share.
#[derive(Debug)]
struct Shared {
    durations: Durations,
    socket_group: Option<u32>,
    machine: Mutex<Machine>,
    faults: Mutex<Faults>,
    calls: Mutex<Vec<Received>>,
    ended: Mutex<Vec<Ended>>,
    /// Somebody has asked the API for the reboot that comes.
    requested: AtomicBool,
    boot_id: Mutex<String>,
    power: watch::Sender<HostPower>,
    reboot: Notify,
    /// Time for which the API is away.
    api_away: Mutex<Duration>,
    api_ends: Notify,
}

/// Locks what nobody leaves half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Starts a host: when this returns, it is up. Needs a runtime.
    pub fn start(options: HostOptions) -> anyhow::Result<Self> {
        let machine = Machine::new(&options.version, &options.variant)?;
        let shared = Arc::new(Shared {
            durations: options.durations,
            socket_group: options.socket_group,
            machine: Mutex::new(machine),
            faults: Mutex::default(),
            calls: Mutex::default(),
            ended: Mutex::default(),
            requested: AtomicBool::new(false),
            boot_id: Mutex::default(),
            power: watch::Sender::new(HostPower::Down),
            reboot: Notify::new(),
            api_away: Mutex::default(),
            api_ends: Notify::new(),
        });
        let listener = shared.come_up(&options.socket, &options.boot_id_file)?;
        let mut life = JoinSet::new();
        life.spawn(life::live(
            Arc::clone(&shared),
            listener,
            options.socket,
            options.boot_id_file,
        ));
        Ok(Self {
            shared,
            _life: Arc::new(life),
        })
    }

    /// The version that runs, or that ran last while it is down.
    pub fn version(&self) -> String {
        self.shared.machine().version().to_string()
    }

    /// The boot it is in, or was in while it is down.
    pub fn boot_id(&self) -> String {
        lock(&self.shared.boot_id).clone()
    }

    /// Returns what its Node shows as `osImage`.
    pub fn pretty_name(&self) -> String {
        self.shared.machine().pretty_name()
    }

    /// Tells of every change between up and down.
    pub fn power(&self) -> watch::Receiver<HostPower> {
        self.shared.power.subscribe()
    }

    /// Tells once more what it told last, to those who have forgotten it.
    pub fn tell_again(&self) {
        self.shared.power.send_modify(|_| ());
    }

    /// A new image in the host's repository; the host learns of it by a refresh.
    pub fn publish(&self, version: &str) -> anyhow::Result<()> {
        self.shared.machine().publish(version)
    }

    /// From now on this goes wrong, and nothing else.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.shared.faults) = faults;
    }

    /// The host reboots by itself, whatever runs on it.
    pub fn reboot_now(&self) {
        self.shared.reboot.notify_one();
    }

    /// The API server ends, and is started again after so long: with a new socket, in the same boot.
    pub fn restart_api(&self, away: Duration) {
        *lock(&self.shared.api_away) = away;
        self.shared.api_ends.notify_one();
    }

    /// Somebody else than our agent has run this command, and it went well.
    pub fn has_run(&self, command: Command) -> anyhow::Result<()> {
        let unreachable = lock(&self.shared.faults).unreachable;
        let mut machine = self.shared.machine();
        machine
            .start(command, unreachable)
            .map_err(|refusal| anyhow::anyhow!("{command:?}: {refusal:?}"))?;
        machine.finish(Ending::Success, unreachable, Timestamp::now());
        Ok(())
    }

    /// The boots that it has been through, in order, and why each of them ended.
    pub fn ended_boots(&self) -> Vec<Ended> {
        lock(&self.shared.ended).clone()
    }

    /// The calls that reached it so far.
    pub fn calls(&self) -> Vec<Received> {
        lock(&self.shared.calls).clone()
    }

    /// Returns how often this action was called so far, such as `reboot`.
    pub fn count(&self, action: &str) -> usize {
        let is_it = |call: &&Received| call.path.strip_prefix("/actions/") == Some(action);
        lock(&self.shared.calls).iter().filter(is_it).count()
    }
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// Notes a call; returns the false answer that it is to get, if any.
    fn record(&self, path: &str, call: Option<Call>) -> Option<Answer> {
        lock(&self.calls).push(Received {
            at: Instant::now(),
            path: path.to_owned(),
        });
        lock(&self.faults).answers.get(&call?).cloned()
    }

    /// Starts a command, which ends by itself unless the host reboots before.
    fn start(self: &Arc<Self>, command: Command) -> Result<(), Refusal> {
        let faults = lock(&self.faults).clone();
        let boot = {
            let mut machine = self.machine();
            machine.start(command, faults.unreachable)?;
            machine.boots()
        };
        let takes =
            self.durations.of(command) + faults.lasting.get(&command).copied().unwrap_or_default();
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            let faults = lock(&shared.faults).clone();
            let ending = faults
                .endings
                .get(&command)
                .cloned()
                .unwrap_or(Ending::Success);
            let mut machine = shared.machine();
            if machine.boots() == boot {
                machine.finish(ending, faults.unreachable, Timestamp::now());
            }
        });
        Ok(())
    }

    fn request_reboot(&self) {
        if !lock(&self.faults).reboot_ignored {
            self.requested.store(true, Ordering::Relaxed);
            self.reboot.notify_one();
        }
    }
}
