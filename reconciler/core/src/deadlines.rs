//! Decides which waits and deadlines of a node are over, and when to look again; and until when a node waits, and by which setting, as parts
//! of sentences for people. A sentence stays equal while its wait lasts, so that no condition is written again for it.

use brupop_api::fleet::Slot;
use brupop_api::names::DEFAULT_POOL;
use brupop_api::shadow::{LastFailure, ShadowFacts};
use brupop_api::{Marker, State};
use jiff::{SignedDuration, Timestamp, Unit};

use crate::cluster::NodeRecord;
use crate::decide::{Abort, Reason};
use crate::facts::{PoolFacts, TimeFacts};
use crate::objects::{Ahead, Clock, Readiness};
use crate::rules::{Policy, Rules, StepDurations};

/// A node that has not been Ready for this long since its host began its reboot may be lost, and somebody may replace it.
const LOST: SignedDuration = SignedDuration::from_mins(10);
/// A Node that is deleted after it has not been Ready for this long is taken for repaired: common health checks replace a machine
/// after five minutes.
const MISSING: SignedDuration = SignedDuration::from_mins(4);
/// An updated, emptied node keeps the annotations that keep autoscalers from removing it for this long at most.
const KEPT: SignedDuration = SignedDuration::from_hours(4);
/// A Node that is deleted within this time after its update is reported.
const REMOVED_SOON: SignedDuration = SignedDuration::from_hours(4);
/// An empty node waits for its volumes until none of them has been detached for this long.
const DETACHED: SignedDuration = SignedDuration::from_mins(1);
/// The part of a drain's time that belongs to pods which probably hold it up, unless the last drain failed: then it is all.
const FIRST_PART: i32 = 3;
/// Wait after an attempt that ended neither with success nor with a failure: the host wanted another version.
const OTHER_TARGET_BACK_OFF: SignedDuration = SignedDuration::from_secs(60);

/// A node that is monitored may be Ready, or not, for this many spells in a row, each as long as one may last.
const SPELLS: i32 = 4;

const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(24);

/// Multiple of the base that a node waits after a failed drain: pods and budgets change by the hour.
const DRAIN_FACTOR: i32 = 30;

/// The objects and settings from which the times of one node follow, and since when some of it is as it is. Marker, shadow and slot
/// are there as far as they can be read.
struct NodeTimes<'t> {
    policy: &'t Policy,
    steps: &'t StepDurations,
    record: &'t NodeRecord,
    shadow: Option<&'t ShadowFacts<'t>>,
    /// The `BottlerocketPool` that owns the node.
    pool: Option<&'t PoolFacts<'t>>,
    transition: Option<Timestamp>,
    /// The node has been Ready without interruption, if it is.
    ready: Option<Timestamp>,
    /// Node and agent both have been, if they are.
    all_ready: Option<Timestamp>,
    /// The node, or else its agent, has not been Ready, if that is so and known.
    not_ready: Option<Timestamp>,
    /// The drain has gone on.
    drain: Option<Timestamp>,
}

impl NodeTimes<'_> {
    /// The longest time for which a slot stays in this state, if the reconciler can do what the state's deadline asks for.
    fn longest(&self, state: State) -> SignedDuration {
        let (times, steps) = (self.policy, self.steps);
        let step = match state {
            State::Idle | State::ErrorReset => times.settle,
            State::StagedAndPerformedUpdate => times.stage + steps.exclusion + steps.drain * 2,
            State::RebootedIntoUpdate => times.reboot + steps.exclusion + steps.drain,
            State::MonitoringUpdate => (steps.verify + times.settle + steps.workloads) * SPELLS,
        };
        step + times.settle
    }
}

/// The Node's UID; none if there is no Node.
fn node_uid(record: &NodeRecord) -> &str {
    record.node.as_ref().map_or("", |node| node.uid.as_str())
}

