//! The conditions of a pool, and why it stalls.

use std::collections::{BTreeSet, VecDeque};

use brupop_api::conditions::{ACCEPTED, ConditionStatus, PROGRESSING, READY, STALLED};
use brupop_api::fleet::VersionRecord;
use semver::Version;

use super::{NoAnswer, Tally, WaitingGroup};
use crate::decide::Reason;
use crate::facts::{FirstPool, FirstPoolStanding, FleetFacts, PoolFacts};
use crate::rules::{GateQuery, PoolGate};
use crate::status::DesiredCondition;
use crate::window::Starts;

pub(super) const NO_NODES: &str = "the pool owns no node that is opted in";

impl Tally<'_> {
    /// Why the pool moves, or why not: what most of the nodes that wait wait for. Why it is not ready says more of the same, and
    /// is said while none waits.
    pub(super) fn progressing(
        &self,
        pool: &PoolFacts<'_>,
        versions: &[VersionRecord],
        ready: &DesiredCondition,
    ) -> DesiredCondition {
        // Among equals, the first in the alphabet.
        let most = self
            .waiting
            .iter()
            .rev()
            .max_by_key(|(_, waiting)| waiting.nodes);
        let unready = ready.status == ConditionStatus::False
            && most.is_none_or(|(word, _)| *word == ready.reason);
        let (status, reason, message) = match (pool.starts, most) {
            (Starts::Invalid(why), _) => (ConditionStatus::False, "PoolInvalid", why.to_owned()),
            _ if self.progress.counts.updating_nodes > 0 => (
                ConditionStatus::True,
                "Updating",
                "nodes of the pool are being updated".to_owned(),
            ),
            _ if unready => (ConditionStatus::False, ready.reason, ready.message.clone()),
            (_, Some((word, waiting))) => {
                let (reason, message) = match superseded(pool, waiting, versions) {
                    Some(message) => ("Superseded", message),
                    None => (*word, waiting.reason.message().into_owned()),
                };
                (ConditionStatus::False, reason, message)
            }
            _ if self.progress.counts.nodes == 0 => {
                (ConditionStatus::False, "NoNodes", NO_NODES.to_owned())
            }
            _ => match self.progress.behind {
                Some((_, reason)) => (
                    ConditionStatus::False,
                    reason.as_str(),
                    reason.message().into_owned(),
                ),
                None => (
                    ConditionStatus::False,
                    "NoUpdate",
                    "no node has an update to go to".to_owned(),
                ),
            },
        };
        DesiredCondition::of(PROGRESSING, status, reason, &message)
    }
}

/// Returns a sentence if another version came before the pool got to the last one. If that goes on, it never gets to any.
fn superseded(
    pool: &PoolFacts<'_>,
    waiting: &WaitingGroup<'_>,
    versions: &[VersionRecord],
) -> Option<String> {
    let WaitingGroup {
        reason: why @ (Reason::VersionTooYoung(_) | Reason::WaitingForPool(_)),
        from_to,
        ..
    } = waiting
    else {
        return None;
    };
    let (runs, wants) = from_to.as_ref()?;
    let (runs, wants) = (Version::parse(runs).ok()?, Version::parse(wants).ok()?);
    let between = |version: &Version| runs < *version && *version < wants;
    let reported = versions.iter().filter(|it| it.reported_at.is_some());
    let allowed = reported
        .map(|record| record.version.as_str())
        .filter(|version| pool.rules.is_some_and(|rules| rules.allow(version)));
    let missed = allowed
        .filter_map(|version| Version::parse(version).ok())
        .filter(between)
        .max()?;
    Some(format!(
        "{wants} superseded {missed} before its turn: {}",
        why.message()
    ))
}

/// That a pool that goes first is not there.
pub(super) fn missing<'a>(pool: &PoolFacts<'a>) -> Option<Reason<'a>> {
    Some(Reason::WaitingForPool(FirstPool {
        pool: pool.missing?,
        standing: FirstPoolStanding::Missing,
    }))
}

/// That a pool never begins that goes first, or before one that does, and so on. One that owns no node matters only while nodes
/// wait for it.
pub(super) fn waits_for_ever(
    fleet: &FleetFacts<'_>,
    pool: &PoolFacts<'_>,
    nodes_wait: bool,
) -> Option<DesiredCondition> {
    let mut open: VecDeque<&PoolFacts<'_>> = VecDeque::from([pool]);
    let mut seen = BTreeSet::new();
    while let Some(next) = open.pop_front() {
        let why = match next.starts {
            _ if next.name == pool.name => None,
            Starts::Invalid(why) => Some(why.into()),
            _ if next.nodes == 0 && nodes_wait => Some("it owns no node that is opted in".into()),
            _ => missing(next).map(|reason| reason.message()),
        };
        if let Some(why) = why {
            let message = format!(
                "the pool {} goes first (spec.dependsOn), and never begins: {why}",
                next.name
            );
            let reason = Reason::WaitingForPool(FirstPool {
                pool: next.name,
                standing: FirstPoolStanding::NotDone,
            });
            return Some(DesiredCondition::of(
                STALLED,
                ConditionStatus::True,
                reason.as_str(),
                &message,
            ));
        }
        let after = next.rules.into_iter().flat_map(|rules| &rules.depends_on);
        open.extend(
            after
                .filter(|(name, _)| seen.insert(name))
                .filter_map(|(name, _)| fleet.pool(name)),
        );
    }
    None
}

/// That its first gate without an answer has none; before that, that one has not been asked yet.
pub(super) fn unanswered_gate<'q>(
    pool: &PoolFacts<'_>,
    unanswered: impl Fn(&GateQuery) -> Option<NoAnswer<'q>>,
) -> Option<DesiredCondition> {
    let gates = pool.rules.into_iter().flat_map(|rules| &rules.gates);
    let without = gates.filter_map(|gate| Some((gate, unanswered(&gate.query)?)));
    let (PoolGate { name, query }, why) =
        without.min_by_key(|(_, why)| *why == NoAnswer::NotAsked)?;
    let source = &query.source;
    let (status, message) = match why {
        NoAnswer::Failed(why) => (
            ConditionStatus::False,
            format!(
                "the gate {name} (spec.gates) is closed, for its source {source} gives no answer: {why}"
            ),
        ),
        NoAnswer::NotAsked => (
            ConditionStatus::Unknown,
            format!(
                "the reconciler that leads has not had an answer to the gate {name} (spec.gates) yet"
            ),
        ),
    };
    Some(DesiredCondition::of(
        READY,
        status,
        Reason::GateUnknown(name).as_str(),
        &message,
    ))
}

/// That it wants what the reconciler may not do.
pub(super) fn without_force(pool: &PoolFacts<'_>) -> Option<DesiredCondition> {
    pool.rules.filter(|rules| rules.wants_force)?;
    Some(DesiredCondition::of(
        READY,
        ConditionStatus::False,
        "ForceNotGranted",
        "spec.drain.onTimeout is Force, but the reconciler may not delete pods, so it counts as Abort; add the component \
         force-drain, or write Abort",
    ))
}

pub(super) fn accepted(pool: &PoolFacts<'_>) -> DesiredCondition {
    match pool.starts {
        Starts::Invalid(why) => {
            DesiredCondition::of(ACCEPTED, ConditionStatus::False, "PoolInvalid", why)
        }
        _ => DesiredCondition::of(
            ACCEPTED,
            ConditionStatus::True,
            "Understood",
            "the pool is understood",
        ),
    }
}
