//! The one loop: changes, answers and deadlines wake it; then it observes, decides and starts calls.

mod answers;
mod complaints;
mod denials;
mod explain;
mod idle_writes;
mod opt_in;
mod pass;
mod pods;
mod requests;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use brupop_runtime::Shutdown;
use brupop_runtime::logs::Quota;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::events::Recorder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::admission_probe::Finding;
use crate::apply::Caller;
use crate::evict::{Answer, Evictions};
use crate::in_flight::InFlight;
use crate::leadership::Elected;
use crate::metrics::Metrics;
use crate::other_operator::Looked;
use crate::proof::Proof;
use crate::watches::{PodWatches, Watches, WorkloadWatches};
use brupop_core::deadlines::Debounced;
use brupop_core::drain::PodKey;
use brupop_core::policy::Policy;
use brupop_core::status::{DesiredCondition, DesiredFleetStatus};
use brupop_core::workloads::Returns;
use complaints::Complaints;
use denials::Denials;
use idle_writes::IdleWrites;
use pods::{NodePods, PassedOver};
use requests::{Key, Request};

/// Longest sleep: the wall clock may jump, and a window may shut. A pass in which nothing changed makes no calls.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Longest wait for evictions and Events that are under way when the process ends.
const FAREWELL: Duration = Duration::from_secs(10);
/// At most so many Events are under way at once; further ones are dropped.
const MAX_EVENTS: usize = 64;
/// Longest wait for the answer to an Event; after that it is dropped.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The loop's policy, watches and state.
pub struct Reconciler {
    policy: Policy,
    /// Between two looks at the admission rules and for other operators.
    canary_interval: Duration,
    caller: Caller,
    recorder: Recorder,
    watches: Arc<Watches>,
    elected: Elected,
    metrics: Metrics,
    epoch: Instant,
    /// When the schedule next allows updates to start; `None` while it does.
    opens: Option<Timestamp>,
    /// Evictions under way. They are never dropped half-way: the API server could have counted the disruption without
    /// deleting the pod, and then the budget allows no other eviction for two minutes.
    evicting: JoinSet<(PodKey, Answer)>,
    /// Events on their way. They are still published when this process leads no more: what they say was done.
    publishing: JoinSet<()>,
    /// Forgotten as a whole when this process leads no more.
    leading: Leading,
    elected_before: bool,
    complaints: Complaints,
}

/// What is known and under way as long as this process leads.
struct Leading {
    /// The term that was written into the ledger.
    term: Option<u64>,
    pods: PodWatches,
    workloads: WorkloadWatches,
    /// Shadows of the nodes whose turn is next: their pods are looked at before they start.
    look_at: BTreeSet<String>,
    /// What follows from the pods of nodes, by name of the shadow.
    node_pods: BTreeMap<String, NodePods>,
    /// Nodes that are passed over because of their pods, by name of the shadow.
    passed_over: BTreeMap<String, PassedOver>,
    in_flight: InFlight<Key>,
    evictions: Evictions,
    returns: Returns,
    denials: Denials,
    idle_writes: IdleWrites,
    /// When nodes may be opted in again, after one could not be.
    opt_in_from: Duration,
    /// That our admission rules are in force.
    admission: Proof,
    /// That no other operator is here.
    alone: Proof,
    debounced: Debounced<Vec<DesiredCondition>>,
    debounced_fleet: Debounced<DesiredFleetStatus>,
    /// The reason of each node, by name of the shadow, as it was last logged.
    reasons: BTreeMap<String, &'static str>,
    /// How often the reason of each node may be logged: its agent can change it as often as it likes.
    said: BTreeMap<String, Quota>,
    /// Calls under way. All are conditional writes or dry runs, so they may be dropped half-way.
    calls: FuturesUnordered<BoxFuture<'static, Answered>>,
}

/// A call, and its answer.
enum Answered {
    Request(Box<Request>, crate::apply::Outcome),
    Probe(Finding),
    LookedAround(Looked),
}

impl Leading {
    fn new(interval: Duration) -> Self {
        Self {
            term: None,
            pods: PodWatches::default(),
            workloads: WorkloadWatches::default(),
            look_at: BTreeSet::new(),
            node_pods: BTreeMap::new(),
            passed_over: BTreeMap::new(),
            in_flight: InFlight::default(),
            evictions: Evictions::default(),
            returns: Returns::default(),
            denials: Denials::default(),
            idle_writes: IdleWrites::default(),
            opt_in_from: Duration::ZERO,
            admission: Proof::new(interval),
            alone: Proof::new(interval),
            debounced: Debounced::default(),
            debounced_fleet: Debounced::default(),
            reasons: BTreeMap::new(),
            said: BTreeMap::new(),
            calls: FuturesUnordered::new(),
        }
    }
}

impl Reconciler {
    /// A reconciler that does not lead yet.
    pub fn new(
        policy: Policy,
        canary_interval: Duration,
        caller: Caller,
        recorder: Recorder,
        watches: Arc<Watches>,
        elected: Elected,
        metrics: Metrics,
    ) -> Self {
        let leading = Leading::new(canary_interval);
        Self {
            policy,
            canary_interval,
            caller,
            recorder,
            watches,
            elected,
            metrics,
            epoch: Instant::now(),
            opens: None,
            evicting: JoinSet::new(),
            publishing: JoinSet::new(),
            leading,
            elected_before: false,
            complaints: Complaints::default(),
        }
    }

    /// Works until the shutdown is requested.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut wake = self.look();
        loop {
            let watches = Arc::clone(&self.watches);
            let mut decide = true;
            tokio::select! {
                () = shutdown.requested() => break,
                elected = self.elected.changed() => {
                    if elected.is_err() {
                        break;
                    }
                }
                () = watches.changed.notified() => {}
                () = watches.pods_changed.notified() => decide = self.drains_changed(),
                Some(answer) = self.leading.calls.next() => {
                    self.answered(answer);
                    // With thousands of nodes a pass takes longer than a call: take all answers before the next pass.
                    while let Some(Some(answer)) = self.leading.calls.next().now_or_never() {
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
            if decide {
                wake = self.look();
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

    /// Makes one pass, if this process leads and its watches are up to date. Returns when to look again at the latest.
    fn look(&mut self) -> Instant {
        let at_latest = Instant::now() + LONGEST_SLEEP;
        let until = *self.elected.borrow_and_update();
        let Some(until) = until.filter(|until| Instant::now() < *until) else {
            self.step_down();
            return at_latest;
        };
        if !std::mem::replace(&mut self.elected_before, true) {
            // The term protects against decisions of earlier leaders, not against decisions on what this one knew
            // before it led.
            self.watches.refresh();
        }
        if !self.watches.is_fresh() {
            return at_latest.min(until);
        }
        let wake = self.pass().map_or(at_latest, |wake| self.epoch + wake);
        wake.min(at_latest).min(until)
    }

    /// Stops acting at once: drops the conditional calls that are under way, and forgets everything that was known.
    fn step_down(&mut self) {
        if !std::mem::take(&mut self.elected_before) {
            return;
        }
        tracing::warn!("this process leads no more");
        self.leading = Leading::new(self.canary_interval);
        self.watches.forget_what_leaders_know();
        self.metrics.passed(None);
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}