impl Clock<'_> {
    /// The facts of one node, which has this slot, of this pool.
    pub(crate) fn facts(
        &mut self,
        policy: &Policy,
        rules: &Rules,
        record: &NodeRecord,
        shadow: Option<&ShadowFacts<'_>>,
        slot: Option<&Slot>,
        pool: Option<&PoolFacts<'_>>,
    ) -> TimeFacts {
        let times = &self.times(policy, rules, record, shadow, pool);
        let (node, marker) = (record.node.as_ref(), record.marker());
        let mut facts = TimeFacts {
            exclude: times.steps.exclusion.is_positive(),
            exclusion_over: true,
            lost: times.ready.is_none() && self.passed(times.not_ready, LOST),
            missing: times.ready.is_none() && self.passed(times.not_ready, MISSING),
            ..TimeFacts::default()
        };
        if let Some(marker) = marker {
            self.marked(times, marker, &mut facts);
        }
        if let Some(shadow) = shadow {
            self.step(times, shadow, &mut facts);
        }
        let ours = marker.is_some_and(|it| it.cordoned_at.is_some());
        // A leaving node gets its successor first.
        let by_others = node.is_some_and(|it| it.unschedulable && !it.leaving);
        let cordoned = record.led.cordoned.filter(|_| !ours && by_others);
        facts.cordoned_lately =
            cordoned.is_some_and(|since| !self.is_older(since, policy.others_cordon));
        let left = times.transition.filter(|_| node.is_none());
        facts.removed_soon = left.is_some_and(|since| !self.is_older(since, REMOVED_SOON));
        let created = node.and_then(|node| node.created);
        let created = created.map(|time| self.since(node_uid(record), time));
        facts.young = created.is_some_and(|since| !self.is_older(since, policy.min_node_age));
        facts.trial_overdue = facts.step_overdue;
        if let Some(slot) = slot {
            let held = self.read(&slot.uid, slot.since.as_deref());
            let seconds = held.map(|held| self.now.duration_since(held).as_secs());
            facts.slot_seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            facts.slot_overdue = self.slot_overdue(times, held);
            let begins = shadow
                .is_none_or(|shadow| matches!(shadow.spec.state, State::Idle | State::ErrorReset));
            facts.trial_overdue |= begins && self.passed_or_unknown(held, policy.settle);
        }
        facts
    }

    fn times<'t>(
        &mut self,
        policy: &'t Policy,
        rules: &'t Rules,
        record: &'t NodeRecord,
        shadow: Option<&'t ShadowFacts<'t>>,
        pool: Option<&'t PoolFacts<'t>>,
    ) -> NodeTimes<'t> {
        let node_uid = node_uid(record);
        let mut read = |readiness: Option<Readiness>| {
            let readiness = readiness?;
            let since = readiness.since;
            Some(Readiness {
                since: since.map(|time| self.since(node_uid, time)),
                ..readiness
            })
        };
        let node = read(record.node.as_ref().and_then(|it| it.readiness));
        let agent = read(record.agent().and_then(|it| it.readiness));
        let ready = node.and_then(Readiness::ready_since);
        let both_ready = ready.zip(agent.and_then(Readiness::ready_since));
        let counts = if ready.is_some() { agent } else { node };
        let spec = record.shadow().map(|shadow| &shadow.spec);
        let transition = shadow.zip(spec).and_then(|(shadow, spec)| {
            let text = spec.state_transition_timestamp.as_deref();
            self.read(shadow.uid, text)
        });
        let drain = record
            .marker()
            .and_then(|it| it.drain_started_at.as_deref());
        NodeTimes {
            policy,
            steps: &rules.durations,
            record,
            shadow,
            pool,
            transition,
            ready,
            all_ready: both_ready.map(|(node, agent)| node.max(agent)),
            not_ready: counts.and_then(Readiness::not_ready_since),
            drain: self.read(node_uid, drain),
        }
    }

    /// Computes the waits and the deadline of the current step.
    fn step(&mut self, times: &NodeTimes<'_>, shadow: &ShadowFacts<'_>, facts: &mut TimeFacts) {
        let settle = times.policy.settle;
        match shadow.spec.state {
            State::Idle | State::ErrorReset => {
                facts.backing_off = self.backing_off(times, shadow);
                facts.step_overdue =
                    !shadow.reports(State::Idle) && self.passed(times.transition, settle);
            }
            State::StagedAndPerformedUpdate => {
                facts.step_overdue = self.staging_overdue(times, shadow);
                facts.cannot_update = self.cannot_update(times, shadow);
            }
            State::RebootedIntoUpdate => {
                facts.cannot_update = !shadow.is_claimed() && self.cannot_update(times, shadow);
                facts.step_overdue = self.reboot_overdue(times, shadow);
            }
            State::MonitoringUpdate => self.monitoring(times, facts),
        }
    }

    fn marked(&mut self, times: &NodeTimes<'_>, marker: &Marker, facts: &mut TimeFacts) {
        let (steps, node_uid) = (times.steps, node_uid(times.record));
        if marker.is_kept() {
            let kept = self.read(node_uid, marker.kept_since.as_deref());
            facts.kept_for_long = self.passed_or_unknown(kept, KEPT);
        }
        if marker.drain_started_at.is_none() && marker.excluded_at.is_some() {
            let excluded = self.read(node_uid, marker.excluded_at.as_deref());
            facts.exclusion_over = self.passed_or_unknown(excluded, steps.exclusion);
        }
        // When the node was seen empty, and its volumes have not become fewer since, if it is.
        let empty = times.record.led.empty.map(|empty| empty.since);
        // From an empty node to the grant takes only moments. So does a new leader's first look at the pods, before which nobody
        // knows what the drain fails on, or whether only volumes are waited for. If they are not known by then, the leader
        // gives the update up. Pods may come to a node that somebody has uncordoned, so it is not empty.
        let cordoned = times
            .record
            .node
            .as_ref()
            .is_some_and(|it| it.unschedulable);
        let mut wait = steps.drain;
        if cordoned
            && (marker.drained_at.is_some() || empty.is_some() || times.record.led.plan.is_none())
        {
            wait += times.policy.settle;
        }
        if empty.is_some() {
            wait += DETACHED;
        }
        facts.volumes_overdue = empty.is_some_and(|since_empty| {
            self.is_older(since_empty, DETACHED) || self.passed(times.drain, steps.drain + DETACHED)
        });
        facts.drain_overdue = self.passed(times.drain, wait);
    }

    fn staging_overdue(&mut self, times: &NodeTimes<'_>, shadow: &ShadowFacts<'_>) -> bool {
        let (policy, steps) = (times.policy, times.steps);
        let (begun, wait) = if shadow.reached() {
            // Later steps have deadlines of their own; this one is for a node that stands still in between.
            (
                times.drain.or(times.transition),
                policy.stage + steps.exclusion + steps.drain * 2,
            )
        } else if shadow.status.attempt == shadow.spec.attempt {
            (times.transition, policy.stage)
        } else {
            // An agent takes up an attempt at once, and a dead agent should not hold a slot for long.
            (times.transition, policy.settle.min(policy.stage))
        };
        let unreachable = self.passed(times.not_ready, policy.settle)
            && self.passed(times.transition, policy.settle);
        unreachable || self.passed(begun, wait)
    }

    /// Agents end an attempt on a silent host themselves, unless they, too, come and go with its API. A look for updates that
    /// fails while an image waits they repeat without end. The host's clock may be behind.
    fn cannot_update(&mut self, times: &NodeTimes<'_>, shadow: &ShadowFacts<'_>) -> bool {
        let since = shadow.status.problem_since.as_deref();
        let since = self.read(shadow.uid, since);
        let mut lasts = |since| self.passed(since, times.policy.settle);
        shadow.status.cannot_update() && lasts(since) && lasts(times.transition)
    }

    fn reboot_overdue(&mut self, times: &NodeTimes<'_>, shadow: &ShadowFacts<'_>) -> bool {
        let mut wait = times.policy.reboot;
        if shadow.spec.reboot_granted_boot_id.is_none() {
            wait += times.steps.exclusion + times.steps.drain;
        }
        // A host that comes back late has time to report: its update is not given up the moment it is there.
        let had_time = self.passed_or_unknown(times.ready, times.policy.settle);
        // A node that comes and goes is never Ready for long enough.
        (self.passed(times.transition, wait) && had_time)
            || self.passed(times.transition, wait * SPELLS)
    }

    fn monitoring(&mut self, times: &NodeTimes<'_>, facts: &mut TimeFacts) {
        let (settle, verify) = (times.policy.settle, times.steps.verify);
        let watched = self.passed_or_unknown(times.transition, verify);
        facts.verified = self.passed(times.all_ready, verify) && watched;
        let names_owners = |marker: &Marker| !marker.evicted_owners.is_empty();
        let waits = times.record.marker().is_some_and(names_owners);
        let workloads = if waits {
            times.steps.workloads
        } else {
            SignedDuration::ZERO
        };
        let wait = verify + settle + workloads;
        let spell_overdue = if times.not_ready.is_some() {
            self.passed(times.not_ready, settle) && self.passed(times.transition, settle)
        } else {
            // A node that has just become Ready again gets the full time, too.
            let had_time = self.passed_or_unknown(times.all_ready, wait);
            self.passed(times.transition, wait) && had_time
        };
        // A node that keeps coming and going is never Ready, or not Ready, for long enough. With gates nobody knows how long
        // it was watched because of them: that is no failure of the node.
        let is_gated = times.pool.is_some_and(PoolFacts::has_gates);
        let too_many_spells = !is_gated && self.passed(times.transition, wait * SPELLS);
        facts.step_overdue = spell_overdue || too_many_spells;
        facts.workloads_overdue =
            facts.verified && self.passed_or_unknown(times.transition, verify + workloads);
    }

    /// Whether the node waits because its last attempt failed, or ended without success not long ago.
    fn backing_off(&mut self, times: &NodeTimes<'_>, shadow: &ShadowFacts<'_>) -> bool {
        let (spec, node) = (&shadow.spec, times.record.node.as_ref());
        let retry = node.and_then(|node| node.retry);
        if let Some(failures) = &spec.last_failure
            && !spec.is_retried(retry)
        {
            let wait = back_off(times.policy.back_off_base, failures, shadow.uid);
            let failed = self.read(shadow.uid, Some(&failures.at));
            if !self.passed_or_unknown(failed, wait) {
                return true;
            }
        }
        let failed = (spec.last_failure.as_ref())
            .is_some_and(|failures| Some(failures.attempt) == spec.attempt);
        let succeeded = spec.version == shadow.status.current_version;
        spec.attempt.is_some()
            && spec.version.is_some()
            && retry != spec.attempt
            && !failed
            && !succeeded
            && !self.passed_or_unknown(times.transition, OTHER_TARGET_BACK_OFF)
    }

    /// Whether a slot that has been held since then is held for longer than the shadow's state, and what follows its deadline, may
    /// take. Without a shadow that can be read, a whole update may take so long.
    fn slot_overdue(&mut self, times: &NodeTimes<'_>, held: Option<Timestamp>) -> bool {
        let Some(shadow) = times.shadow else {
            let whole = State::ALL.iter().map(|state| times.longest(*state)).sum();
            return self.passed(held, whole);
        };
        let is_closed = times.pool.is_some_and(|pool| pool.gate.is_some());
        if shadow.spec.state == State::MonitoringUpdate && is_closed {
            // A gate that is closed holds it. Were that an alert, a gate that asks for alerts would stay closed by it.
            return false;
        }
        let longest = times.longest(shadow.spec.state);
        self.passed(times.transition, longest) && self.passed_or_unknown(held, longest)
    }
}

