//! The status of a pool, for people.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use brupop_api::conditions::ConditionStatus::{False, True, Unknown};
use brupop_api::conditions::{ACCEPTED, PROGRESSING, READY};
use brupop_api::crds::{POOL_VERSIONS_MAX, VERSION_MAX};
use brupop_api::pool::{Gate, NextWindow, PrometheusGate, VersionCount};
use brupop_api::printable::printable;
use brupop_api::{BottlerocketPool, BottlerocketPoolStatus, NodeCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde_json::{Value, json};

use super::{DesiredCondition, Progress, generation};
use crate::decide::{Decision, Reason};
use crate::facts::{FirstPool, FirstPoolStanding, FleetFacts, Observed, Owner, PoolFacts};
use crate::pool::Pool;
use crate::window::Starts;

const NO_NODES: &str = "the pool owns no node that is opted in";
const NO_FORCE: &str = "spec.drain.onTimeout is Force, but the reconciler may not delete pods, so it counts as Abort; add the \
                        component force-drain, or write Abort";

/// The wanted status of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPoolStatus {
    counts: NodeCounts,
    next_window: Option<NextWindow>,
    versions: Vec<VersionCount>,
    conditions: [DesiredCondition; 5],
}

/// Reasons why a query of a gate has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer<'q> {
    /// This leader has not had one yet.
    NotAsked,
    /// The last time that it was asked there was none, for this reason.
    Failed(&'q str),
}

/// The statuses of all pools, in the order of the facts, from what was decided for each node, and why a query
/// of a gate has no answer, if it has none, and whether pods may be deleted.
pub fn pools<'q>(
    observed: &Observed<'_>,
    nodes: &[Decision<'_>],
    unanswered: impl Fn(&PrometheusGate) -> Option<NoAnswer<'q>>,
    may_force: bool,
) -> Vec<DesiredPoolStatus> {
    let fleet = &observed.fleet;
    let mut progresses: Vec<Progress<'_>> =
        fleet.pools.iter().map(|_| Progress::default()).collect();
    for (view, decision) in observed.views.iter().zip(nodes) {
        if let Owner::Pool(index) = view.owner
            && let Some(progress) = progresses.get_mut(index)
        {
            progress.count(view, fleet.pools.get(index), decision);
        }
        if let Owner::Conflict(one, other) = view.owner {
            let why = Reason::PoolConflict(fleet.pool_name(one), fleet.pool_name(other));
            for index in [one, other] {
                if let Some(progress) = progresses.get_mut(index) {
                    progress.contends.get_or_insert(why);
                }
            }
        }
    }
    let pools = fleet.pools.iter().zip(progresses);
    pools
        .map(|(pool, progress)| {
            let forceless = || {
                pool.rules.filter(|rules| rules.wants_force && !may_force)?;
                let of = DesiredCondition::of;
                Some(of(READY, False, "ForceNotGranted", NO_FORCE))
            };
            let unready = unanswered_gate(pool, &unanswered).or_else(forceless);
            progress.status(fleet, pool, unready)
        })
        .collect()
}

