//! `brupop-reconciler plan` prints as JSON which nodes would start, in which order, and why the others would not: now, or if no
//! pause, window, freeze or gate held them. It writes nothing: it makes a pass of the loop that sends nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::conditions::{ADMISSION_ENFORCED, ConditionStatus, OTHER_OPERATOR};
use brupop_api::names;
use brupop_api::printable::printable_json;
use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, Decisions, Reason};
use brupop_core::facts::{FleetFacts, Observed, PoolFacts};
use brupop_core::status;
use brupop_core::window::Starts;
use brupop_core::workloads::Evicted;
use brupop_runtime::ClusterConfig;
use futures::StreamExt as _;
use kube::runtime::events::Recorder;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::cli::Settings;
use crate::metrics::Metrics;
use crate::process::{own_node, reporter};
use crate::run::Pass;
use crate::run::Reconciler;
use crate::run::checks::Finding;
use crate::run::requests::ApiServer;
use crate::watches::{MAX_POD_WATCHES, Watches};

/// Longest wait until all is read that a decision needs.
const DEADLINE: Duration = Duration::from_secs(20);

/// The plan for a node. Plans are sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "what", content = "turn")]
pub enum NodePlan {
    Running,
    Starts,
    /// It could start, and waits for its turn; the first turn is 1.
    Waits(usize),
    Stays,
}

/// One node of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub node: String,
    /// Its pool; `null` if two contend for it, or the fleet holds it.
    pub pool: Option<String>,
    /// The version that it runs, as its agent says.
    pub version: Option<String>,
    /// The version that it is, or would be, updated to.
    pub target: Option<String>,
    pub next: NodePlan,
    /// The reason: a stable word, as in the condition Progressing.
    pub reason: &'static str,
    pub message: String,
}

/// The plan of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Number of nodes that may be updated at once.
    pub limit: u64,
    pub in_use: usize,
    /// Obstacles to updates, in sentences.
    pub held: Vec<String>,
    /// Versions that no further node is updated to.
    pub halted: Vec<String>,
    /// The nodes: those in mid-update, those that start, those that wait in their order, the rest by name.
    pub nodes: Vec<Row>,
}

/// Makes a plan of the cluster and returns it as JSON: for `now`, or as if nothing held updates for now.
///
/// # Errors
/// The cluster cannot be read, or the settings cannot be understood.
pub async fn run(settings: Settings, now: bool) -> Result<String, Box<dyn Error + Send + Sync>> {
    let policy = settings.policy()?;
    let config = ClusterConfig::of_pod("brupop-reconciler-plan")?;
    let client = config.client_without_retry()?;
    let api = ApiServer {
        client: client.clone(),
        namespace: config.namespace().to_owned(),
        own_node: own_node(&config),
    };
    let watches = Arc::new(Watches::start(&client, config.namespace()));
    let recorder = Recorder::new(client, reporter(None));
    // It never leads.
    let (_, elected) = watch::channel(None);
    let reconciler = Reconciler::new(
        policy,
        settings,
        api,
        recorder,
        watches,
        elected,
        Metrics::default(),
    );
    Ok(printed(&reconciler.dry_run(now).await?))
}

/// The plan as JSON that drives no terminal, whatever agents and hosts say.
fn printed(plan: &Plan) -> String {
    let text = format!("{:#}", json!(plan));
    let lines: Vec<_> = text.lines().map(printable_json).collect();
    lines.join("\n") + "\n"
}

impl Reconciler {
    /// Decides as if this process led, and sends nothing. Returns the plan once all is read that the decisions need.
    async fn dry_run(mut self, now: bool) -> Result<Plan, String> {
        let deadline = Instant::now() + DEADLINE;
        self.leading.gates.gates.opens = 1;
        let watches = Arc::clone(&self.watches);
        loop {
            let unread = match self.dry_pass(now) {
                Ok(plan) => return Ok(plan),
                Err(unread) => unread,
            };
            tokio::select! {
                () = watches.changed.notified() => {}
                () = watches.pods_changed.notified() => {}
                Some(complete) = self.leading.under_way.next() => complete(&mut self),
                () = sleep_until(deadline) => {
                    let (limit, unread) = (DEADLINE.as_secs(), unread.join(", "));
                    return Err(format!("not read within {limit} s: {unread}"));
                }
            }
        }
    }

