//! What is computed again and again: a pass of the reconciler, a verdict of the webhook, a step of the agent.
//!
//! The benchmarks take times of these, which vary with the machine; `.ci/instructions` counts instructions, which do not.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a benchmark that cannot go on fails"
)]

pub mod agent;
pub mod fleet;
pub mod review;

use std::hint::black_box;

use brupop_core::decide::{Decisions, Reason};
use brupop_core::observe::observe;
use brupop_core::observe::pools_at;
use brupop_core::status::DesiredCondition;
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;

use crate::agent::Agent;
use crate::fleet::{POOLS, now, policy, prepared};
use crate::review::{AGENT, STRANGER, review};

/// Does something as often as is wanted, and counts or takes times meanwhile.
pub type Driver<'d> = &'d mut dyn FnMut(&mut dyn FnMut());
/// A name; and what makes ready for something, and hands it to a driver.
pub type Case = (&'static str, fn(Driver<'_>));

pub const CASES: [Case; 7] = [
    ("pass-observe", |drive| pass(Part::Observe, POOLS, drive)),
    ("pass-decide", |drive| pass(Part::Decide, POOLS, drive)),
    ("pass-say-why", |drive| pass(Part::SayWhy, POOLS, drive)),
    ("verdict-report", |drive| verdict(AGENT, drive)),
    ("verdict-refusal", |drive| verdict(STRANGER, drive)),
    ("agent-waits", |drive| step(&Agent::that_waits(), drive)),
    ("agent-reports", |drive| step(&Agent::that_reports(), drive)),
];

/// A part of a pass of the reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Observe,
    Decide,
    SayWhy,
}

/// The condition of each node.
pub fn say_why(decided: &Decisions<'_>) -> Vec<DesiredCondition> {
    let say = |reason: &Reason<'_>| DesiredCondition::progressing(reason, &reason.message(), "");
    decided.nodes.iter().map(|node| say(&node.reason)).collect()
}

/// A part of a pass over 5,000 nodes with this many pools.
pub fn pass(part: Part, pools: usize, drive: Driver<'_>) {
    let ((cluster, leader), policy, now) = (prepared(pools), policy(), now());
    if part == Part::Observe {
        return drive(&mut || {
            let pools = pools_at(black_box(&cluster), &leader, &policy, now.time);
            black_box(observe(&cluster, &leader, &pools, &policy, now));
        });
    }
    let pools = pools_at(&cluster, &leader, &policy, now.time);
    let observed = observe(&cluster, &leader, &pools, &policy, now);
    if part == Part::Decide {
        return drive(&mut || {
            black_box(black_box(&observed).decide());
        });
    }
    let decided = observed.decide();
    drive(&mut || {
        black_box(say_why(black_box(&decided)));
    });
}

/// The webhook's answer to a status patch of this user.
fn verdict(user: &str, drive: Driver<'_>) {
    let (metrics, review) = (Metrics::default(), review(user, "staged 1.27.1"));
    drive(&mut || {
        black_box(answer(black_box(&review), &metrics)).expect("an answer");
    });
}

fn step(agent: &Agent, drive: Driver<'_>) {
    drive(&mut || {
        black_box(black_box(agent).step());
    });
}
