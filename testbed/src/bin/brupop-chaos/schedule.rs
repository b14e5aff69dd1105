//! How the operator is set, and which faults come when: a pure function of the seed; and as text, one fault a line.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::gateways::Weather;
use brupop_testbed::host::{Answer, Call, Command};
use serde_json::json;

use crate::fault::{Fault, Plan, Process, Settings, Step};
use crate::pools::{self, POOLS};
use crate::random::Random;
use crate::world::NODES;

/// Releases, when they come, in per cent of the time, and whether they are bad.
const RELEASES: [(&str, u64, bool); 3] = [
    ("1.20.0", 3, false),
    ("1.21.0", 35, true),
    ("1.22.0", 60, false),
];

/// The last release, which is published when the faults have stopped.
pub(crate) const LAST: &str = "1.30.0";
/// Between two faults, in milliseconds.
const GAP: Range<u64> = 300..2_200;
/// How old the snapshot is from which etcd is restored, in milliseconds.
const RESTORED_AFTER: Range<u64> = 2_000..20_000;

/// Deployments and the like with a budget; see `world.rs`.
const BUDGETS: [&str; 4] = ["cart", "web", "db", "queue"];
/// Workloads that people scale and roll out while nodes are updated.
const CHANGED: [&str; 3] = ["cart", "cache", "db"];
/// Deployments that may get another budget: one that has one, and one that has none.
const BUDGETED_LATER: [&str; 2] = ["cart", "cache"];

/// Returns what follows from a seed. Every second seed has pools; in every third one etcd is restored now and then.
pub(crate) fn plan(seed: u64, length: Duration) -> Plan {
    let mut random = Random::new(seed);
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let few = (3, [2, 4]);
    // So many that what is kept of the last few may not be enough.
    let many = (12, [8, 8]);
    let (limit, failures) = if random.within(0..3) == 0 { many } else { few };
    let pools = seed.is_multiple_of(2);
    let settings = Settings {
        limit,
        failures,
        exclusion: random.within(0..2),
        pools,
    };
    let mut steps: Vec<Step> = RELEASES
        .map(|(version, percent, bad)| Step {
            at: length * percent / 100,
            fault: Fault::Publish {
                version: version.to_owned(),
                bad,
            },
        })
        .into();
    let mut at = 1_000;
    while at < length {
        steps.push(Step {
            at,
            fault: fault(&mut random),
        });
        at += random.within(GAP);
    }
    if pools {
        steps.extend(pools::steps(&mut random, length));
    }
    if seed % 3 == 2 {
        let mut at = random.within(20_000..60_000);
        // Before the other faults stop.
        while at + RESTORED_AFTER.end < length {
            steps.push(Step {
                at,
                fault: Fault::Restore {
                    ms: random.within(RESTORED_AFTER),
                },
            });
            at += random.within(90_000..150_000);
        }
    }
    steps.sort_by_key(|step| step.at);
    Plan { settings, steps }
}

/// Makes a fault of one kind.
type Make = fn(&mut Random) -> Fault;

