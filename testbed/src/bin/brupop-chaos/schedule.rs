//! How the operator is set, and which faults come when: a pure function of the seed; and as text, one fault a line.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::fault::{Bad, Edit, Fault, HostAnswer, HostCall, Plan, Process, Settings, SpecEdit, Step};
use crate::pools::{self, POOLS, RELEASES};
use crate::random::Random;

/// The last release, which is published when the faults have stopped.
pub(crate) const LAST: &str = "1.30.0";
/// Between two faults, in milliseconds.
const GAP: Range<u64> = 300..3_000;
/// How old the snapshot is from which etcd is restored, in milliseconds.
const RESTORED_AFTER: Range<u64> = 2_000..20_000;

/// Deployments and the like with a budget; see `world.rs`.
pub(crate) const BUDGETS: [&str; 4] = ["cart", "web", "db", "queue"];
/// Workloads that people scale and roll out while nodes are updated.
pub(crate) const CHANGED: [&str; 3] = ["cart", "cache", "db"];
/// Deployments that may get another budget: one that has one, and one that has none.
pub(crate) const BUDGETED_LATER: [&str; 2] = ["cart", "cache"];

/// What follows from a seed. Every second seed has pools, if nothing else is wanted.
pub(crate) fn plan(seed: u64, length: Duration, nodes: usize, pools: Option<bool>) -> Plan {
    let mut random = Random::new(seed);
    let few = (3, ["2", "4"].map(str::to_owned));
    // So many that what is kept of the last few may not be enough.
    let many = (nodes.min(12), ["unlimited", "unlimited"].map(str::to_owned));
    let (limit, failures) = if random.within(0..3) == 0 { many } else { few };
    let pools = pools.unwrap_or(seed.is_multiple_of(2));
    let exclusion = random.within(0..2);
    // Two of these four have pools.
    let late = usize::try_from(seed / 2 % 4).unwrap_or(0).min(nodes / 4);
    let settings = Settings { nodes, late, limit, failures, exclusion, pools };
    let mut steps = steps(&mut random, length, nodes);
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    if settings.pools {
        steps.extend(pools::steps(seed, length));
    }
    steps.extend(restores(seed, length));
    let later = later(seed, length, nodes).into_iter();
    // Nobody looks at the label of a pool where there is none.
    steps.extend(later.filter(|step| settings.pools || !matches!(step.fault, Fault::Relabel { .. })));
    steps.extend(joins(seed, length, nodes - late..nodes));
    steps.sort_by_key(|step| step.at);
    Plan { settings, steps }
}

