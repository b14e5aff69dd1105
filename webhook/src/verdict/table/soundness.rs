//! Whatever is asked: what is allowed is the caller's own, by an oracle that shares no code with the verdict.

use crate::verdict::{Change, Rule, ShadowRequest, Verdict, verdict};
use brupop_admission_cases::edit::{Edit, Place, Side, apply, telling_values};
use brupop_admission_cases::oracle::objection;
use brupop_admission_cases::{review, table};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::cell::Cell;

fn reviews() -> Vec<Value> {
    table().iter().filter_map(review).collect()
}

/// Nothing, if it is no request: then it is refused.
fn judge(review: &Value) -> Option<Verdict> {
    let request: ShadowRequest = serde_json::from_value(review["request"].clone()).ok()?;
    Some(verdict(&request, &Change::of(&request)))
}

fn allowed(review: &Value) -> Option<Rule> {
    judge(review)?.outcome.ok()
}

#[test]
fn verdict_and_oracle_agree_on_every_row() {
    // Not about whose something is, but about what can be read.
    let no_objection = [Rule::Unreadable, Rule::UnknownKind];
    for row in table() {
        let Some(review) = review(&row) else { continue };
        let objection = objection(&review);
        match judge(&review).map(|verdict| verdict.outcome) {
            Some(Ok(rule)) => assert_eq!(objection, None, "{}: {rule:?}", row.says),
            Some(Err(refusal)) => {
                let foreign = objection.is_some() || no_objection.contains(&refusal.rule);
                assert!(
                    foreign,
                    "{}: is refused by {refusal}, but the oracle lets it pass",
                    row.says
                );
            }
            None => {}
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// A row's review with some edits.
fn edited() -> impl Strategy<Value = Value> {
    let (rows, values) = (reviews(), telling_values());
    let row = prop::sample::select(rows);
    let edit = prop_oneof![
        1 => Just(Edit::Remove),
        2 => Just(Edit::Undo),
        2 => row.clone().prop_map(Edit::AsIn),
        4 => prop::sample::select(values).prop_map(Edit::Set),
        1 => any_json().prop_map(Edit::Set),
    ];
    let side = prop::sample::select(vec![Side::New, Side::Old, Side::Both]);
    let edits = prop::collection::vec((any::<u8>().prop_map(Place), side, edit), 0..5);
    (row, edits).prop_map(|(mut review, edits)| {
        for (place, side, edit) in edits {
            apply(&mut review, place, side, &edit);
        }
        review
    })
}

/// Runs this many cases, and says how many of them our own accounts were allowed.
fn nothing_foreign_is_allowed(cases: u32, reviews: &impl Strategy<Value = Value>) -> u32 {
    let ours = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let run = runner.run(reviews, |review| {
        let Some(rule) = allowed(&review) else {
            return Ok(());
        };
        ours.set(ours.get() + u32::from(rule != Rule::Outsider));
        prop_assert_eq!(
            objection(&review),
            None,
            "{} allows {}",
            rule.as_str(),
            review
        );
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    ours.get()
}

#[test]
fn rows_with_edits() {
    let allowed = nothing_foreign_is_allowed(6_000, &edited());
    assert!(
        allowed > 300,
        "only {allowed} edited rows are allowed: they try nothing"
    );
}

fn small_value() -> impl Strategy<Value = Value> {
    let condition = json!([{"type": "Progressing", "status": "True", "reason": "A", "message": "", "lastTransitionTime": ""}]);
    prop_oneof![
        Just(Value::Null),
        prop::sample::select(vec![
            "b1",
            "b2",
            "Idle",
            "RebootedIntoUpdate",
            "ErrorReset",
            "StepFailed"
        ])
        .prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        prop::sample::select(vec![
            json!([]),
            condition,
            json!({"version": "1.1.0", "at": "t"})
        ]),
    ]
}

fn half(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(prop::sample::select(names), small_value(), 0..5)
        .prop_map(|map| json!(map))
}

fn spec() -> impl Strategy<Value = Value> {
    let state = prop::sample::select(vec![
        "Idle",
        "StagedAndPerformedUpdate",
        "RebootedIntoUpdate",
    ]);
    let fields = half(&[
        "attempt",
        "reboot_granted_boot_id",
        "version",
        "baseline_boot_id",
        "leader_term",
    ]);
    (state, fields).prop_map(|(state, mut spec)| {
        spec["state"] = json!(state);
        spec
    })
}

fn status() -> impl Strategy<Value = Value> {
    half(&[
        "current_version",
        "current_state",
        "attempt",
        "boot_id",
        "staged",
        "reboot_claimed_boot_id",
        "problem",
        "message",
        "pool",
        "conditions",
        "foreign",
    ])
}

/// Specs and statuses that no row has, in the first row that this rule allows. Most random pairs differ in what is
/// foreign; so every other one differs in one half only.
fn random_halves(rule: Rule) -> impl Strategy<Value = Value> {
    let base = reviews()
        .into_iter()
        .find(|review| allowed(review) == Some(rule))
        .unwrap();
    let same = prop::sample::select(vec!["spec", "status", "neither"]);
    (spec(), spec(), status(), status(), same).prop_map(move |(before, after, old, new, same)| {
        let mut review = base.clone();
        for (object, spec, status) in [("oldObject", &before, &old), ("object", &after, &new)] {
            review["request"][object]["spec"] = if same == "spec" { &before } else { spec }.clone();
            review["request"][object]["status"] =
                if same == "status" { &old } else { status }.clone();
        }
        let before = review["request"]["oldObject"]["status"].clone();
        if rule == Rule::AgentReport && same == "spec" {
            for field in ["pool", "conditions", "foreign"] {
                review["request"]["object"]["status"][field] = before[field].clone();
            }
        }
        review
    })
}

#[test]
fn random_reports_of_an_agent() {
    let allowed = nothing_foreign_is_allowed(3_000, &random_halves(Rule::AgentReport));
    assert!(
        allowed > 30,
        "only {allowed} random reports are allowed: they try nothing"
    );
}

#[test]
fn random_specs_of_the_reconciler() {
    let allowed = nothing_foreign_is_allowed(3_000, &random_halves(Rule::ReconcilerSteer));
    assert!(
        allowed > 50,
        "only {allowed} random specs are allowed: they try nothing"
    );
}
