//! The table itself is as it should be read.

use super::table;
use crate::row::{Stored, Verdict};
use crate::{World, review};
use std::collections::BTreeSet;

#[test]
fn every_row_says_something_else() {
    let mut names = BTreeSet::new();
    for row in table() {
        assert!(names.insert(row.says.to_string()), "twice: {}", row.says);
    }
    println!(
        "{} rows, {} of them for the API server",
        names.len(),
        table()
            .iter()
            .filter(|row| row.is_for_the_api_server())
            .count()
    );
    assert!(names.len() >= 150);
}

#[test]
fn every_row_that_is_reviewed_names_its_rule() {
    for row in table() {
        assert!(
            review(&row).is_none() || row.rule().is_some(),
            "{}",
            row.says
        );
    }
}

#[test]
fn every_rule_refuses_in_some_row() {
    let refusing: BTreeSet<_> = table()
        .iter()
        .filter(|row| review(row).is_some())
        .filter_map(crate::Row::rule)
        .collect();
    let rules = "agent-identity agent-status-only agent-own-node agent-node-uid agent-own-fields agent-attempt \
        agent-transition agent-claim agent-managed-fields reconciler-create reconciler-transition \
        reconciler-owner reconciler-metadata reconciler-attempt reconciler-grant reconciler-check webhook-nothing \
        unknown-account unknown-kind unknown-request unreadable";
    for rule in rules.split(' ') {
        assert!(refusing.contains(rule), "no row is refused by {rule}");
    }
}

/// What the column says of rows that are allowed is what the change comes to, on paper.
#[test]
fn a_rows_stored_column_matches_its_edit() {
    for row in table() {
        if row.verdict != Verdict::Allowed
            || row.dry_run
            || !row.ask.is_about_a_shadow()
            || row.ask.creates()
        {
            continue;
        }
        let before = row.shadow(&World::on_paper());
        let Some(after) = row.after(&before) else {
            continue;
        };
        let unchanged = without_nulls(&after) == without_nulls(&before);
        let reviewed = row.as_if.is_null();
        assert!(
            !reviewed || unchanged == (row.stored == Stored::Unchanged),
            "{}: {after}",
            row.says
        );
    }
}

fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
    let mut kept = value.clone();
    for half in ["spec", "status"] {
        if let Some(fields) = kept
            .get_mut(half)
            .and_then(serde_json::Value::as_object_mut)
        {
            fields.retain(|_, value| !value.is_null());
        }
    }
    kept
}
