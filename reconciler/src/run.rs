//! The one loop: changes, answers and deadlines wake it; then it observes, decides and sends requests.

mod answers;
pub(crate) mod checks;
mod drainer;
pub mod evict;
mod gates;
mod pass;
pub(crate) mod requests;
mod status;

use std::sync::Arc;
use std::time::Duration;

use brupop_core::cluster::Cluster;
use brupop_core::drain::PodKey;
use brupop_core::facts::Observed;
use brupop_core::leader::LeaderState;
use brupop_core::rules::Policy;
use brupop_runtime::{FailureLog, Heartbeat, Shutdown};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use kube::runtime::events::Recorder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::cli::Settings;
use crate::lease::{Elected, leads_now, next_while_leading};
use crate::metrics::{Metrics, Series};
use crate::watches::Watches;
use answers::Requests;
use checks::Check;
use drainer::Drainer;
use evict::EvictionAnswer;
use gates::GateAnswers;
use requests::ApiServer;
use status::Told;

/// Longest sleep: the wall clock may jump, and a window may shut. A pass in which nothing changed sends nothing.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Changes that come within this time are decided on in one pass.
const TOGETHER: Duration = Duration::from_millis(20);

/// Longest wait for evictions and Events that are under way when the process ends.
const FAREWELL: Duration = Duration::from_secs(10);

/// The loop: what it is told, what it sees, what it speaks to, and what it knows while it leads.
pub struct Reconciler {
    pub(crate) policy: Arc<Policy>,
    pub(crate) settings: Settings,
    pub(crate) api: ApiServer,
    pub(crate) watches: Arc<Watches>,
    pub(crate) elected: Elected,
    pub(crate) metrics: Metrics,
    epoch: Instant,
    /// Evictions under way. They are never dropped half-way: the API server could have counted the disruption without
    /// deleting the pod, and then the budget allows no other eviction for two minutes.
    pub(crate) evicting: JoinSet<(PodKey, EvictionAnswer)>,
    pub(crate) recorder: Recorder,
    /// Events under way: what they tell was done, also if this process no longer leads.
    pub(crate) events: JoinSet<()>,
    /// Forgotten as a whole when this process no longer leads.
    pub(crate) leading: Leading,
    elected_before: bool,
    /// Of the fleet's object, if it cannot be read.
    pub(crate) fleet_log: FailureLog,
}

/// The state of this process while it leads.
pub(crate) struct Leading {
    pub(crate) state: LeaderState,
    pub(crate) drainer: Drainer,
    pub(crate) requests: Requests,
    pub(crate) told: Told,
    /// When pools may be listed again because some were given up.
    pub(crate) pools_again: Duration,
    /// That our admission rules are in force.
    pub(crate) admission: Check,
    /// That no other operator is here.
    pub(crate) alone: Check,
    /// That pods may be deleted; asked as long as a pool wants it.
    pub(crate) may_force: Check,
    /// The state of the gates of pools.
    pub(crate) gates: GateAnswers,
    /// All are conditional writes, dry runs or reads, so they may be dropped half-way.
    pub(crate) under_way: FuturesUnordered<BoxFuture<'static, Completion>>,
}

/// Takes in what came of something that was under way.
type Completion = Box<dyn FnOnce(&mut Reconciler) + Send>;

impl Leading {
    /// Returns what is known of nothing, from this instant on.
    fn new(settings: &Settings, now: Duration) -> Self {
        let check = || Check::new(Duration::from_secs(settings.check_interval_seconds));
        let gate_interval = Duration::from_secs(settings.gate_interval_seconds);
        Self {
            state: LeaderState::default(),
            drainer: Drainer::default(),
            requests: Requests::default(),
            told: Told::default(),
            pools_again: Duration::ZERO,
            admission: check(),
            alone: check(),
            may_force: check(),
            gates: GateAnswers::new(gate_interval, now),
            under_way: FuturesUnordered::new(),
        }
    }
}

impl Reconciler {
    /// A reconciler that does not lead yet.
    pub fn new(
        policy: Policy,
        settings: Settings,
        api: ApiServer,
        recorder: Recorder,
        watches: Arc<Watches>,
        elected: Elected,
        metrics: Metrics,
    ) -> Self {
        Self {
            policy: Arc::new(policy),
            leading: Leading::new(&settings, Duration::ZERO),
            settings,
            api,
            watches,
            elected,
            metrics,
            epoch: Instant::now(),
            evicting: JoinSet::new(),
            recorder,
            events: JoinSet::new(),
            elected_before: false,
            fleet_log: FailureLog::default(),
        }
    }

