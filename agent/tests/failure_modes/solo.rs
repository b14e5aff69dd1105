//! The agent in this process, on a simulated host, against an API that holds one shadow and no more. Time is simulated
//! (`start_paused`), so that hours take moments; the test plays the reconciler.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brupop_agent::agent::Agent;
use brupop_agent::options::Options;
use brupop_agent::shadow::Seen;
use brupop_api::{BottlerocketShadowStatus, Problem, State};
use brupop_host::{Durations, Faults, HostPower};
use brupop_runtime::Heartbeat;
use brupop_runtime::shutdown::{Shutdown, Trigger};
use clap::Parser as _;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::place::Place;
use crate::store::{Death, Store, answer};

/// The deadline of a test, in simulated time.
pub const DEADLINE: Duration = Duration::from_hours(48);
/// Between the end of an agent and its next start. The kubelet's grows from 10 s to 5 min.
const BACK_OFF: Duration = Duration::from_secs(10);
pub const OLD: &str = "1.19.4";
pub const NEW: &str = "1.20.1";
pub const STAGED: State = State::StagedAndPerformedUpdate;

/// Awaits a condition, with looks that are rare enough for hours.
async fn soon(every: Duration, condition: impl Fn() -> bool) {
    let mut ticks = tokio::time::interval(every);
    while !condition() {
        ticks.tick().await;
    }
}

/// Resolves when an agent's loop has not come round for a minute, however slow host and API server are.
async fn until_stuck(heartbeat: &Heartbeat) {
    while !heartbeat.is_stuck() {
        sleep(Duration::from_secs(5)).await;
    }
}

pub struct Solo {
    pub place: Place,
    pub store: Arc<Mutex<Store>>,
    agent: Option<(JoinHandle<()>, Trigger)>,
    /// Number of times that an agent has ended by itself.
    ends: Arc<AtomicUsize>,
    flags: Vec<String>,
    /// The socket is mounted into the agent's container: another one that takes its place is seen by the next container.
    mounted: bool,
}

impl Solo {
    /// A host and an Idle shadow; no agent yet.
    pub fn new(flags: &[&str]) -> Self {
        Self::slowly(|_| {}, flags)
    }

    /// The same, where this says how long things take.
    pub fn slowly(change: impl FnOnce(&mut Durations), flags: &[&str]) -> Self {
        let mut durations = Durations::default();
        change(&mut durations);
        let solo = Self {
            place: Place::new(durations),
            store: Arc::new(Mutex::new(Store::new())),
            agent: None,
            ends: Arc::default(),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            mounted: false,
        };
        solo.store.lock().unwrap().tell();
        solo
    }

    /// The socket is mounted into containers, each of which has the one that was there when it was made.
    pub fn mount(&mut self) {
        self.mounted = true;
    }

    /// Starts an agent that remembers nothing; one that lives is killed where it stands.
    pub fn start(&mut self) {
        self.kill();
        let place = &self.place;
        let (host_path, mount) = (place.socket(), place.socket().with_extension("mounted"));
        let mounted = self.mounted.then(|| mount.clone());
        let mut arguments = vec![
            "brupop-agent".to_owned(),
            format!(
                "--socket={}",
                mounted.as_ref().unwrap_or(&host_path).display()
            ),
            format!("--boot-id-file={}", place.boot_id_file().display()),
            "--poll-interval=10s".into(),
        ];
        arguments.extend(self.flags.iter().cloned());
        if !self
            .flags
            .iter()
            .any(|flag| flag.starts_with("--start-jitter="))
        {
            arguments.push("--start-jitter=0s".into());
        }
        let options = Options::try_parse_from(arguments).unwrap();
        let seen = {
            let mut store = self.store.lock().unwrap();
            (store.fuse, _) = (None, store.died.send_replace(false));
            store.sender.subscribe()
        };
        let service_of = |store: &Arc<Mutex<Store>>| {
            let store = Arc::clone(store);
            tower::service_fn(move |request| answer(Arc::clone(&store), request))
        };
        let (store, ends) = (Arc::clone(&self.store), Arc::clone(&self.ends));
        let (trigger, shutdown) = Shutdown::by_hand();
        let kubelet = async move {
            loop {
                if let Some(mount) = &mounted {
                    // As a mount does, a second name for a file stays with that file.
                    let _ = std::fs::remove_file(mount);
                    std::fs::hard_link(&host_path, mount).unwrap();
                }
                let client = Client::new(service_of(&store), "ns");
                let agent = Agent::new(options.clone(), client, "ns", "node-0");
                let heartbeat = Heartbeat::new(Duration::from_mins(1));
                let living = agent.live(seen.clone(), shutdown.clone(), &heartbeat);
                let ended = tokio::select! {
                    ended = living => ended,
                    () = until_stuck(&heartbeat) => panic!("the watchdog would end the agent"),
                };
                if ended.is_ok() {
                    return;
                }
                ends.fetch_add(1, Ordering::Relaxed);
                sleep(BACK_OFF).await;
            }
        };
        self.agent = Some((tokio::spawn(kubelet), trigger));
    }