fn steps(random: &mut Random, length: Duration, nodes: usize) -> Vec<Step> {
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let mut steps: Vec<Step> = RELEASES
        .map(|(version, percent, bad)| Step {
            at: length * percent / 100,
            fault: Fault::Publish { version: version.to_owned(), bad },
        })
        .into();
    let mut at = 1_000;
    while at < length {
        steps.push(Step { at, fault: fault(random, nodes, &KINDS) });
        at += random.within(GAP);
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// In every third run etcd is restored now and then, from a snapshot of some seconds before. The numbers of the other faults
/// stay what they are.
fn restores(seed: u64, length: u64) -> Vec<Step> {
    if seed % 3 != 2 {
        return vec![];
    }
    let mut random = Random::new(seed ^ (1 << 40));
    let (mut steps, mut at) = (vec![], random.within(20_000..60_000));
    // Before the other faults stop.
    while at + RESTORED_AFTER.end < length {
        steps.push(Step { at, fault: Fault::Restore { ms: random.within(RESTORED_AFTER) } });
        at += random.within(90_000..150_000);
    }
    steps
}

/// What was thought of later: it leaves the numbers of the other faults what they are, too.
fn later(seed: u64, length: u64, nodes: usize) -> Vec<Step> {
    let mut random = Random::new(seed ^ (1 << 41));
    let (mut steps, mut at) = (vec![], random.within(2_000..6_000));
    while at < length {
        steps.push(Step { at, fault: fault(&mut random, nodes, &LATER) });
        at += random.within(2_000..8_000);
    }
    steps
}

/// Nodes that join while faults are made.
fn joins(seed: u64, length: u64, late: Range<usize>) -> Vec<Step> {
    let mut random = Random::new(seed ^ (1 << 42));
    late.map(|node| Step { at: random.within(0..length), fault: Fault::Join { node } }).collect()
}

/// Makes a fault of one kind.
type Make = fn(&mut Random, usize) -> Fault;

/// How often each kind comes, and how it is made. What has found something, or is likely to, comes more often.
const KINDS: [(u64, Make); 35] = [
    (12, |random, nodes| Fault::Kill { process: process(random, nodes) }),
    (12, |random, nodes| Fault::Freeze { process: process(random, nodes), ms: random.within(500..9_000) }),
    (4, |random, nodes| Fault::DeletePod { process: process(random, nodes) }),
    (3, |random, _| Fault::KillPlane { program: plane(random), ms: random.within(200..5_000) }),
    (3, |random, _| Fault::FreezePlane { program: plane(random), ms: random.within(200..5_000) }),
    (16, |random, nodes| Fault::Network {
        process: process(random, nodes),
        weather: *random.one(&[Bad::Slow, Bad::Silent, Bad::Deaf, Bad::Shut]),
        ms: random.within(500..12_000),
    }),
    (3, |random, _| Fault::WebhookUnreachable { ms: random.within(500..8_000) }),
    (12, |random, nodes| Fault::HostAnswers {
        node: node(random, nodes),
        call: *random.one(&CALLS),
        answer: *random.one(&ANSWERS),
        ms: random.within(500..10_000),
    }),
    (6, |random, nodes| Fault::CommandFails {
        node: node(random, nodes),
        call: *random.one(&COMMANDS),
        ms: random.within(500..8_000),
    }),
    (3, |random, nodes| Fault::FallsBack { node: node(random, nodes), ms: random.within(2_000..15_000) }),
    (3, |random, nodes| Fault::RebootIgnored { node: node(random, nodes), ms: random.within(2_000..15_000) }),
    (4, |random, nodes| Fault::StaysDown { node: node(random, nodes), ms: random.within(3_000..40_000) }),
    (3, |random, _| Fault::NobodyReturns { ms: random.within(15_000..60_000) }),
    (6, |random, nodes| Fault::Reboots { node: node(random, nodes) }),
    (3, |random, nodes| Fault::ApiRestarts { node: node(random, nodes), ms: random.within(100..4_000) }),
    (3, |random, nodes| Fault::Recreate { node: node(random, nodes) }),
    (2, |random, nodes| Fault::Leave { node: node(random, nodes), ms: random.within(2_000..15_000) }),
    (4, |random, _| Fault::Throttled { ms: random.within(500..6_000) }),
    (5, |random, _| Fault::Refused { code: *random.one(&[409, 429, 500]), ms: random.within(500..6_000) }),
    (3, |random, _| {
        configure("reconciler", "MAX_CONCURRENT_UPDATE", random.one::<&str>(&["1", "2", "3", "4", "6"]))
    }),
    (8, |random, nodes| Fault::Cordon { node: node(random, nodes), ms: random.within(2_000..50_000) }),
    (4, |random, nodes| Fault::Uncordon { node: node(random, nodes) }),
    (2, |random, nodes| Fault::Drain { node: node(random, nodes), ms: random.within(2_000..15_000) }),
    (3, |random, nodes| Fault::PauseNode { node: node(random, nodes), ms: random.within(1_000..15_000) }),
    (3, |random, _| Fault::PauseFleet { ms: random.within(500..12_000) }),
    (3, |_, _| Fault::Acknowledge),
    (2, |_, _| Fault::DeleteFleet),
    (3, |random, nodes| Fault::Unlabel { node: node(random, nodes), ms: random.within(1_000..15_000) }),
    (2, |random, nodes| Fault::UpdateNow { node: node(random, nodes), ms: random.within(5_000..20_000) }),
    (4, |random, nodes| Fault::EditStatus {
        node: node(random, nodes),
        what: *random.one(&[Edit::Crashes, Edit::NoTarget, Edit::StateIdle, Edit::NoAttempt]),
    }),
    (5, |random, nodes| Fault::DeleteShadow { node: node(random, nodes) }),
    (4, |random, _| Fault::CloseBudget {
        workload: (*random.one(&BUDGETS)).to_owned(),
        ms: random.within(1_000..20_000),
    }),
    (3, |random, nodes| Fault::UnmanagedPod { node: node(random, nodes), ms: random.within(1_000..20_000) }),
    (2, |random, nodes| Fault::UnreadableMarker {
        node: node(random, nodes),
        ms: random.within(1_000..20_000),
    }),
    (4, |random, nodes| Fault::Rogue { node: node(random, nodes), ms: random.within(1_000..10_000) }),
];

/// The same for the kinds that were thought of later.
const LATER: [(u64, Make); 14] = [
    (2, |random, nodes| Fault::CommandHangs {
        node: node(random, nodes),
        call: *random.one(&COMMANDS),
        ms: random.within(1_000..15_000),
    }),
    (2, |random, nodes| Fault::CommandLasts {
        node: node(random, nodes),
        call: *random.one(&COMMANDS),
        ms: random.within(1_000..30_000),
    }),
    (2, |random, nodes| Fault::HostAnswers {
        node: node(random, nodes),
        call: HostCall::Deactivate,
        answer: *random.one(&ANSWERS),
        ms: random.within(5_000..30_000),
    }),
    (2, |random, nodes| Fault::EditSpec {
        node: node(random, nodes),
        what: *random.one(&[SpecEdit::Idle, SpecEdit::Version]),
    }),
    (2, |random, nodes| Fault::Relabel {
        node: node(random, nodes),
        pool: (*random.one(&POOLS)).to_owned(),
        ms: random.within(5_000..40_000),
    }),
    (2, |random, _| Fault::AnotherBudget {
        workload: (*random.one(&BUDGETED_LATER)).to_owned(),
        unreadable: random.within(0..2) == 0,
        ms: random.within(5_000..20_000),
    }),
    (3, |random, _| Fault::Scale {
        workload: (*random.one(&CHANGED)).to_owned(),
        replicas: *random.one(&[2, 6, 20, 40]),
        ms: random.within(3_000..25_000),
    }),
    (2, |random, _| Fault::BadRollOut {
        workload: (*random.one(&CHANGED)).to_owned(),
        ms: random.within(5_000..25_000),
    }),
    (2, |random, _| Fault::Unhealthy {
        workload: (*random.one(&BUDGETS)).to_owned(),
        pods: *random.one(&[1, 2, 4]),
        ms: random.within(5_000..30_000),
    }),
    (2, |random, nodes| Fault::StuckPod { node: node(random, nodes), ms: random.within(5_000..40_000) }),
    (2, |random, nodes| Fault::ApiHangs { node: node(random, nodes), ms: random.within(3_000..25_000) }),
    (2, |random, nodes| Fault::RemovedWhenUpdated {
        node: node(random, nodes),
        ms: random.within(12_000..25_000),
    }),
    (2, |random, nodes| Fault::ClockAhead { node: node(random, nodes) }),
    (1, |random, _| match random.within(0..4) {
        0 => configure("agent", "PREFETCH", "true"),
        1 => configure("agent", "PREFETCH", "false"),
        2 => configure("reconciler", "PAUSE_BETWEEN_UPDATES_SECONDS", "2"),
        _ => configure("reconciler", "PAUSE_BETWEEN_UPDATES_SECONDS", "0"),
    }),
];

fn configure(component: &str, setting: &str, value: &str) -> Fault {
    let [component, setting, value] = [component, setting, value].map(str::to_owned);
    Fault::Configure { component, setting, value }
}

const COMMANDS: [HostCall; 3] = [HostCall::Refresh, HostCall::Prepare, HostCall::Activate];
pub(crate) const CALLS: [HostCall; 6] = [
    HostCall::Os,
    HostCall::Status,
    HostCall::Refresh,
    HostCall::Prepare,
    HostCall::Activate,
    HostCall::Reboot,
];
const ANSWERS: [HostAnswer; 8] = [
    HostAnswer::Locked,
    HostAnswer::NotFound,
    HostAnswer::NotAllowed,
    HostAnswer::Refused,
    HostAnswer::Nonsense,
    HostAnswer::Half,
    HostAnswer::Hang,
    HostAnswer::Unanswered,
];

fn fault(random: &mut Random, nodes: usize, kinds: &[(u64, Make)]) -> Fault {
    let all: u64 = kinds.iter().map(|(weight, _)| weight).sum();
    let mut drawn = random.within(0..all);
    for (weight, make) in kinds {
        if drawn < *weight {
            return make(random, nodes);
        }
        drawn -= weight;
    }
    Fault::Reboots { node: 0 }
}

fn node(random: &mut Random, nodes: usize) -> usize {
    usize::try_from(random.within(0..u64::try_from(nodes).unwrap_or(1))).unwrap_or(0)
}

fn process(random: &mut Random, nodes: usize) -> Process {
    match random.within(0..10) {
        0..4 => Process::Leader,
        4 => Process::Reconciler(node(random, 2)),
        5 | 6 => Process::Webhook(node(random, 2)),
        _ => Process::Agent(node(random, nodes)),
    }
}

/// Programs of the control plane; those that matter most more often.
const PROGRAMS: [&str; 6] =
    ["kube-apiserver", "kube-apiserver", "etcd", "etcd", "kube-controller-manager", "kube-scheduler"];

fn plane(random: &mut Random) -> String {
    (*random.one(&PROGRAMS)).to_owned()
}

/// As text: a line for the settings, and one for each fault.
pub(crate) fn print(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(serde_json::to_string);
    let lines = [serde_json::to_string(&plan.settings)].into_iter().chain(steps);
    lines.map(|line| line.unwrap_or_default() + "\n").collect()
}

/// Reads what [`print`] wrote.
pub(crate) fn parse(text: &str) -> Result<Plan> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().context("an empty schedule")?;
    let settings: Settings = serde_json::from_str(first).with_context(|| first.to_owned())?;
    ensure!(settings.late < settings.nodes, "not all nodes can be late: {first}");
    let steps = lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    Ok(Plan { settings, steps: steps.collect::<Result<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_follows_from_its_seed_and_survives_being_written() {
        let long = Duration::from_hours(1);
        let seven = plan(7, long, 20, None);
        assert_eq!(seven, plan(7, long, 20, None));
        assert_ne!(seven, plan(8, long, 20, None));
        let (eight, forced) = (plan(8, long, 20, None), plan(7, long, 20, Some(true)));
        let of_pools = |plan: &Plan| plan.steps.iter().filter(|step| step.fault.kind() == "pool").count();
        assert!(of_pools(&seven) == 0 && of_pools(&eight) > 100 && of_pools(&forced) > 100);
        let restores = |plan: &Plan| plan.steps.iter().filter(|step| step.fault.kind() == "restore").count();
        assert!(restores(&seven) == 0 && restores(&eight) > 20);
        assert_eq!(parse(&print(&eight)).unwrap(), eight);
        assert!(seven.steps.is_sorted_by_key(|step| step.at));
        assert_eq!(parse(&print(&seven)).unwrap(), seven);
        let kinds: std::collections::BTreeSet<_> =
            forced.steps.iter().map(|step| step.fault.kind()).collect();
        // Releases, nodes that join, pools and their source are in neither list, and two kinds are in both.
        assert_eq!(kinds.len(), KINDS.len() + LATER.len() + 2, "{kinds:?}");
    }
}