    /// Makes one pass. `Err` names what has not been read yet.
    fn dry_pass(&mut self, now: bool) -> Result<Plan, Vec<&'static str>> {
        let watches = Arc::clone(&self.watches);
        let unsynced = watches.unsynced();
        if !unsynced.is_empty() {
            return Err(unsynced);
        }
        if let Ok(cluster) = watches.cluster() {
            self.succeed_leader(&cluster);
        }
        let plan = self.observe_then(|this, pass| {
            this.knows_right_to_force(pass);
            this.ask(pass);
            // As if this process led, even if none has led yet.
            let mut observed = pass.observed.clone();
            observed.fleet.ledger_term = Some(observed.fleet.term);
            let held = held(&observed.fleet);
            let pools: Vec<_> = observed.fleet.pools.iter().map(released).collect();
            let default_pool = released(observed.fleet.default_pool);
            if !now {
                (observed.fleet.pools, observed.fleet.default_pool) = (&pools, &default_pool);
                observed.fleet.paused = false;
            }
            let decided = observed.decide();
            this.preflight(pass, &decided);
            let views = observed.views.iter();
            for view in views.filter(|view| view.evicted == Evicted::Unknown) {
                this.read_evicted(view, &mut pass.wake);
            }
            let unread = this.unread(pass, &decided);
            if unread.is_empty() {
                Ok(plan(&observed, &decided, held))
            } else {
                Err(unread)
            }
        });
        plan.unwrap_or_else(|| Err(vec!["the BottlerocketFleet"]))
    }

    /// Takes over the leader's term, and what its last checks found: they are dry-run writes, so they are not repeated.
    fn succeed_leader(&mut self, cluster: &Cluster) {
        let (now, ledger) = (self.now(), cluster.ledger());
        let says = |type_: &str| {
            let mut conditions = ledger.iter().flat_map(|ledger| &ledger.conditions);
            conditions.any(|it| it.type_ == type_ && it.status == ConditionStatus::True)
        };
        let fails = || Finding::Fails(String::new());
        let finding = |holds| if holds { Finding::Holds } else { fails() };
        let leading = &mut self.leading;
        leading.state.term = ledger.and_then(|ledger| ledger.term).unwrap_or(0);
        let admission = finding(says(ADMISSION_ENFORCED));
        leading.admission.found(admission, now);
        leading.alone.found(finding(!says(OTHER_OPERATOR)), now);
    }

    /// Names what has not been read yet of what decisions on these nodes need.
    fn unread(&self, pass: &Pass<'_>, slots: &Decisions<'_>) -> Vec<&'static str> {
        let Pass {
            cluster, observed, ..
        } = *pass;
        let mut next = slots.preflight.iter();
        let records = cluster.records.values();
        let drains = records.filter(|record| record.led.plan.is_some()).count();
        let pods_known = drains >= MAX_POD_WATCHES
            || next.all(|&index| observed.views[index].led.plan.is_some());
        let answered = self.leading.under_way.is_empty();
        let answers = (!answered).then_some("workloads, the sources of gates, or a right");
        let pods = (!pods_known).then_some("the next nodes' pods, their budgets or workloads");
        answers.into_iter().chain(pods).collect()
    }
}

/// Returns the pool as if nothing held all its nodes for now.
fn released<'a>(pool: &PoolFacts<'a>) -> PoolFacts<'a> {
    let starts = match pool.starts {
        invalid @ Starts::Invalid(_) => invalid,
        _ => Starts::Open,
    };
    PoolFacts {
        starts,
        gate: None,
        ..pool.clone()
    }
}

/// Says what holds all updates of the fleet or of a pool for now.
fn held(fleet: &FleetFacts<'_>) -> Vec<String> {
    let of_fleet = (fleet.paused).then(|| Reason::FleetPaused.message().into_owned());
    let pools = fleet.pools.iter().chain([fleet.default_pool]);
    let of_pools = pools.filter(|pool| pool.nodes > 0).flat_map(|pool| {
        let reasons = decide::holds(pool);
        reasons.map(|it| format!("pool {}: {}", pool.name, it.message()))
    });
    of_fleet.into_iter().chain(of_pools).collect()
}

/// Returns the plan that these decisions make, beside what holds updates for now.
fn plan(observed: &Observed<'_>, decided: &Decisions<'_>, held: Vec<String>) -> Plan {
    let fleet = &observed.fleet;
    let taken = decided.taken.iter();
    let mut nexts: BTreeMap<usize, NodePlan> =
        taken.map(|&index| (index, NodePlan::Starts)).collect();
    let candidates = decide::candidates(fleet, &observed.views).into_iter();
    let waits = candidates.filter(|index| !nexts.contains_key(index));
    let waits: Vec<usize> = waits.collect();
    nexts.extend(waits.into_iter().zip((1..).map(NodePlan::Waits)));
    let decided = observed.views.iter().zip(&decided.nodes).enumerate();
    let rows = decided.map(|(index, (view, decision))| {
        let (slot, reason) = (view.held().is_some(), &decision.reason);
        let next = match nexts.get(&index) {
            _ if reason.is_not_understood() => NodePlan::Stays,
            _ if slot => NodePlan::Running,
            next => next.copied().unwrap_or(NodePlan::Stays),
        };
        let name = names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name);
        let version = view
            .shadow
            .and_then(|shadow| shadow.status.current_version.as_deref());
        let spec_version = view
            .shadow
            .and_then(|shadow| shadow.spec.version.as_deref());
        let update = view.shadow.and_then(|shadow| shadow.update());
        let target = if slot { spec_version } else { update };
        Row {
            node: name.to_owned(),
            pool: fleet.pool_of(view).map(|pool| pool.name.to_owned()),
            version: version.map(str::to_owned),
            target: target.map(str::to_owned),
            next,
            reason: reason.as_str(),
            message: reason.message().into_owned(),
        }
    });
    let mut nodes: Vec<Row> = rows.collect();
    nodes.sort_by_key(|row| row.next);
    let halted = status::halted_versions(&status::halts(observed));
    Plan {
        limit: fleet.total_limit(),
        in_use: fleet.slots.len(),
        held,
        halted: halted.into_iter().flatten().collect(),
        nodes,
    }
}

#[cfg(test)]
mod tests;
