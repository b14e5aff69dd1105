//! The one loop: changes, answers and deadlines wake it; then a pass observes, decides for each node, and sends what may be sent now.

mod answers;
pub(crate) mod checks;
mod drainer;
pub mod evict;
mod gates;
pub(crate) mod requests;
mod status;

use std::sync::Arc;
use std::time::Duration;

use brupop_api::{Object, names};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Decision, Reason, Step};
use brupop_core::drain::PodKey;
use brupop_core::facts::{NodeView, Observed};
use brupop_core::leader::LeaderState;
use brupop_core::observe::{observe, pools_at};
use brupop_core::rules::Policy;
use brupop_core::status::{EventText, halts, updates_of};
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
use crate::watches::{LOOK_AGAIN, Watches};
use answers::Requests;
use checks::Check;
use drainer::Drainer;
use evict::EvictionAnswer;
use gates::GateAnswers;
use requests::{ApiServer, Body, Context, Request};
use status::Told;

/// Longest sleep: the wall clock may jump, and a window may shut. A pass in which nothing changed sends nothing.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Shortest pause between two passes, so that changes are decided on together.
const APART: Duration = Duration::from_millis(20);
/// The pause after a pass, as a multiple of the pass's own duration: in a large fleet passes are rarer.
const LENGTHS_APART: u32 = 50;
/// Longest pause between two passes.
const APART_MAX: Duration = Duration::from_millis(100);

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
        let (mut wake, mut next, mut is_due) = (Instant::now(), Instant::now(), true);
        let leads = self.elected.clone();
        loop {
            // If something has held the loop up for long, this comes before the beat by which the Lease is asked for again.
            if leads_now(&leads).is_none() {
                self.step_down();
            }
            heartbeat.beat();
            let watches = Arc::clone(&self.watches);
            // A pass comes last: it sees everything that has happened before it.
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                elected = self.elected.changed() => {
                    if elected.is_err() {
                        break;
                    }
                    is_due = true;
                }
                Some(complete) = next_while_leading(&leads, &mut self.leading.under_way) => {
                    complete(&mut self);
                    is_due = true;
                }
                Some(joined) = self.evicting.join_next() => {
                    self.evicted(joined);
                    is_due = true;
                }
                () = heartbeat.due() => {}
                () = watches.changed.notified(), if !is_due => is_due = true,
                () = watches.pods_changed.notified(), if !is_due => is_due = self.drains_changed(),
                () = sleep_until(wake), if !is_due => is_due = true,
                () = sleep_until(next), if is_due => {
                    let _ = watches.changed.notified().now_or_never();
                    let begun = Instant::now();
                    wake = self.reconcile();
                    let apart = begun.elapsed().saturating_mul(LENGTHS_APART);
                    next = Instant::now() + apart.clamp(APART, APART_MAX);
                    is_due = false;
                }
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
            self.watches.begin();
        }
        if !self.watches.is_fresh() {
            return at_latest.min(until);
        }
        let wake = self.observe_then(|this, pass| {
            if this.ensure_term(pass) && this.knows_right_to_force(pass) {
                this.read_again(pass);
                this.check(pass);
                this.ask(pass);
                this.decide(pass);
                let gauges = std::mem::take(&mut pass.gauges);
                this.metrics.passed(Some(gauges));
                this.opt_in(pass);
            }
            pass.wake.0
        });
        let wake = wake.flatten().map(|wake| self.epoch + wake);
        at_latest.min(until).min(wake.unwrap_or(at_latest))
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
        self.watches.rest();
    }

    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Brings what is known up to date, which sends nothing, and lets `act` decide on it. Returns its result; `None` if the fleet
    /// cannot be read.
    pub(crate) fn observe_then<T>(
        &mut self,
        act: impl FnOnce(&mut Self, &mut Pass<'_>) -> T,
    ) -> Option<T> {
        let mut wake = Wake::default();
        let (watches, policy) = (Arc::clone(&self.watches), Arc::clone(&self.policy));
        let mut cluster = match watches.cluster() {
            Ok(cluster) => cluster,
            Err(why) => {
                if self.fleet_log.is_new(&why) {
                    let says = "the BottlerocketFleet cannot be read, so nothing is done";
                    tracing::error!(why, "{says}");
                }
                self.metrics.passed(None);
                return None;
            }
        };
        self.fleet_log.resolved();
        let (time, now) = (Timestamp::now(), self.now());
        let mut leader = std::mem::take(&mut self.leading.state);
        // The owner of a node decides whose pods are watched and which workloads are read.
        leader.prepare(&mut cluster, time, &self.policy);
        self.look_again_at_pools(&cluster, &mut wake);
        self.bring_up_to_date(&mut leader);
        let mut drainer = std::mem::take(&mut self.leading.drainer);
        drainer.watch(self, &mut cluster, &leader, (now, time), &mut wake);
        self.leading.drainer = drainer;
        let requests = &self.leading.requests;
        requests.record_denials(&mut cluster, now, &mut wake);
        let text = text(time, Unit::Millisecond);
        leader.record_gates(&cluster, |query| self.leading.gates.gates.state(query, now));
        let pools = pools_at(&cluster, &leader, &policy, time);
        let observed = observe(&cluster, &leader, &pools, &policy, &text);
        wake.by(observed.clock.next.map(|at| now + until(time, at)));
        let mut pass = Pass {
            cluster: &cluster,
            observed: &observed,
            wake,
            gauges: Series::default(),
        };
        let result = act(self, &mut pass);
        leader.ahead = observed.clock.ahead;
        self.leading.state = leader;
        Some(result)
    }

    /// Lists pools again from time to time, as long as one was left out: nothing else tells that there is room for it.
    fn look_again_at_pools(&mut self, cluster: &Cluster, wake: &mut Wake) {
        let (now, due) = (self.now(), self.leading.pools_again);
        let is_left_out = cluster.pool_left_out.is_some();
        if is_left_out && now < due {
            return wake.by(due);
        }
        self.leading.pools_again = now + LOOK_AGAIN;
        if is_left_out {
            self.watches.refresh_pools();
        }
    }

    /// Brings up to date what checks say.
    fn bring_up_to_date(&self, leader: &mut LeaderState) {
        leader.enforced = self.leading.admission.holds().is_ok();
        leader.alone = self.leading.alone.holds().is_ok();
        leader.may_force = self.leading.may_force.holds().is_ok();
        leader.own_node.clone_from(&self.api.own_node);
    }

    /// Reads objects again whose watches stay behind the answers to our requests.
    fn read_again(&mut self, pass: &mut Pass<'_>) {
        let (overdue, next) = pass.cluster.overdue(self.now());
        pass.wake.by(next);
        for object in overdue {
            let request = Request::new(pass.cluster, object, Body::Read, Context::default());
            self.send(pass, request);
        }
    }

    /// Returns whether our term is in the ledger. If it is not, sends the request that creates the ledger, or the one that writes
    /// a new term into it. Nothing else is written before that.
    fn ensure_term(&mut self, pass: &mut Pass<'_>) -> bool {
        let (cluster, fleet) = (pass.cluster, &pass.observed.fleet);
        if cluster.fleet().is_none() {
            self.send(pass, Request::create_fleet(cluster));
            return false;
        }
        if fleet.term > 0 && Some(fleet.term) == fleet.ledger_term {
            return true;
        }
        let (term, write) = decide::new_term(cluster.ledger(), &pass.observed.views);
        if let Some(request) = Request::to_ledger(cluster, &write, None) {
            let term = Some(term);
            self.send(pass, Request { term, ..request });
        }
        false
    }

    /// Labels the nodes that are to be opted in, if `AUTO_LABEL` wants it.
    fn opt_in(&mut self, pass: &mut Pass<'_>) {
        let (cluster, observed, now) = (pass.cluster, pass.observed, self.now());
        let time = observed.clock.now;
        if !self.policy.auto_label {
            return;
        }
        if now < self.leading.requests.opt_in_from {
            return pass.wake.by(self.leading.requests.opt_in_from);
        }
        let (unmanaged, next) = cluster.unmanaged_nodes(self.policy.min_node_age, time);
        pass.wake.by(next.map(|at| now + until(time, at)));
        for node in &unmanaged {
            if let Some(write) = decide::opt_in(&observed.fleet, node)
                && let Some(request) = Request::opt_in(cluster, node, &write)
            {
                self.send(pass, request);
            }
        }
    }

    /// Decides for the ledger and for each node, and sends what may be sent now.
    fn decide(&mut self, pass: &mut Pass<'_>) {
        let (cluster, observed) = (pass.cluster, pass.observed);
        let (fleet, views) = (&observed.fleet, &observed.views);
        let decisions = observed.decide();
        let nodes = &decisions.nodes;
        if let Some(write) = &decisions.write
            && let event = EventText::of_halts(&decisions.halted)
            && let Some(mut request) = Request::to_ledger(cluster, write, event)
        {
            request.context.ended = updates_of(fleet, views, &decisions);
            self.send(pass, request);
        }
        self.preflight(pass, &decisions);
        let halts = halts(observed);
        self.tell(pass, nodes, &halts);
        for (view, decision) in views.iter().zip(nodes) {
            let name = view.shadow_name;
            if decision.reason.is_not_understood() {
                let of_shadow = cluster.has_shadow(name) && cluster.shadow(name).is_none();
                let kind = if of_shadow {
                    "BottlerocketShadow"
                } else {
                    "Node"
                };
                pass.gauges.skip(kind, 1);
            } else {
                self.execute(pass, view, decision);
                self.read_evicted(view, &mut pass.wake);
            }
            self.explain(pass, view, &decision.reason);
        }
        for name in &observed.too_long {
            pass.gauges.skip("Node", 1);
            let most = names::NODE_NAME_MAX;
            let why = format!(
                "its name has more than {most} characters, so no shadow can be named after it"
            );
            self.explain(pass, &NodeView::nothing(name), &Reason::NotUnderstood(&why));
        }
        self.leading.drainer.workloads.prune();
        self.sum_up(pass, nodes, &halts);
        self.sum_up_pools(pass, nodes);
        self.leading.requests.prune(cluster);
        self.leading.told.prune(cluster);
    }

    /// Carries out what was decided for a node, unless a request for it is under way.
    fn execute(&mut self, pass: &mut Pass<'_>, view: &NodeView<'_>, decision: &Decision<'_>) {
        let (cluster, name) = (pass.cluster, view.shadow_name);
        let Some(step) = decision.step else { return };
        match (step, cluster.drain(name)) {
            (Step::Evict, Some(plan)) => return self.remove_pods(plan, true, &mut pass.wake),
            (Step::DeletePods, Some(plan)) => {
                // The operator's own are evicted even now: if their budget forbids it, they are needed.
                let (by_eviction, forced) = (plan.evict_operator_pods, plan.clone().forced());
                return self.remove_pods(&forced, by_eviction, &mut pass.wake);
            }
            (Step::Cordon | Step::CordonAgain, Some(plan)) => {
                // Their marker notes how many pods of these are available.
                let owners = plan.owners.iter().map(|owner| (owner, 0));
                self.read_workloads(name, owners, &mut pass.wake);
                let record = cluster.records.get(name);
                if record.is_none_or(|record| record.led.scales.is_none()) {
                    return;
                }
            }
            // The watch of its pods will wake the loop.
            (Step::Evict | Step::DeletePods, None) => return,
            (step, None) if step.empties() => return,
            _ => {}
        }
        // A decision about a shadow rests on its Node, too.
        let node = names::node_of_shadow(name).map(|node| Object::Node(node.to_owned()));
        let shadow = Object::ShadowSpec(name.to_owned());
        for object in node.iter().chain([&shadow]) {
            if !self.is_ready(cluster, object, &mut pass.wake) {
                return;
            }
        }
        let (fleet, reason) = (&pass.observed.fleet, &decision.reason);
        if let Some(mut request) = Request::of_step(cluster, view, step, reason, fleet) {
            if let Some(event) = &mut request.context.event
                && let Some(more) = self.detail(pass, view, reason)
            {
                event.note = format!("{}; {more}", event.note);
            }
            self.send(pass, request);
        }
    }
}

/// The input of one pass, and the time of the next one.
pub(crate) struct Pass<'p> {
    pub(crate) cluster: &'p Cluster,
    pub(crate) observed: &'p Observed<'p>,
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