    /// Returns how often an agent has ended by itself, and was started again.
    pub fn ends(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }

    pub fn kill(&mut self) {
        if let Some((task, _)) = self.agent.take() {
            task.abort();
        }
    }

    /// The agent dies with a write: this many go well before it.
    pub fn die_at_write(&self, writes: usize, death: Death) {
        self.store.lock().unwrap().fuse = Some((writes, death));
    }

    /// Whether it has died of [`Solo::die_at_write`].
    pub fn has_died(&self) -> bool {
        *self.store.lock().unwrap().died.borrow()
    }

    pub fn spec(&self, change: &Value) {
        let mut store = self.store.lock().unwrap();
        let before = store.shadow["spec"].clone();
        json_patch::merge(&mut store.shadow["spec"], change);
        if store.shadow["spec"] != before {
            let generation = store.shadow["metadata"]["generation"].as_u64().unwrap();
            store.shadow["metadata"]["generation"] = json!(generation + 1);
            store.tell();
        }
    }

    pub fn stage(&self, attempt: u64) {
        self.spec(&json!({
            "state": "StagedAndPerformedUpdate", "version": NEW, "attempt": attempt,
            "baseline_boot_id": self.place.host.boot_id(), "reboot_granted_boot_id": null,
        }));
    }

    /// Grants the reboot of the boot that the host is in.
    pub fn grant(&self) {
        self.spec(&json!({"state": "RebootedIntoUpdate", "reboot_granted_boot_id": self.place.host.boot_id()}));
    }

    pub fn status(&self) -> BottlerocketShadowStatus {
        serde_json::from_value(self.store.lock().unwrap().shadow["status"].clone())
            .unwrap_or_default()
    }

    /// Statuses in the order in which they were stored.
    pub fn statuses(&self) -> Vec<BottlerocketShadowStatus> {
        let statuses = self.store.lock().unwrap().statuses.clone();
        statuses
            .into_iter()
            .map(|status| serde_json::from_value(status).unwrap())
            .collect()
    }