/// The parts of a drain's time that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTime {
    /// The part that belongs to pods which probably hold the drain up.
    pub first_over: bool,
    pub is_over: bool,
    /// When the next part is over.
    pub next: Option<Timestamp>,
}

impl DrainTime {
    /// Of the drain that the marker of this Node records, whatever came of it. The node's last drain may have failed.
    pub fn of(
        ahead: &Ahead,
        (node_uid, marker): (&str, Option<&Marker>),
        drain: SignedDuration,
        failed_before: bool,
        now: Timestamp,
    ) -> Self {
        let started = marker.and_then(|marker| marker.drain_started_at.as_deref());
        let started = ahead.read(node_uid, started, now);
        let mut clock = Clock::new(now, ahead);
        let first = if failed_before {
            drain
        } else {
            drain / FIRST_PART
        };
        let first_over = clock.passed(started, first);
        Self {
            first_over,
            is_over: clock.passed(started, drain),
            next: clock.next,
        }
    }
}

/// The wait after these failures: the base, doubled with each further failure, at most a day; after a drain that failed thirty
/// times as long. The shadow's UID adds up to an eighth, so that nodes that failed together do not come back together.
pub fn back_off(base: SignedDuration, failures: &LastFailure, uid: &str) -> SignedDuration {
    let doublings = u32::try_from(failures.count.saturating_sub(1)).unwrap_or(u32::MAX);
    let doubled = 1_i32
        .checked_shl(doublings)
        .filter(|factor| *factor > 0)
        .unwrap_or(i32::MAX);
    let factor = if Abort::is_of_drain(&failures.reason) {
        doubled.saturating_mul(DRAIN_FACTOR)
    } else {
        doubled
    };
    let wait = base
        .checked_mul(factor)
        .unwrap_or(LONGEST_BACK_OFF)
        .min(LONGEST_BACK_OFF);
    // FNV-1a: every reconciler gets the same number.
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let part = i32::try_from(hash % 128).unwrap_or(0);
    (wait + wait / 1024 * part).min(LONGEST_BACK_OFF)
}

