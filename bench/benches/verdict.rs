//! What a review costs without the network: from its bytes to the bytes of the answer. `make bench-verdict` runs it.
//!
//! Built as shipped. Nobody subscribes to the log line here, so it costs next to nothing.

#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use brupop_bench_cases::review::{AGENT, STRANGER, review, review_of, shadow};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;
use brupop_webhook::verdict::Request;
use criterion::{Criterion, criterion_group, criterion_main};
use serde::Deserialize;
use serde_json::{Value, json};
use std::hint::black_box;

/// A review, as far as it is looked at.
#[derive(Deserialize)]
struct Question {
    #[allow(dead_code, reason = "it is parsed, and thrown away")]
    request: Request,
}

fn allowed(body: &[u8], metrics: &Metrics) -> bool {
    let answer: Value = serde_json::from_slice(&answer(body, metrics).unwrap()).unwrap();
    answer["response"]["allowed"].as_bool().unwrap()
}

fn reviews(criterion: &mut Criterion) {
    let metrics = Metrics::default();
    let report = review(AGENT, "staged 1.27.1");
    let foreign = review(STRANGER, "staged 1.27.1");
    // An object in etcd has at most 1.5 MiB, and a review has it twice.
    let mebibyte = "m".repeat(1 << 20);
    let mut annotated = shadow();
    annotated["metadata"]["annotations"] = json!({"example.com/notes": mebibyte});
    let largest = review_of(&annotated, AGENT, "staged 1.27.1");
    let huge = review(AGENT, &mebibyte);
    assert!(allowed(&report, &metrics), "the report is meant to be legal");
    assert!(!allowed(&foreign, &metrics), "a stranger is meant to be refused");
    assert!(allowed(&largest, &metrics), "what was there before is no fault of the agent");
    assert!(!allowed(&huge, &metrics), "a message of a mebibyte is meant to be refused");

    let cases = [
        ("report", &report),
        ("refusal", &foreign),
        ("largest-report", &largest),
        ("refused-message", &huge),
    ];
    for (name, body) in cases {
        criterion.bench_function(&format!("{name}-of-{}-bytes", body.len()), |bencher| {
            bencher.iter(|| answer(black_box(body), &metrics).unwrap());
        });
    }
    criterion.bench_function(&format!("parsing-the-report-of-{}-bytes", report.len()), |bencher| {
        bencher.iter(|| serde_json::from_slice::<Question>(black_box(&report)).unwrap());
    });
    criterion.bench_function(&format!("parsing-as-any-json-of-{}-bytes", report.len()), |bencher| {
        bencher.iter(|| serde_json::from_slice::<Value>(black_box(&report)).unwrap());
    });
}

criterion_group!(benches, reviews);
criterion_main!(benches);
