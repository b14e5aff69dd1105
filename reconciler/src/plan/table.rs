//! A plan for people.

use super::{Next, Plan, Row};

/// The plan as lines of columns.
pub(super) fn of(plan: &Plan) -> String {
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
