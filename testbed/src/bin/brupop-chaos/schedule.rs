//! The settings of the operator and the schedule of faults: a pure function of the seed, and a text with one fault a line.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::gateways::Weather;
use brupop_testbed::host::{Answer, Call, Command};
use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::fault::{Fault, Plan, Process, Settings, Step};
use crate::world::{BUDGETED, NODES};

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
/// Age of the snapshot from which etcd is restored, in milliseconds.
const RESTORED_AFTER: Range<u64> = 2_000..20_000;

/// Makes the plan of a seed. With every third seed, etcd is sometimes restored.
pub(crate) fn plan(seed: u64, length: Duration) -> Plan {
    let mut random = Rng::with_seed(seed);
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let few = (3, [2, 4]);
    // So many that what is kept of the last few may not be enough.
    let many = (12, [8, 8]);
    let (limit, failures) = if random.u64(0..3) == 0 { many } else { few };
    let settings = Settings {
        limit,
        failures,
        exclusion: random.u64(0..2),
    };
    let release = |(version, percent, bad): (&str, u64, bool)| Step {
        at: length * percent / 100,
        fault: Fault::Publish {
            version: version.to_owned(),
            bad,
        },
    };
    let mut steps = RELEASES.map(release).to_vec();
    let mut at = 1_000;
    while at < length {
        let fault = fault(&mut random);
        steps.push(Step { at, fault });
        at += random.u64(GAP);
    }
    if seed % 3 == 2 {
        let mut at = random.u64(20_000..60_000);
        // Before the other faults stop.
        while at + RESTORED_AFTER.end < length {
            let ms = random.u64(RESTORED_AFTER);
            let fault = Fault::Restore { ms };
            steps.push(Step { at, fault });
            at += random.u64(90_000..150_000);
        }
    }
    steps.sort_by_key(|step| step.at);
    Plan { settings, steps }
}

/// Makes a fault of one kind.
type Make = fn(&mut Rng) -> Fault;

/// The weight of each kind of fault, and its maker. Kinds that have found bugs, or are likely to, have more weight.
const KINDS: [(u64, Make); 20] = [
    (14, |random| Fault::Kill {
        process: process(random),
    }),
    (14, |random| Fault::Freeze {
        process: process(random),
        ms: random.u64(500..9_000),
    }),
    (4, |random| Fault::Limit {
        limit: one(random, &[1, 2, 3, 4, 6]),
    }),
    (8, |random| Fault::Plane {
        program: one(random, &PROGRAMS).to_owned(),
        killed: random.bool(),
        ms: random.u64(200..5_000),
    }),
    (18, |random| Fault::Network {
        process: process(random),
        weather: one(
            random,
            &[Weather::Slow, Weather::Silent, Weather::Deaf, Weather::Shut],
        ),
        ms: random.u64(500..12_000),
    }),
    (3, |random| Fault::WebhookUnreachable {
        ms: random.u64(500..8_000),
    }),
    (6, |random| Fault::Refused {
        ms: random.u64(500..6_000),
    }),
    (18, |random| Fault::HostAnswers {
        node: node(random),
        call: one(random, &CALLS),
        answer: answer(random),
        ms: random.u64(500..15_000),
    }),
    (10, |random| Fault::CommandFails {
        node: node(random),
        command: one(
            random,
            &[Command::Refresh, Command::Prepare, Command::Activate],
        ),
        silently: random.bool(),
        ms: random.u64(500..15_000),
    }),
    (4, |random| Fault::RebootIgnored {
        node: node(random),
        ms: random.u64(2_000..15_000),
    }),
    (6, |random| Fault::StaysDown {
        node: node(random),
        ms: random.u64(3_000..40_000),
    }),
    (6, |random| Fault::Reboots { node: node(random) }),
    (6, |random| Fault::Leave {
        node: node(random),
        ms: random.u64(100..15_000),
    }),
    (4, |random| Fault::Unlabel {
        node: node(random),
        ms: random.u64(1_000..15_000),
    }),
    (8, |random| Fault::Edit {
        node: node(random),
        patch: one(random, &edits()),
    }),
    (5, |random| Fault::DeleteShadow { node: node(random) }),
    (2, |_| Fault::DeleteFleet),
    (8, |random| Fault::Cordon {
        node: node(random),
        ms: random.u64(2_000..50_000),
    }),
    (4, |random| Fault::Uncordon { node: node(random) }),
    (6, |random| Fault::CloseBudget {
        workload: one(random, &BUDGETED).to_owned(),
        ms: random.u64(1_000..20_000),
    }),
];

const CALLS: [Call; 7] = [
    Call::Os,
    Call::Status,
    Call::Action(Command::Refresh),
    Call::Action(Command::Prepare),
    Call::Action(Command::Activate),
    Call::Action(Command::Deactivate),
    Call::Reboot,
];

fn answer(random: &mut Rng) -> Answer {
    let why = || "a fault was made\u{1b}[2J".to_owned();
    match random.u64(0..8) {
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

/// The edits of shadows by people. The reconciler overwrites a spec without an update, or with an unknown version.
fn edits() -> [Json; 6] {
    [
        json!({"status": {"crash_count": 7}}),
        json!({"status": {"target_version": null}}),
        json!({"status": {"current_state": "Idle"}}),
        json!({"status": {"attempt": null}}),
        json!({"spec": {"state": "Idle"}}),
        json!({"spec": {"version": "1.19.9"}}),
    ]
}

fn fault(random: &mut Rng) -> Fault {
    let mut drawn = random.u64(0..KINDS.iter().map(|(weight, _)| weight).sum());
    for (weight, make) in &KINDS {
        if drawn < *weight {
            return make(random);
        }
        drawn -= weight;
    }
    Fault::DeleteFleet
}

fn node(random: &mut Rng) -> usize {
    random.usize(0..NODES)
}

fn one<T: Clone>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(0..of.len())].clone()
}

fn process(random: &mut Rng) -> Process {
    match random.u64(0..10) {
        0..4 => Process::Leader,
        4 => Process::Reconciler(random.usize(0..2)),
        5 | 6 => Process::Webhook(random.usize(0..2)),
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
        let eight = plan(8, long);
        assert_eq!(eight, plan(8, long));
        assert!(eight.steps.is_sorted_by_key(|step| step.at));
        assert_eq!(parse(&print(&eight)).unwrap(), eight);
        let kinds: std::collections::BTreeSet<_> =
            eight.steps.iter().map(|step| step.fault.kind()).collect();
        // Releases and restores are not in the list.
        assert_eq!(kinds.len(), KINDS.len() + 2, "{kinds:?}");
    }
}