/// How often each kind comes, and how it is made. What has found something, or is likely to, comes more often.
const KINDS: [(u64, Make); 47] = [
    (12, |random| Fault::Kill {
        process: process(random),
    }),
    (12, |random| Fault::Freeze {
        process: process(random),
        ms: random.within(500..9_000),
    }),
    (4, |random| Fault::DeletePod {
        process: process(random),
    }),
    (3, |random| Fault::KillPlane {
        program: plane(random),
        ms: random.within(200..5_000),
    }),
    (3, |random| Fault::FreezePlane {
        program: plane(random),
        ms: random.within(200..5_000),
    }),
    (16, |random| Fault::Network {
        process: process(random),
        weather: *random.one(&[Weather::Slow, Weather::Silent, Weather::Deaf, Weather::Shut]),
        ms: random.within(500..12_000),
    }),
    (3, |random| Fault::WebhookUnreachable {
        ms: random.within(500..8_000),
    }),
    (12, |random| Fault::HostAnswers {
        node: node(random),
        call: *random.one(&CALLS),
        answer: answer(random),
        ms: random.within(500..10_000),
    }),
    (6, |random| Fault::CommandFails {
        node: node(random),
        command: *random.one(&COMMANDS),
        ms: random.within(500..8_000),
    }),
    (3, |random| Fault::FallsBack {
        node: node(random),
        ms: random.within(2_000..15_000),
    }),
    (3, |random| Fault::RebootIgnored {
        node: node(random),
        ms: random.within(2_000..15_000),
    }),
    (4, |random| Fault::StaysDown {
        node: node(random),
        ms: random.within(3_000..40_000),
    }),
    (3, |random| Fault::NobodyReturns {
        ms: random.within(15_000..60_000),
    }),
    (6, |random| Fault::Reboots { node: node(random) }),
    (3, |random| Fault::ApiRestarts {
        node: node(random),
        ms: random.within(100..4_000),
    }),
    (3, |random| Fault::Recreate { node: node(random) }),
    (2, |random| Fault::Leave {
        node: node(random),
        ms: random.within(2_000..15_000),
    }),
    (4, |random| Fault::Throttled {
        ms: random.within(500..6_000),
    }),
    (5, |random| Fault::Refused {
        ms: random.within(500..6_000),
    }),
    (3, |random| {
        let limit = random.one::<&str>(&["1", "2", "3", "4", "6"]);
        configure("reconciler", "MAX_CONCURRENT_UPDATE", limit)
    }),
    (8, |random| Fault::Cordon {
        node: node(random),
        ms: random.within(2_000..50_000),
    }),
    (4, |random| Fault::Uncordon { node: node(random) }),
    (2, |random| Fault::Drain {
        node: node(random),
        ms: random.within(2_000..15_000),
    }),
    (3, |random| Fault::PauseNode {
        node: node(random),
        ms: random.within(1_000..15_000),
    }),
    (3, |random| Fault::PauseFleet {
        ms: random.within(500..12_000),
    }),
    (3, |_| Fault::ResumeVersions),
    (2, |_| Fault::DeleteFleet),
    (3, |random| Fault::Unlabel {
        node: node(random),
        ms: random.within(1_000..15_000),
    }),
    (2, |random| Fault::UpdateNow {
        node: node(random),
        ms: random.within(5_000..20_000),
    }),
    (4, |random| Fault::EditStatus {
        node: node(random),
        status: match random.within(0..4) {
            0 => json!({"crash_count": 7}),
            1 => json!({"target_version": null}),
            2 => json!({"current_state": "Idle"}),
            _ => json!({"attempt": null}),
        },
    }),
    (5, |random| Fault::DeleteShadow { node: node(random) }),
    (4, |random| Fault::CloseBudget {
        workload: (*random.one(&BUDGETS)).to_owned(),
        ms: random.within(1_000..20_000),
    }),
    (3, |random| Fault::UnmanagedPod {
        node: node(random),
        ms: random.within(1_000..20_000),
    }),
    (2, |random| Fault::UnreadableMarker {
        node: node(random),
        ms: random.within(1_000..20_000),
    }),
    (4, |random| Fault::CommandHangs {
        node: node(random),
        command: *random.one(&COMMANDS),
        ms: random.within(1_000..15_000),
    }),
    (4, |random| Fault::CommandLasts {
        node: node(random),
        command: *random.one(&COMMANDS),
        ms: random.within(1_000..30_000),
    }),
    (4, |random| Fault::EditSpec {
        node: node(random),
        // The update is not wanted any more, or is to be another version, which no host knows.
        spec: match random.within(0..2) {
            0 => json!({"state": "Idle"}),
            _ => json!({"version": "1.19.9"}),
        },
    }),
    (4, |random| Fault::Relabel {
        node: node(random),
        pool: (*random.one(&POOLS)).to_owned(),
        ms: random.within(5_000..40_000),
    }),
    (4, |random| Fault::AnotherBudget {
        workload: (*random.one(&BUDGETED_LATER)).to_owned(),
        unreadable: random.within(0..2) == 0,
        ms: random.within(5_000..20_000),
    }),
    (6, |random| Fault::Scale {
        workload: (*random.one(&CHANGED)).to_owned(),
        replicas: *random.one(&[2, 6, 20, 40]),
        ms: random.within(3_000..25_000),
    }),
    (4, |random| Fault::BadRollOut {
        workload: (*random.one(&CHANGED)).to_owned(),
        ms: random.within(5_000..25_000),
    }),
    (4, |random| Fault::Unhealthy {
        workload: (*random.one(&BUDGETS)).to_owned(),
        pods: *random.one(&[1, 2, 4]),
        ms: random.within(5_000..30_000),
    }),
    (4, |random| Fault::StuckPod {
        node: node(random),
        ms: random.within(5_000..40_000),
    }),
    (4, |random| Fault::ApiHangs {
        node: node(random),
        ms: random.within(3_000..25_000),
    }),
    (4, |random| Fault::RemovedWhenUpdated {
        node: node(random),
        ms: random.within(12_000..25_000),
    }),
    (4, |random| Fault::ClockAhead { node: node(random) }),
    (2, |random| {
        let prefetch = random.one::<&str>(&["true", "false"]);
        configure("agent", "PREFETCH", prefetch)
    }),
];

