//! The one loop: woken by changes, answers and deadlines, it observes, decides and sets calls going.

mod answers;
mod complaints;
mod errand;
mod explain;
mod opt_in;
mod pass;
mod pods;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use brupop_runtime::Shutdown;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::events::Recorder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::admission_proof::AdmissionProof;
use crate::apply::Caller;
use crate::canary::Finding;
use crate::conditions::{FleetWanted, Settling, Wanted};
use crate::drain::PodKey;
use crate::evict::{Answer, Evictions};
use crate::label_rate::LabelRate;
use crate::leadership::Elected;
use crate::metrics::Metrics;
use crate::pending::Pending;
use crate::schedule::{Schedule, Starts};
use crate::settings::Settings;
use crate::watches::{PodWatches, Watches, WorkloadWatches};
use complaints::Complaints;
use errand::{Errand, Key};

/// Longest sleep: the wall clock may jump, and a window may shut. A pass in which nothing changed asks for nothing.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Longest wait at the end for evictions that are under way.
const FAREWELL: Duration = Duration::from_secs(10);
/// Most Events on their way at once; more are lost.
const MAX_EVENTS: usize = 64;
/// Longest wait for an Event to be taken; it is lost then.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the loop works with.
pub struct Reconciler {
    settings: Settings,
    schedule: Schedule,
    caller: Caller,
    recorder: Recorder,
    watches: Arc<Watches>,
    elected: Elected,
    metrics: Metrics,
    epoch: Instant,
    starts: Starts,
    /// When nodes may start next, while they may not.
    opens: Option<Timestamp>,
    /// Never dropped half-way: the API server would have charged the budget, and not deleted the pod. It then takes two
    /// minutes until the budget allows another eviction.
    evicting: JoinSet<(PodKey, Answer)>,
    /// Events on their way. They are still published when this process leads no more: what they say was done.
    publishing: JoinSet<()>,
    /// All of it forgotten when this process leads no more.
    reign: Reign,
    elected_before: bool,
    complaints: Complaints,
}

/// What is known and under way as long as this process leads.
struct Reign {
    /// The term that was written into the ledger.
    term: Option<u64>,
    pods: PodWatches,
    workloads: WorkloadWatches,
    /// Shadows of the nodes that are next, and whose pods must be looked at first.
    look_at: BTreeSet<String>,
    /// Shadows of the nodes that no drain could empty, why, and when that was last seen.
    hopeless: BTreeMap<String, (String, Duration)>,
    pending: Pending<Key>,
    evictions: Evictions,
    /// Of the labels by which nodes are opted in.
    label_rate: LabelRate,
    admission: AdmissionProof,
    settling: Settling<Wanted>,
    settling_fleet: Settling<FleetWanted>,
    /// The reason of each shadow, as it was last seen.
    reasons: BTreeMap<String, &'static str>,
    /// Conditional, so that they may be dropped half-way.
    calls: FuturesUnordered<BoxFuture<'static, Answered>>,
}

/// A call that was answered.
enum Answered {
    Errand(Box<Errand>, crate::apply::Outcome),
    Canary(Finding),
}

impl Reign {
    fn new(settings: &Settings) -> Self {
        Self {
            term: None,
            pods: PodWatches::default(),
            workloads: WorkloadWatches::default(),
            look_at: BTreeSet::new(),
            hopeless: BTreeMap::new(),
            pending: Pending::default(),
            evictions: Evictions::default(),
            label_rate: LabelRate::default(),
            admission: AdmissionProof::new(Duration::from_secs(settings.canary_interval_seconds)),
            settling: Settling::default(),
            settling_fleet: Settling::default(),
            reasons: BTreeMap::new(),
            calls: FuturesUnordered::new(),
        }
    }
}

impl Reconciler {
    /// A reconciler that does not lead yet.
    pub fn new(
        settings: Settings,
        schedule: Schedule,
        caller: Caller,
        recorder: Recorder,
        watches: Arc<Watches>,
        elected: Elected,
        metrics: Metrics,
    ) -> Self {
        let reign = Reign::new(&settings);
        Self {
            settings,
            schedule,
            caller,
            recorder,
            watches,
            elected,
            metrics,
            epoch: Instant::now(),
            starts: Starts::default(),
            opens: None,
            evicting: JoinSet::new(),
            publishing: JoinSet::new(),
            reign,
            elected_before: false,
            complaints: Complaints::default(),
        }
    }

    /// Works until the shutdown is requested.
    pub async fn run(mut self, shutdown: Shutdown) {
        loop {
            let wake = self.look();
            let changed = Arc::clone(&self.watches.changed);
            tokio::select! {
                () = shutdown.requested() => break,
                elected = self.elected.changed() => {
                    if elected.is_err() {
                        break;
                    }
                }
                () = changed.notified() => {}
                Some(answer) = self.reign.calls.next() => {
                    self.answered(answer);
                    // Before thousands of nodes a pass takes longer than a call: not one for each answer.
                    while let Some(Some(answer)) = self.reign.calls.next().now_or_never() {
                        self.answered(answer);
                    }
                }
                Some(joined) = self.evicting.join_next() => {
                    self.evicted(joined);
                    while let Some(joined) = self.evicting.try_join_next() {
                        self.evicted(joined);
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
        let all_answered = async {
            while self.evicting.join_next().await.is_some() {}
            while self.publishing.join_next().await.is_some() {}
        };
        if timeout(FAREWELL, all_answered).await.is_err() {
            tracing::warn!("evictions or Events are left unanswered");
        }
    }

    /// One look at the world, if this process leads. Returns when to look again at the latest.
    fn look(&mut self) -> Instant {
        let at_latest = Instant::now() + LONGEST_SLEEP;
        let until = *self.elected.borrow_and_update();
        let Some(until) = until.filter(|until| Instant::now() < *until) else {
            self.step_down();
            return at_latest;
        };
        if !std::mem::replace(&mut self.elected_before, true) {
            // The term protects from what an earlier leader knew, not from what this one does not know yet.
            self.watches.refresh();
        }
        if !self.watches.is_fresh() {
            return at_latest.min(until);
        }
        let wake = self.pass().map_or(at_latest, |wake| self.epoch + wake);
        wake.min(at_latest).min(until)
    }

    /// Stops to act at once: conditional calls on their way are dropped, and whatever was known is not relied on again.
    fn step_down(&mut self) {
        if !std::mem::take(&mut self.elected_before) {
            return;
        }
        tracing::warn!("this process leads no more");
        self.reign = Reign::new(&self.settings);
        self.starts = Starts::default();
        self.metrics.passed(None);
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}
