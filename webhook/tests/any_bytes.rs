//! Whatever bytes are sent: nothing panics, people may see what is answered and logged, and an answer belongs to its question.
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

use brupop_admission_cases::{review, table};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::{pools, review::answer};
use page::Page;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::cell::Cell;

/// Pointers to this value's members and items, and to those below them.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    let members: Vec<_> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, it)| (name.replace('/', "~1"), it))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(nth, it)| (nth.to_string(), it))
            .collect(),
        _ => vec![],
    };
    for (name, member) in members {
        let place = format!("{at}/{name}");
        self::places(member, &place, places);
        places.push(place);
    }
}

/// Texts that a terminal would obey, or that are too long for people, and other values that are none.
fn values() -> impl Strategy<Value = Value> {
    let hostile = [
        "\u{1b}[2J\nallowed \u{9b}",
        "\u{202e}\u{2028}\u{feff}\u{7f}",
        "\" rule=agent-report \"",
        "é",
    ];
    let text = (
        prop::sample::select(hostile.to_vec()),
        prop_oneof![Just(1), Just(3), Just(3000)],
    );
    let text = text.prop_map(|(text, times)| text.repeat(times));
    prop_oneof![
        text.prop_flat_map(|text| {
            let deep = json!({text.as_str(): {text.as_str(): [text.as_str()]}});
            prop::sample::select(vec![json!(text), json!([text.as_str()]), deep])
        }),
        prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(-1),
            json!(u64::MAX),
            json!(0.5),
            json!([]),
            json!({})
        ]),
    ]
}

/// Bytes from nowhere; a row's review with some of its values replaced; and such a review with bytes in it replaced.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let reviews: Vec<Value> = table().iter().filter_map(review).collect();
    let edits = prop::collection::vec((any::<Index>(), values()), 0..3);
    let edited = (prop::sample::select(reviews), edits)
        .prop_map(|(mut review, edits)| {
            for (place, value) in edits {
                let mut places = Vec::new();
                self::places(&review["request"], "/request", &mut places);
                *review
                    .pointer_mut(&places[place.index(places.len())])
                    .unwrap() = value;
            }
            review.to_string().into_bytes()
        })
        .boxed();
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let broken = (edited.clone(), any::<Index>(), bytes()).prop_map(|(mut body, at, bytes)| {
        let at = at.index(body.len());
        let end = body.len().min(at + 5);
        body.splice(at..end, bytes);
        body
    });
    prop_oneof![1 => bytes(), 6 => edited, 2 => broken]
}

/// Whether the text would do more in a terminal than be read.
fn is_hostile(text: &str) -> bool {
    text.contains(|it: char| it.is_control() || ['\u{202e}', '\u{2028}', '\u{feff}'].contains(&it))
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => vec![],
    }
}

#[test]
fn any_bytes_are_answered_and_logged_printably() {
    let answered = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let run = runner.run(&bodies(), |body| {
        let page = Page::default();
        let writer = page.clone();
        let dispatch = brupop_runtime::logs::dispatch(|_| None, move || writer.clone()).unwrap();
        // Each is the first that is asked, so its line is not left out.
        let metrics = Metrics::default();
        let answer = tracing::dispatcher::with_default(&dispatch, || answer(&body, &metrics));
        let _ = pools::answer(&body, "ns", &Metrics::default());
        match answer {
            Ok(bytes) => {
                answered.set(answered.get() + 1);
                let answer: Value = serde_json::from_slice(&bytes).unwrap();
                // The verdict skips unused fields, which a strict parser might refuse.
                if let Ok(asked) = serde_json::from_slice::<Value>(&body) {
                    prop_assert_eq!(&answer["response"]["uid"], &asked["request"]["uid"]);
                }
                let flawed = texts(&answer)
                    .into_iter()
                    .find(|it| it.len() > 4096 || is_hostile(it));
                prop_assert_eq!(flawed, None);
            }
            Err(error) => prop_assert!(!is_hostile(&error.to_string())),
        }
        let logged = page.text();
        let line = logged.strip_suffix('\n').unwrap();
        prop_assert!(!is_hostile(line) && line.len() < 16 * 1024, "{}", line);
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    let answered = answered.get();
    assert!(
        answered > 1_000,
        "only {answered} bodies are reviews: they try nothing"
    );
}