impl Progress<'_> {
    fn status(
        self,
        fleet: &FleetFacts<'_>,
        pool: &PoolFacts<'_>,
        unready: Option<DesiredCondition>,
    ) -> DesiredPoolStatus {
        let counts = NodeCounts {
            unavailable_limit: pool.limit,
            ..self.counts
        };
        let accepted = match pool.starts {
            Starts::Invalid(why) => DesiredCondition::of(ACCEPTED, False, "PoolInvalid", why),
            _ => DesiredCondition::of(ACCEPTED, True, "Understood", "the pool is understood"),
        };
        let stalls = self.why_stalled(fleet, pool);
        let stalls = stalls.as_ref().map(|(reason, why)| (*reason, &**why));
        let [ready, stalled] = DesiredCondition::health(stalls, unready);
        let progressing = self.progressing(pool, &ready);
        let updated = self.updated_condition(NO_NODES);
        let versions = self.versions.into_iter();
        let mut versions: Vec<VersionCount> = versions
            .map(|(version, nodes)| VersionCount {
                version: printable(version, VERSION_MAX).into_owned(),
                nodes,
            })
            .collect();
        versions.sort_by(|one, other| {
            let by_version = || one.version.cmp(&other.version);
            other.nodes.cmp(&one.nodes).then_with(by_version)
        });
        versions.truncate(POOL_VERSIONS_MAX);
        DesiredPoolStatus {
            counts,
            next_window: pool.next_window.map(|window| NextWindow {
                start: window.start.to_string(),
                end: (!window.reopens).then(|| window.end.to_string()),
            }),
            versions,
            conditions: [accepted, progressing, updated, ready, stalled],
        }
    }

    /// Returns the word and the sentence for why a person has to act before the pool goes on, if one has to.
    fn why_stalled<'f>(
        &self,
        fleet: &FleetFacts<'f>,
        pool: &PoolFacts<'f>,
    ) -> Option<(&'static str, Cow<'f, str>)> {
        if let Starts::Invalid(why) = pool.starts {
            return Some(("PoolInvalid", why.into()));
        }
        let told = |reason: Reason<'_>| (reason.as_str(), reason.message());
        if let Some(reason) = self.contends.or_else(|| missing(pool)) {
            return Some(told(reason));
        }
        // Of a version that the other pool was done with before, its nodes are updated all the same.
        let mut waiting = self.waiting.values();
        let waits_for_pool = waiting.any(|(_, reason)| matches!(reason, Reason::WaitingForPool(_)));
        let goes_on = !self.waiting.is_empty() && !waits_for_pool;
        if self.counts.updating_nodes == 0
            && !goes_on
            && let Some((first, why)) = never_begins(fleet, pool, waits_for_pool)
        {
            let word = Reason::WaitingForPool(first).as_str();
            let name = first.pool;
            let message =
                format!("the pool {name} goes first (spec.dependsOn), and cannot begin: {why}");
            return Some((word, message.into()));
        }
        self.halted.map(told)
    }

    /// Returns why the pool moves or waits: the reason of most waiting nodes. If that is also why the pool is not ready, or no
    /// node waits, the message of `Ready` says more.
    fn progressing(&self, pool: &PoolFacts<'_>, ready: &DesiredCondition) -> DesiredCondition {
        let waits = |reason: &'static str, message: &str| {
            DesiredCondition::of(PROGRESSING, False, reason, message)
        };
        if let Starts::Invalid(why) = pool.starts {
            return waits("PoolInvalid", why);
        }
        let counts = self.counts;
        if counts.updating_nodes > 0 {
            let message = "nodes of the pool are being updated";
            return DesiredCondition::of(PROGRESSING, True, "Updating", message);
        }
        // Among equals, the first in the alphabet.
        let groups = self.waiting.values().rev();
        let most = groups.max_by_key(|(nodes, _)| nodes);
        let most = most.map(|(_, reason)| *reason);
        if ready.status == False && most.is_none_or(|it| it.as_str() == ready.reason) {
            return waits(ready.reason, &ready.message);
        }
        let behind = self.behind.filter(|_| counts.nodes > 0);
        let behind = behind.map(|(_, reason)| reason);
        match most.or(behind) {
            Some(reason) => waits(reason.as_str(), &reason.message()),
            None if counts.nodes == 0 => waits("NoNodes", NO_NODES),
            None => waits("NoUpdate", "there is no update for any node"),
        }
    }
}

impl DesiredPoolStatus {
    /// Whether all of this, of the pool's spec as it is now, is stored already.
    pub fn is_stored_in(&self, pool: &Pool) -> bool {
        let (stored, generation) = (&pool.stored, pool.observed());
        stored.observed_generation == generation
            && stored.counts == self.counts
            && stored.next_window == self.next_window
            && stored.versions == self.versions
            && self
                .conditions
                .iter()
                .all(|wanted| wanted.is_stored_in(&stored.conditions, generation))
    }