/// Returns how the node failed, and until when it backs off, as a part of a sentence; `None` if it does so no more, or the time
/// cannot be read.
pub fn back_off_text(
    failures: &LastFailure,
    base: SignedDuration,
    uid: &str,
    ahead: &Ahead,
    now: Timestamp,
) -> Option<String> {
    let since = ahead.read(uid, Some(&failures.at), now)?;
    let until = until(since, back_off(base, failures, uid)).filter(|until| *until > now)?;
    let times = if failures.count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", failures.count)
    };
    Some(format!(
        "it failed {times}, the last time at {} ({}: {}), and waits until {until}",
        failures.at, failures.reason, failures.message
    ))
}

/// Returns until when at least, or at most, a node of this pool waits for this reason, which has been so since then, and by
/// which setting, as a part of a sentence; `None` for other reasons, and if the pool has no rules.
pub fn wait_text(pool: &PoolFacts<'_>, reason: &Reason<'_>, since: Timestamp) -> Option<String> {
    let steps = &pool.rules?.durations;
    let (wait, field) = match reason {
        Reason::Monitoring => (steps.verify, "spec.verify.readyFor"),
        Reason::WorkloadsUnavailable(_) => (
            steps.verify + steps.workloads,
            "spec.verify.workloadsTimeout",
        ),
        Reason::LeavingLoadBalancers => (steps.exclusion, "spec.drain.loadBalancerDelay"),
        _ => return None,
    };
    let until = until(since, wait)?;
    let text = match reason {
        Reason::Monitoring => format!(
            "that ends at {until} at the earliest, and later if node or agent is not Ready meanwhile"
        ),
        Reason::LeavingLoadBalancers => format!("its drain begins at {until}"),
        _ => format!("it keeps its slot until {until} at the latest"),
    };
    // The default pool has no object.
    let by_object = pool.name != DEFAULT_POOL;
    let setting = by_object.then(|| format!(" ({field} of the pool {})", pool.name));
    Some(text + &setting.unwrap_or_default())
}

