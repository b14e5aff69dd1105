//! The repeated computations of the operator: a pass of the reconciler, a verdict of the webhook.
//!
//! The benchmarks take times of these, which vary with the machine; `.ci/instructions` counts instructions, which do not.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a benchmark that cannot go on fails"
)]

pub mod fleet;

use std::hint::black_box;

use brupop_core::decide::Reason;
use brupop_core::observe::observe;
use brupop_core::observe::pools_at;
use brupop_core::status::progressing;
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;

use crate::fleet::{NOW, POOLS, policy, prepared};

/// The review that the API server sends to the webhook when an agent has staged an image.
const REVIEW: &str = include_str!("review.json");

/// Does something as often as is wanted, and counts or takes times meanwhile.
pub type Driver<'d> = &'d mut dyn FnMut(&mut dyn FnMut());
/// A name; and what makes ready for something, and hands it to a driver.
pub type Case = (&'static str, fn(Driver<'_>));

/// All cases.
pub const CASES: [Case; 3] = [
    ("pass", |drive| pass(POOLS, drive)),
    ("verdict-report", |drive| verdict(true, drive)),
    ("verdict-refusal", |drive| verdict(false, drive)),
];

/// A pass over 5,000 nodes with this many pools: from objects to facts, decisions, and the condition of each node.
pub fn pass(pools: usize, drive: Driver<'_>) {
    let ((cluster, leader), policy) = (prepared(pools), policy());
    let time = NOW.parse().expect("a time");
    let condition = |reason: &Reason<'_>| progressing(reason, &reason.message(), "");
    drive(&mut || {
        let pools = pools_at(black_box(&cluster), &leader, &policy, time);
        let observed = observe(&cluster, &leader, &pools, &policy, NOW);
        let decided = observed.decide();
        let nodes = decided.nodes.iter();
        nodes.for_each(|node| drop(black_box(condition(&node.reason))));
    });
}

/// The webhook's answer to the status patch of an agent, or of somebody else.
pub fn verdict(is_agent: bool, drive: Driver<'_>) {
    let (metrics, mut review) = (Metrics::default(), REVIEW.to_owned());
    if !is_agent {
        review = review.replace(":brupop-agent\"", ":default\"");
    }
    let is_allowed = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("\"allowed\":true");
    let first = answer(review.as_bytes(), &metrics).expect("an answer");
    assert_eq!(is_allowed(&first), is_agent);
    drive(&mut || {
        black_box(answer(black_box(review.as_bytes()), &metrics)).expect("an answer");
    });
}