    /// The status to apply to the pool.
    pub fn patch(&self, pool: &Pool, now: &str) -> Value {
        let stored = &pool.stored.conditions;
        let generation = pool.observed();
        let conditions = self
            .conditions
            .iter()
            .map(|wanted| wanted.stored_over(stored, generation, now));
        let ObjectMeta { name, uid, .. } = &pool.metadata;
        json!({
            "apiVersion": BottlerocketPool::api_version(&()),
            "kind": BottlerocketPool::kind(&()),
            "metadata": {"name": name, "uid": uid},
            "status": BottlerocketPoolStatus {
                observed_generation: generation,
                counts: self.counts,
                next_window: self.next_window.clone(),
                versions: self.versions.clone(),
                conditions: conditions.collect(),
            },
        })
    }
}

impl Pool {
    /// The generation of the spec, as conditions have it.
    fn observed(&self) -> Option<u64> {
        generation(&self.metadata)
    }
}

/// That a pool that goes first is not there.
fn missing<'a>(pool: &PoolFacts<'a>) -> Option<Reason<'a>> {
    Some(Reason::WaitingForPool(FirstPool {
        pool: pool.missing?,
        standing: FirstPoolStanding::Missing,
    }))
}

/// Returns a pool that goes before this one, directly or through others, and cannot begin; and why. A pool without nodes counts
/// only while nodes wait for it.
fn never_begins<'f>(
    fleet: &FleetFacts<'f>,
    pool: &PoolFacts<'f>,
    nodes_wait: bool,
) -> Option<(FirstPool<'f>, Cow<'f, str>)> {
    let after = |pool: &PoolFacts<'f>| pool.rules.into_iter().flat_map(|it| &it.depends_on);
    let mut open: VecDeque<_> = after(pool).collect();
    let mut seen = BTreeSet::from([pool.name]);
    while let Some((name, _)) = open.pop_front() {
        let Some(next) = fleet.pool(name).filter(|_| seen.insert(name)) else {
            continue;
        };
        let why = match next.starts {
            Starts::Invalid(why) => Some(why.into()),
            _ if next.nodes == 0 && nodes_wait => Some("it owns no node that is opted in".into()),
            _ => missing(next).map(|reason| reason.message()),
        };
        if let Some(why) = why {
            let (pool, standing) = (next.name, FirstPoolStanding::NotDone);
            return Some((FirstPool { pool, standing }, why));
        }
        open.extend(after(next));
    }
    None
}

/// The condition `Ready` of a pool with a gate without an answer: first one that failed, then one that was not asked yet.
fn unanswered_gate<'q>(
    pool: &PoolFacts<'_>,
    unanswered: impl Fn(&PrometheusGate) -> Option<NoAnswer<'q>>,
) -> Option<DesiredCondition> {
    let gates = pool.rules.into_iter().flat_map(|rules| &rules.gates);
    let without = gates.filter_map(|gate| Some((gate, unanswered(&gate.prometheus)?)));
    let (Gate { name, prometheus }, why) =
        without.min_by_key(|(_, why)| *why == NoAnswer::NotAsked)?;
    let source = &prometheus.source;
    let (status, message) = match why {
        NoAnswer::Failed(why) => (
            False,
            format!(
                "the gate {name} (spec.gates) is closed, because its source {source} gives no answer: {why}"
            ),
        ),
        NoAnswer::NotAsked => (
            Unknown,
            format!("the reconciler that leads has no answer for the gate {name} (spec.gates) yet"),
        ),
    };
    let reason = Reason::GateUnknown(name).as_str();
    Some(DesiredCondition::of(READY, status, reason, &message))
}

#[cfg(test)]
mod tests;
