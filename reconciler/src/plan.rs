//! `brupop-reconciler plan` prints which nodes would start now, in which order, and why the others do not. It writes
//! nothing.
//!
//! It calls the same functions as the reconciler, on objects that it reads once.

mod read;

use std::collections::BTreeMap;

use brupop_api::conditions::{ADMISSION_ENFORCED, ConditionStatus, OTHER_OPERATOR};
use brupop_api::crds::{MESSAGE_MAX, NAME_MAX, VERSION_MAX};
use brupop_api::names;
use brupop_api::printable::printable;
use clap::{Args, ValueEnum};
use serde::Serialize;

use brupop_core::cluster::Cluster;
use brupop_core::decide::{self, FleetDecision, Reason};
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::observe::{Leader, Observed};

pub use read::{PlanError, run};

/// What is asked of `plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// How to print it
    #[arg(long, short, default_value = "table")]
    pub output: Output,
    /// Namespace of the operator; by default that of the pod, or of the kubeconfig's context
    #[arg(long, short)]
    pub namespace: Option<String>,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what", content = "turn")]
pub enum Next {
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
    /// The version that it runs, as its agent says.
    pub version: Option<String>,
    /// The version that it is, or would be, updated to.
    pub target: Option<String>,
    /// What becomes of it.
    pub next: Next,
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

/// What a leader would know now. What its last admission probe saw is in the fleet's conditions.
fn leader<'a>(cluster: &Cluster, own_node: Option<&'a str>) -> Leader<'a> {
    let status = cluster.status();
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let is = |type_: &str, status: ConditionStatus| {
        conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
    };
    Leader {
        term: status.and_then(|status| status.term).unwrap_or(0),
        enforced: is(ADMISSION_ENFORCED, ConditionStatus::True),
        alone: !is(OTHER_OPERATOR, ConditionStatus::True),
        own_node,
    }
}

/// The plan, as these facts make it.
fn plan(observed: &Observed<'_>) -> Plan {
    let fleet = &observed.fleet;
    let FleetDecision { slots, nodes: decisions, .. } = decide::fleet(observed);
    let mut nexts: BTreeMap<usize, Next> =
        slots.taken.into_iter().map(|index| (index, Next::Starts)).collect();
    let candidates = decide::candidates(fleet, &observed.views).into_iter();
    let waits: Vec<usize> = candidates.filter(|index| !nexts.contains_key(index)).collect();
    nexts.extend(waits.into_iter().zip((1..).map(Next::Waits)));
    let decided = observed.views.iter().zip(&decisions).enumerate();
    let mut nodes: Vec<Row> = decided
        .map(|(index, (view, decision))| row(fleet, view, &decision.reason, nexts.get(&index).copied()))
        .collect();
    nodes.sort_by_key(|row| match row.next {
        Next::Running => (0, 0),
        Next::Starts => (1, 0),
        Next::Waits(turn) => (2, turn),
        Next::Stays => (3, 0),
    });
    let halted = fleet.versions.iter().filter(|(_, record)| record.halted.is_some());
    Plan {
        limit: fleet.limit,
        in_use: fleet.slots.len(),
        halted: halted.map(|(version, _)| shown(version, VERSION_MAX)).collect(),
        nodes,
    }
}

/// One node of the plan; `next` is what becomes of its update if it is a candidate.
fn row(fleet: &FleetFacts<'_>, view: &NodeView<'_>, reason: &Reason<'_>, next: Option<Next>) -> Row {
    let slot = view.slot(fleet).is_some();
    let next = match reason {
        Reason::NotUnderstood(_) => Next::Stays,
        _ if slot => Next::Running,
        _ => next.unwrap_or(Next::Stays),
    };
    let name = names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name);
    let version = view.shadow.and_then(|shadow| shadow.status.current_version);
    let target = view.shadow.and_then(|shadow| if slot { shadow.spec.version } else { shadow.update() });
    Row {
        node: shown(name, NAME_MAX),
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
    let halted =
        if plan.halted.is_empty() { String::new() } else { format!("; halted: {}", plan.halted.join(", ")) };
    let mut text = format!("{} of {} in update{halted}\n", plan.in_use, plan.limit);
    let head = ["NODE", "VERSION", "TARGET", "NEXT", "REASON", "MESSAGE"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(plan.nodes.iter().map(cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> [String; 6] {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let next = match row.next {
        Next::Running => "running".to_owned(),
        Next::Starts => "starts".to_owned(),
        Next::Waits(turn) => format!("waits ({turn})"),
        Next::Stays => "-".to_owned(),
    };
    [
        row.node.clone(),
        or_dash(&row.version),
        or_dash(&row.target),
        next,
        row.reason.to_owned(),
        row.message.clone(),
    ]
}

#[cfg(test)]
mod tests;
