//! What is computed again and again: a pass of the reconciler, a verdict of the webhook, a step of the agent.
//!
//! The benchmarks take times of these, which vary with the machine; `.ci/instructions` counts instructions, which do not.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a benchmark that cannot go on fails")]

pub mod agent;
pub mod fleet;
pub mod review;

use std::hint::black_box;

use brupop_core::decide::{self, FleetDecision};
use brupop_core::observe::observe;
use brupop_core::status::DesiredCondition;
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;

use crate::agent::Agent;
use crate::fleet::{LEADER, POOLS, now, policy, prepared};
use crate::review::{AGENT, STRANGER, review};

/// A name, and what does it so many times.
pub type Case = (&'static str, fn(usize));

/// All cases.
pub const CASES: [Case; 7] = [
    ("pass-observe", |times| pass(times, 0, 0)),
    ("pass-decide", |times| pass(1, times, 0)),
    ("pass-say-why", |times| pass(1, 1, times)),
    ("verdict-report", |times| verdict(AGENT, times)),
    ("verdict-refusal", |times| verdict(STRANGER, times)),
    ("agent-waits", |times| steps(&Agent::that_waits(), times)),
    ("agent-reports", |times| steps(&Agent::that_reports(), times)),
];

/// The condition of each node.
pub fn say_why(decided: &FleetDecision<'_>) -> Vec<DesiredCondition> {
    let say = |reason: &decide::Reason<'_>| {
        DesiredCondition::progressing(reason.status(), reason.as_str(), &reason.message())
    };
    decided.nodes.iter().map(|node| say(&node.reason)).collect()
}

/// The three parts of a pass over 5,000 nodes with 50 pools, each so many times.
fn pass(looks: usize, decisions: usize, sentences: usize) {
    let (cluster, policy, now) = (prepared(POOLS), policy(), now());
    let pools = || black_box(&cluster).pools_at(now.time);
    for _ in 0..looks {
        let pools = pools();
        black_box(observe(&cluster, &pools, &policy, &LEADER, now));
    }
    if decisions == 0 {
        return;
    }
    let pools = pools();
    let observed = observe(&cluster, &pools, &policy, &LEADER, now);
    for _ in 0..decisions {
        black_box(decide::fleet(black_box(&observed)));
    }
    if sentences == 0 {
        return;
    }
    let decided = decide::fleet(&observed);
    for _ in 0..sentences {
        black_box(say_why(black_box(&decided)));
    }
}

fn verdict(user: &str, times: usize) {
    let (metrics, review) = (Metrics::default(), review(user, "staged 1.27.1"));
    for _ in 0..times {
        black_box(answer(black_box(&review), &metrics)).expect("an answer");
    }
}

fn steps(agent: &Agent, times: usize) {
    for _ in 0..times {
        black_box(black_box(agent).step());
    }
}