    pub async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&BottlerocketShadowStatus) -> bool,
    ) -> BottlerocketShadowStatus {
        let mut seen = self.store.lock().unwrap().sender.subscribe();
        let hit = |seen: &Seen| {
            seen.as_ref()
                .is_some_and(|shadow| wanted(&shadow.status.clone().unwrap_or_default()))
        };
        let found = timeout(DEADLINE, seen.wait_for(hit))
            .await
            .map(|found| found.is_ok());
        assert_eq!(
            found,
            Ok(true),
            "{what}: {:#?} {:#?}",
            self.status(),
            self.actions()
        );
        self.status()
    }

    /// Awaits a message that contains this.
    pub async fn until_told(&self, words: &str) -> BottlerocketShadowStatus {
        let told = |message: &String| message.contains(words);
        self.until(words, |status| status.message.as_ref().is_some_and(told))
            .await
    }

    pub async fn until_problem(&self, problem: Problem) -> BottlerocketShadowStatus {
        self.until(problem.as_str(), |status| status.problem == Some(problem))
            .await
    }

    /// Awaits that nothing is said to be wrong.
    pub async fn until_well(&self) -> BottlerocketShadowStatus {
        self.until("no message", |status| status.message.is_none())
            .await
    }

    /// Returns how often an image was downloaded, and activated.
    pub fn staged(&self) -> (usize, usize) {
        (self.count("prepare-update"), self.count("activate-update"))
    }

    /// An agent that is Idle, and knows of an update.
    pub async fn idle() -> Self {
        Self::idle_with(|_| {}, &[]).await
    }

    /// The same, where this says how long things take.
    pub async fn slow(durations: impl FnOnce(&mut Durations)) -> Self {
        Self::idle_with(durations, &[]).await
    }

    /// The same, and with these flags.
    pub async fn idle_with(durations: impl FnOnce(&mut Durations), flags: &[&str]) -> Self {
        let mut solo = Self::slowly(durations, flags);
        solo.start();
        solo.until_idle_with_update().await;
        solo
    }

    pub async fn until_idle_with_update(&self) -> BottlerocketShadowStatus {
        self.until("Idle, and an update", |status| {
            status.current_state == Some(State::Idle)
                && status.target_version.as_deref() == Some(NEW)
        })
        .await
    }

    pub async fn until_at(&self, attempt: u64, state: State) -> BottlerocketShadowStatus {
        self.until(&format!("{state} at {attempt}"), |status| {
            status.current_state == Some(state) && status.attempt == Some(attempt)
        })
        .await
    }

    /// Awaits a call of the host that is made after this many others.
    pub async fn until_called(&self, path: &str, skip: usize) {
        let called = soon(Duration::from_secs(1), || self.count(path) > skip);
        assert!(
            timeout(DEADLINE, called).await.is_ok(),
            "{path}: {:#?} {:?}",
            self.status(),
            self.actions()
        );
    }

    pub async fn until_booted(&self, before: &str) {
        let mut power = self.place.host.power();
        let up =
            |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if boot_id != before);
        timeout(DEADLINE, power.wait_for(up))
            .await
            .unwrap()
            .unwrap();
    }

    /// Returns what was asked of the host, without the questions.
    pub fn actions(&self) -> Vec<String> {
        let calls = self.place.host.calls();
        let actions = calls
            .iter()
            .filter_map(|call| call.path.strip_prefix("/actions/"));
        actions.map(str::to_owned).collect()
    }

    /// Returns how often this action was asked for.
    pub fn count(&self, action: &str) -> usize {
        self.actions()
            .iter()
            .filter(|asked| *asked == action)
            .count()
    }

    /// From now on this goes wrong.
    pub fn faults(&self, faults: Faults) {
        self.place.host.set_faults(faults);
    }

    /// Returns what is stored now; for [`Solo::restore`].
    pub fn snapshot(&self) -> Value {
        self.store.lock().unwrap().shadow.clone()
    }

    /// The API is restored from a snapshot: it has forgotten what came later, and a list shows revisions of then.
    pub fn restore(&self, snapshot: Value) {
        let mut store = self.store.lock().unwrap();
        store.shadow = snapshot;
        store.show();
    }

    /// Somebody deletes the shadow, and the reconciler creates it again.
    pub fn recreate(&self) {
        let mut shadow = Store::new().shadow;
        shadow["metadata"]["uid"] = json!("v");
        self.restore(shadow);
    }

    /// Nothing of this comes in an hour.
    pub async fn never(&self, what: &str, condition: impl Fn() -> bool) {
        let hour = Duration::from_hours(1);
        let came = timeout(hour, soon(Duration::from_secs(10), condition)).await;
        assert!(
            came.is_err(),
            "{what}: {:#?} {:?}",
            self.status(),
            self.actions()
        );
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        self.kill();
    }
}