fn configure(component: &str, setting: &str, value: &str) -> Fault {
    let [component, setting, value] = [component, setting, value].map(str::to_owned);
    Fault::Configure {
        component,
        setting,
        value,
    }
}

const COMMANDS: [Command; 3] = [Command::Refresh, Command::Prepare, Command::Activate];
pub(crate) const CALLS: [Call; 7] = [
    Call::Os,
    Call::Status,
    Call::Action(Command::Refresh),
    Call::Action(Command::Prepare),
    Call::Action(Command::Activate),
    Call::Action(Command::Deactivate),
    Call::Reboot,
];

fn answer(random: &mut Random) -> Answer {
    let why = || "a fault was made\u{1b}[2J".to_owned();
    match random.within(0..8) {
        0 => Answer::Locked,
        1 => Answer::NotFound(why()),
        2 => Answer::NotAllowed(why()),
        3 => Answer::Refused(why()),
        4 => Answer::Nonsense("{\"a\": 1}".to_owned()),
        5 => Answer::Half,
        6 => Answer::Hang,
        _ => Answer::Lost,
    }
}

fn fault(random: &mut Random) -> Fault {
    let all: u64 = KINDS.iter().map(|(weight, _)| weight).sum();
    let mut drawn = random.within(0..all);
    for (weight, make) in &KINDS {
        if drawn < *weight {
            return make(random);
        }
        drawn -= weight;
    }
    Fault::Reboots { node: 0 }
}

fn node(random: &mut Random) -> usize {
    below(random, NODES)
}

fn below(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.within(0..u64::try_from(count).unwrap_or(1))).unwrap_or(0)
}

fn process(random: &mut Random) -> Process {
    match random.within(0..10) {
        0..4 => Process::Leader,
        4 => Process::Reconciler(below(random, 2)),
        5 | 6 => Process::Webhook(below(random, 2)),
        _ => Process::Agent(node(random)),
    }
}

/// Programs of the control plane; those that matter most more often.
const PROGRAMS: [&str; 6] = [
    "kube-apiserver",
    "kube-apiserver",
    "etcd",
    "etcd",
    "kube-controller-manager",
    "kube-scheduler",
];

fn plane(random: &mut Random) -> String {
    (*random.one(&PROGRAMS)).to_owned()
}

/// As text: a line for the settings, and one for each fault.
pub(crate) fn print(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(serde_json::to_string);
    let lines = [serde_json::to_string(&plan.settings)]
        .into_iter()
        .chain(steps);
    lines.map(|line| line.unwrap_or_default() + "\n").collect()
}

pub(crate) fn parse(text: &str) -> Result<Plan> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().context("an empty schedule")?;
    let settings: Settings = serde_json::from_str(first).with_context(|| first.to_owned())?;
    let steps = lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    Ok(Plan {
        settings,
        steps: steps.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_follows_from_its_seed_and_survives_being_written() {
        let long = Duration::from_hours(1);
        let (seven, eight) = (plan(7, long), plan(8, long));
        assert_eq!(seven, plan(7, long));
        let count = |plan: &Plan, kind: &str| {
            plan.steps
                .iter()
                .filter(|step| step.fault.kind() == kind)
                .count()
        };
        assert!(count(&seven, "pool") == 0 && count(&eight, "pool") > 100);
        assert!(count(&seven, "restore") == 0 && count(&eight, "restore") > 20);
        assert!(eight.steps.is_sorted_by_key(|step| step.at));
        assert_eq!(parse(&print(&eight)).unwrap(), eight);
        let kinds: std::collections::BTreeSet<_> =
            eight.steps.iter().map(|step| step.fault.kind()).collect();
        // Releases, changes of pools and restores are not in the list, and settings of two components are twice.
        assert_eq!(kinds.len(), KINDS.len() + 3 - 1, "{kinds:?}");
    }
}