    /// Works until the shutdown is requested, and beats each time that it comes round.
    pub async fn run(mut self, heartbeat: Heartbeat, shutdown: Shutdown) {
        let (mut wake, mut passed) = (self.reconcile(), Instant::now());
        let leads = self.elected.clone();
        loop {
            // If something has held the loop up for long, this comes before the beat by which the Lease is asked for again.
            if leads_now(&leads).is_none() {
                self.step_down();
            }
            heartbeat.beat();
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
                Some(complete) = next_while_leading(&leads, &mut self.leading.under_way) => {
                    complete(&mut self);
                    // With thousands of nodes a pass takes longer than a request: take all outcomes before the next pass.
                    while let Some(Some(complete)) =
                        next_while_leading(&leads, &mut self.leading.under_way).now_or_never()
                    {
                        complete(&mut self);
                    }
                }
                Some(joined) = self.evicting.join_next() => {
                    self.evicted(joined);
                    while let Some(joined) = self.evicting.try_join_next() {
                        self.evicted(joined);
                    }
                }
                () = sleep_until(wake) => {}
                () = heartbeat.due() => decide = false,
            }
            if decide {
                sleep_until(passed + TOGETHER).await;
                // The pass sees these changes, too.
                let _ = watches.changed.notified().now_or_never();
                wake = self.reconcile();
                passed = Instant::now();
            }
        }
        heartbeat.during(self.finish()).await;
    }

    /// Begins something that may be dropped half-way when this process no longer leads. `complete` takes in what came of it.
    pub(crate) fn start<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        complete: impl FnOnce(&mut Self, T) + Send + 'static,
    ) {
        let work = work.map(|outcome| -> Completion { Box::new(|this| complete(this, outcome)) });
        self.leading.under_way.push(work.boxed());
    }

    /// Waits for evictions and Events that are under way, but not for long.
    async fn finish(&mut self) {
        let all_answered = async {
            while self.evicting.join_next().await.is_some() {}
            while self.events.join_next().await.is_some() {}
        };
        if timeout(FAREWELL, all_answered).await.is_err() {
            tracing::warn!("some evictions or Events got no answer before this process ended");
        }
    }

    /// Makes one pass, if this process leads and its watches are up to date. Returns when to look again at the latest.
    fn reconcile(&mut self) -> Instant {
        let at_latest = Instant::now() + LONGEST_SLEEP;
        self.elected.mark_unchanged();
        let Some(until) = leads_now(&self.elected) else {
            self.step_down();
            return at_latest;
        };
        if !std::mem::replace(&mut self.elected_before, true) {
            self.forget();
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

    /// Stops acting at once: drops the conditional requests that are under way, and forgets everything that was known.
    fn step_down(&mut self) {
        if std::mem::take(&mut self.elected_before) {
            tracing::warn!("this process no longer leads");
            self.forget();
            self.metrics.passed(None);
        }
    }

    /// Forgets what was known and under way as long as this process led.
    fn forget(&mut self) {
        self.leading = Leading::new(&self.settings, self.now());
        self.watches.forget_led();
    }

    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

/// The input of one pass, and the time of the next one.
pub(crate) struct Pass<'p> {
    pub(crate) cluster: &'p Cluster,
    pub(crate) observed: &'p Observed<'p>,
    pub(crate) now: Timestamp,
    pub(crate) wake: Wake,
    /// The metrics of the pass.
    pub(crate) gauges: Series,
}

/// When the loop has to look again: the earliest instant that was asked for. Instants are durations since the loop's epoch.
#[derive(Debug, Default)]
pub(crate) struct Wake(pub(crate) Option<Duration>);

impl Wake {
    /// Look again at this instant at the latest, if there is one.
    pub(crate) fn by(&mut self, at: impl Into<Option<Duration>>) {
        self.0 = self.0.into_iter().chain(at.into()).min();
    }
}

/// Returns how long it is from `now` to this time; what is past is due now.
pub(crate) fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// Returns the time as objects record it, down to this unit.
pub(crate) fn text(time: Timestamp, smallest: Unit) -> String {
    let round = TimestampRound::new().smallest(smallest);
    let rounded = time.round(round.mode(RoundMode::Trunc));
    rounded.unwrap_or(time).to_string()
}
