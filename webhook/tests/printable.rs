//! Whatever is asked: people may see what is answered, and what is logged of it.
//!
//! The test has a program of its own. `tracing` remembers for each call site whether anybody listens, and a test beside it,
//! which logs from the same place to nobody, could be the one that is remembered.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "../../runtime/src/logs/tests/page.rs"]
mod page;

use brupop_admission_cases::edit::{Edit, Place, Side, apply};
use brupop_admission_cases::oracle::flaw;
use brupop_admission_cases::{review, table};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;
use page::Page;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::cell::Cell;

/// A review with texts in it that a terminal would obey, or that are too long for people.
fn hostile() -> impl Strategy<Value = Value> {
    let hostile = [
        "\u{1b}[2J\nallowed \u{9b}",
        "\u{202e}\u{2028}\u{feff}\u{7f}",
        "\" rule=agent-report \"",
        "é",
    ];
    let text = (
        prop::sample::select(hostile.to_vec()),
        prop_oneof![Just(1), Just(3), Just(3000)],
    )
        .prop_map(|(text, times)| text.repeat(times));
    let value = text.prop_flat_map(|text| {
        let deep = json!({text.as_str(): {text.as_str(): [text.as_str()]}});
        prop::sample::select(vec![json!(text), json!([text.as_str()]), deep])
    });
    let side = prop::sample::select(vec![Side::New, Side::Old, Side::Both]);
    let edits = prop::collection::vec(
        (any::<u8>().prop_map(Place), side, value.prop_map(Edit::Set)),
        1..3,
    );
    let reviews: Vec<Value> = table().iter().filter_map(review).collect();
    (prop::sample::select(reviews), edits).prop_map(|(mut review, edits)| {
        for (place, side, edit) in edits {
            apply(&mut review, place, side, &edit);
        }
        review
    })
}

#[test]
fn answers_and_log_lines_are_always_printable() {
    let answered = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let run = runner.run(&hostile(), |review| {
        let page = Page::default();
        let writer = page.clone();
        let dispatch = brupop_runtime::logs::dispatch(|_| None, move || writer.clone()).unwrap();
        let body = review.to_string();
        // Each is the first that is asked, so its line is not left out.
        let metrics = Metrics::default();
        let answer =
            tracing::dispatcher::with_default(&dispatch, || answer(body.as_bytes(), &metrics));
        answered.set(answered.get() + u32::from(answer.is_ok()));
        let answer = answer.map_or_else(
            |error| error.to_string(),
            |bytes| String::from_utf8(bytes).unwrap(),
        );
        prop_assert_eq!(flaw(&answer), None);
        let logged = page.text();
        prop_assert_eq!(flaw(logged.trim_end_matches('\n')), None);
        prop_assert_eq!(logged.matches('\n').count(), 1, "{}", logged);
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        answered.get() > 1_000,
        "only {} hostile reviews are answered: they try nothing",
        answered.get()
    );
}
