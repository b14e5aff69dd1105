//! `brupop-reconciler plan` prints which nodes would start now, in which order, and why the others do not. It writes
//! nothing: it makes a pass of the loop that sends nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::crds::{MESSAGE_MAX, NAME_MAX, VERSION_MAX};
use brupop_api::names;
use brupop_api::printable::printable;
use brupop_core::decide::{self, Decisions, Reason};
use brupop_core::facts::{FleetFacts, NodeView, Observed};
use brupop_core::status;
use brupop_runtime::ClusterConfig;
use brupop_runtime::client::ClientError;
use kube::runtime::events::Recorder;
use serde::Serialize;
use tokio::sync::watch;

use crate::cli::{PlanFormat, Settings};
use crate::dry_run::NotRead;
use crate::metrics::Metrics;
use crate::process::{own_node, reporter};
use crate::requests::ApiServer;
use crate::run::Reconciler;
use crate::watches::Watches;

/// The column of a plan that names pools.
const POOL: usize = 1;

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what", content = "turn")]
pub enum NodePlan {
    /// It is being updated.
    Running,
    /// Its update starts now.
    Starts,
    /// It could start, and waits for its turn; the first turn is 1.
    Waits(usize),
    /// It does not start.
    Stays,
}

/// One node of a plan. Texts are printable: agents and hosts have their words in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name of the node.
    pub node: String,
    /// Its pool; `null` if two contend for it, or the fleet holds it.
    pub pool: Option<String>,
    /// The version that it runs, as its agent says.
    pub version: Option<String>,
    /// The version that it is, or would be, updated to.
    pub target: Option<String>,
    /// What becomes of it.
    pub next: NodePlan,
    /// Why: a stable word, as in the condition Progressing.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// The plan of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// How many nodes may be updated at once.
    pub limit: u64,
    /// How many are.
    pub in_use: usize,
    /// Versions that no further node is updated to.
    pub halted: Vec<String>,
    /// The nodes: those in mid-update, those that start, those that wait in their order, the rest by name.
    pub nodes: Vec<Row>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The schedule cannot be understood.
    #[error("{0}")]
    Policy(String),
    /// Something cannot be read.
    #[error(transparent)]
    Read(#[from] NotRead),
    /// The plan cannot be printed.
    #[error("cannot print the plan as JSON")]
    Json(#[from] serde_json::Error),
}

/// Makes a plan of the cluster and returns it as text.
///
/// # Errors
/// The cluster cannot be read, or the settings cannot be understood.
pub async fn run(settings: Settings, output: PlanFormat) -> Result<String, PlanError> {
    let policy = settings.policy().map_err(PlanError::Policy)?;
    let config = ClusterConfig::of_pod("brupop-reconciler-plan")?;
    let client = config.client_without_retry()?;
    let api = ApiServer {
        client: client.clone(),
        namespace: config.namespace().to_owned(),
        own_node: own_node(&client).await,
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
    let plan = reconciler.dry_run(plan).await?;
    Ok(match output {
        PlanFormat::Table => table(&plan),
        PlanFormat::Json => serde_json::to_string_pretty(&plan)? + "\n",
    })
}

/// Returns the plan that these decisions make.
fn plan(observed: &Observed<'_>, decided: &Decisions<'_>) -> Plan {
    let fleet = &observed.fleet;
    let taken = decided.allocation.taken.iter();
    let mut nexts: BTreeMap<usize, NodePlan> =
        taken.map(|&index| (index, NodePlan::Starts)).collect();
    let candidates = decide::candidates(fleet, &observed.views).into_iter();
    let waits: Vec<usize> = candidates
        .filter(|index| !nexts.contains_key(index))
        .collect();
    nexts.extend(waits.into_iter().zip((1..).map(NodePlan::Waits)));
    let decided = observed.views.iter().zip(&decided.nodes).enumerate();
    let mut nodes: Vec<Row> = decided
        .map(|(index, (view, decision))| {
            row(fleet, view, &decision.reason, nexts.get(&index).copied())
        })
        .collect();
    nodes.sort_by_key(|row| match row.next {
        NodePlan::Running => (0, 0),
        NodePlan::Starts => (1, 0),
        NodePlan::Waits(turn) => (2, turn),
        NodePlan::Stays => (3, 0),
    });
    Plan {
        limit: fleet.total_limit(),
        in_use: fleet.slots.len(),
        halted: status::halted_versions(fleet.versions)
            .into_iter()
            .flatten()
            .map(|version| shown(&version, VERSION_MAX))
            .collect(),
        nodes,
    }
}

/// One node of the plan; `next` is what becomes of its update if it is a candidate.
fn row(
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    reason: &Reason<'_>,
    next: Option<NodePlan>,
) -> Row {
    let slot = view.slot(fleet).is_some();
    let next = match reason {
        Reason::NotUnderstood(_) => NodePlan::Stays,
        _ if slot => NodePlan::Running,
        _ => next.unwrap_or(NodePlan::Stays),
    };
    let name = names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name);
    let version = view.shadow.and_then(|shadow| shadow.status.current_version);
    let target = view.shadow.and_then(|shadow| {
        if slot {
            shadow.spec.version
        } else {
            shadow.update()
        }
    });
    Row {
        node: shown(name, NAME_MAX),
        pool: fleet.pool_of(view).map(|pool| shown(pool.name, NAME_MAX)),
        version: version.map(|version| shown(version, VERSION_MAX)),
        target: target.map(|version| shown(version, VERSION_MAX)),
        next,
        reason: reason.as_str(),
        message: shown(&reason.message(), MESSAGE_MAX),
    }
}

fn shown(text: &str, limit: usize) -> String {
    printable(text, limit).into_owned()
}

/// The plan as lines of columns.
fn table(plan: &Plan) -> String {
    let halted = if plan.halted.is_empty() {
        String::new()
    } else {
        format!("; halted: {}", plan.halted.join(", "))
    };
    let mut text = format!("{} of {} in update{halted}\n", plan.in_use, plan.limit);
    let is_in_another_pool = |row: &Row| row.pool.as_deref() != Some(names::DEFAULT_POOL);
    let columns: Vec<usize> = (0..7)
        .filter(|column| *column != POOL || plan.nodes.iter().any(is_in_another_pool))
        .collect();
    let head = [
        "NODE", "POOL", "VERSION", "TARGET", "NEXT", "REASON", "MESSAGE",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head)
        .chain(plan.nodes.iter().map(cells))
        .collect();
    let width = |column: &usize| {
        rows.iter()
            .map(|row| row[*column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    for row in rows {
        let cells = columns.iter().map(|column| &row[*column]);
        let line: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> [String; 7] {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let next = match row.next {
        NodePlan::Running => "running".to_owned(),
        NodePlan::Starts => "starts".to_owned(),
        NodePlan::Waits(turn) => format!("waits ({turn})"),
        NodePlan::Stays => "-".to_owned(),
    };
    [
        row.node.clone(),
        or_dash(&row.pool),
        or_dash(&row.version),
        or_dash(&row.target),
        next,
        row.reason.to_owned(),
        row.message.clone(),
    ]
}

#[cfg(test)]
mod tests;