fn until(since: Timestamp, wait: SignedDuration) -> Option<Timestamp> {
    let until = since.checked_add(wait).ok()?;
    Some(until.round(Unit::Second).unwrap_or(until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::read_time;
    use crate::rules::Rules;
    use crate::tests::world::at;

    #[test]
    fn a_wait_ends_when_it_says() {
        let since = read_time(Some("2026-11-21T04:00:00Z"));
        let [half, whole] = [30, 60].map(SignedDuration::from_secs);
        let mut clock = Clock::new(since.unwrap(), Ahead::NONE);
        assert!(!clock.passed_or_unknown(since, whole) && !clock.passed(since, half));
        let next = clock.next.unwrap();
        assert_eq!(next.to_string(), "2026-11-21T04:00:30Z");
        assert!(Clock::new(next, Ahead::NONE).passed(since, half));
        // A time that cannot be read is not waited for.
        let mut clock = Clock::new(Timestamp::UNIX_EPOCH, Ahead::NONE);
        assert!(
            clock.passed_or_unknown(read_time(Some("soon")), whole) && !clock.passed(None, whole)
        );
        assert_eq!(clock.next, None);
    }

    fn wait(count: u64, reason: &str, uid: &str) -> SignedDuration {
        let failures = LastFailure {
            count,
            reason: reason.to_owned(),
            ..LastFailure::default()
        };
        back_off(SignedDuration::from_mins(2), &failures, uid)
    }

    #[test]
    fn the_back_off_doubles_to_a_day() {
        let of_hosts = [
            (0, 2),
            (1, 2),
            (2, 4),
            (3, 8),
            (9, 512),
            (10, 1024),
            (11, 1440),
            (u64::MAX, 1440),
        ];
        let of_drains = [
            (1, 60),
            (2, 120),
            (5, 960),
            (6, 1440),
            (31, 1440),
            (32, 1440),
            (u64::MAX, 1440),
        ];
        let of_hosts = ["FellBack", "StepFailed", ""].map(|reason| (reason, &of_hosts[..]));
        let of_drains = ["DrainTimedOut", "DrainBlocked"].map(|reason| (reason, &of_drains[..]));
        for (reason, rows) in of_hosts.into_iter().chain(of_drains) {
            for &(failures, minutes) in rows {
                let least = SignedDuration::from_mins(minutes);
                for uid in ["", "a", "2c1cbb16-7d3a-4a6e-9a0b-3f1f0c6c4b10"] {
                    let wait = wait(failures, reason, uid);
                    let most = (least + least / 8).min(LONGEST_BACK_OFF);
                    assert!(
                        (least..=most).contains(&wait),
                        "{failures} failures ({reason}): {wait:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nodes_failed_together_come_back_apart() {
        let waits: std::collections::BTreeSet<_> = (0..20)
            .map(|node| wait(1, "FellBack", &format!("uid-{node}")))
            .collect();
        assert!(waits.len() > 10, "{waits:?}");
    }

    #[test]
    fn steps_say_until_when_and_by_which_setting() {
        let rules = Rules::default();
        let text = |name, reason: Reason<'_>| {
            let pool = PoolFacts {
                name,
                rules: Some(&rules),
                ..PoolFacts::DEFAULT
            };
            wait_text(&pool, &reason, at("2026-11-21T04:00:00.250Z")).unwrap()
        };
        let soaks = Reason::Monitoring;
        let soak = "that ends at 2026-11-21T04:01:00Z at the earliest";
        for (name, setting) in [
            (DEFAULT_POOL, "is not Ready meanwhile"),
            ("web", "(spec.verify.readyFor of the pool web)"),
        ] {
            let text = text(name, soaks);
            assert!(text.starts_with(soak) && text.ends_with(setting), "{text}");
        }
        assert_eq!(
            text("web", Reason::LeavingLoadBalancers),
            "its drain begins at 2026-11-21T04:00:00Z (spec.drain.loadBalancerDelay of the pool web)"
        );
        assert_eq!(
            text("web", Reason::WorkloadsUnavailable("a")),
            "it keeps its slot until 2026-11-21T04:16:00Z at the latest (spec.verify.workloadsTimeout of the pool web)"
        );
        assert_eq!(
            wait_text(&PoolFacts::DEFAULT, &soaks, at("2026-11-21T04:00:00Z")),
            None,
            "no rules"
        );
    }

    #[test]
    fn a_node_says_until_when_it_waits() {
        let failures = |count| LastFailure {
            count,
            attempt: 7,
            at: "2026-11-21T04:00:00.250Z".into(),
            reason: "FellBack".into(),
            message: "the host came back".into(),
        };
        let now = "2026-11-21T04:01:00Z".parse().unwrap();
        let base = SignedDuration::from_mins(2);
        let text =
            |failures: &LastFailure, now| back_off_text(failures, base, "", Ahead::NONE, now);
        let event = |count| text(&failures(count), now);
        let once = "it failed once, the last time at 2026-11-21T04:00:00.250Z (FellBack: the host came back), and waits until ";
        let once = event(1)
            .unwrap()
            .strip_prefix(once)
            .map(str::to_owned)
            .unwrap();
        let end = once.parse::<Timestamp>().unwrap();
        let least = "2026-11-21T04:02:00Z".parse().unwrap();
        assert!(
            end >= least && end <= least + SignedDuration::from_secs(16),
            "{end}"
        );
        assert!(event(2).unwrap().starts_with("it failed 2 times, "));
        assert_eq!(text(&LastFailure::default(), now), None, "no time");
        assert_eq!(
            text(&failures(1), "2026-11-21T04:03:00Z".parse().unwrap()),
            None,
            "it is over"
        );
    }
}
