//! What people see of a pool: its status.

mod conditions;

use std::collections::BTreeMap;

use brupop_api::conditions::{ConditionStatus, STALLED};
use brupop_api::crds::{POOL_VERSIONS_MAX, VERSION_MAX};
use brupop_api::pool::{NextWindow, VersionCount};
use brupop_api::printable::printable;
use brupop_api::{BottlerocketPool, BottlerocketPoolStatus, NodeCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde_json::{Value, json};

use super::health::health;
use super::progress::Progress;
use super::{DesiredCondition, generation};
use crate::cluster::WatchedPool;
use crate::decide::{Contenders, Decision, Reason, TooManyFailures};
use crate::facts::{FleetFacts, NodeView, Observed, Owner, PoolFacts, in_order};
use crate::rules::GateQuery;
use conditions::{NO_NODES, accepted, missing, unanswered_gate, waits_for_ever, without_force};

/// What the status of a pool should show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPoolStatus {
    counts: NodeCounts,
    next_window: Option<NextWindow>,
    versions: Vec<VersionCount>,
    conditions: [DesiredCondition; 5],
}

/// What is seen of the nodes of one pool.
#[derive(Default)]
struct Tally<'a> {
    progress: Progress<'a>,
    versions: BTreeMap<&'a str, u64>,
    /// Those whose update has not begun, by the word of the reason.
    waiting: BTreeMap<&'static str, WaitingGroup<'a>>,
    /// Why a version is halted that one of them wants.
    halted: Option<Reason<'a>>,
    /// Why neither this pool nor another one owns some nodes.
    contends: Option<Reason<'a>>,
}

/// Nodes that wait for the same.
struct WaitingGroup<'a> {
    nodes: u64,
    /// Why the first of them waits.
    reason: Reason<'a>,
    /// The version that it runs, and the one that it waits for.
    from_to: Option<(&'a str, &'a str)>,
}

/// Why a query of a gate has no answer.
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
    unanswered: impl Fn(&GateQuery) -> Option<NoAnswer<'q>>,
    may_force: bool,
) -> Vec<DesiredPoolStatus> {
    let fleet = &observed.fleet;
    let mut tallies: Vec<Tally<'_>> = fleet.pools.iter().map(|_| Tally::default()).collect();
    let mut slot_of = in_order(fleet.slots);
    for (view, decision) in observed.views.iter().zip(nodes) {
        let slot = slot_of(view.shadow_name).filter(|slot| view.holds(slot));
        if let Owner::Pool(index) = view.owner
            && let Some(tally) = tallies.get_mut(index)
        {
            tally.count(
                view,
                fleet.pools.get(index),
                slot.is_some(),
                decision.reason,
            );
        }
        if let Owner::Conflict(one, other) = view.owner {
            let why =
                Reason::PoolConflict(Contenders(fleet.pool_name(one), fleet.pool_name(other)));
            for index in [one, other] {
                if let Some(tally) = tallies.get_mut(index) {
                    tally.contends.get_or_insert(why);
                }
            }
        }
    }
    let pools = fleet.pools.iter().zip(tallies);
    pools
        .map(|(pool, tally)| {
            let forceless = || without_force(pool).filter(|_| !may_force);
            let unready = unanswered_gate(pool, &unanswered).or_else(forceless);
            tally.status(fleet, pool, unready)
        })
        .collect()
}

impl<'a> Tally<'a> {
    fn count(
        &mut self,
        view: &NodeView<'a>,
        pool: Option<&PoolFacts<'a>>,
        has_slot: bool,
        reason: Reason<'a>,
    ) {
        let Some(node) = view.node.filter(|node| node.labelled) else {
            return;
        };
        if let Some(version) = node.version() {
            *self.versions.entry(version).or_default() += 1;
        }
        if matches!(reason, Reason::VersionHalted(TooManyFailures::Version(_))) {
            self.halted = Some(reason);
        }
        if self.progress.count(view, pool, has_slot, reason) {
            let from_to = node
                .version()
                .zip(view.shadow.and_then(|shadow| shadow.update()));
            let first = WaitingGroup {
                nodes: 0,
                reason,
                from_to,
            };
            self.waiting.entry(reason.as_str()).or_insert(first).nodes += 1;
        }
    }

    fn status(
        mut self,
        fleet: &FleetFacts<'_>,
        pool: &PoolFacts<'_>,
        unready: Option<DesiredCondition>,
    ) -> DesiredPoolStatus {
        let counts = NodeCounts {
            unavailable_limit: pool.limit,
            ..self.progress.counts
        };
        let window = pool.next_window;
        let mut versions: Vec<VersionCount> = std::mem::take(&mut self.versions)
            .into_iter()
            .map(|(version, nodes)| VersionCount {
                version: printable(version, VERSION_MAX).into_owned(),
                nodes,
            })
            .collect();
        versions.sort_by(|one, other| {
            other
                .nodes
                .cmp(&one.nodes)
                .then_with(|| one.version.cmp(&other.version))
        });
        versions.truncate(POOL_VERSIONS_MAX);
        let accepted = accepted(pool);
        let invalid = (accepted.status == ConditionStatus::False).then_some(&accepted);
        let stalled = |reason: Reason<'_>| {
            DesiredCondition::of(
                STALLED,
                ConditionStatus::True,
                reason.as_str(),
                &reason.message(),
            )
        };
        let [contends, missing, halted] =
            [self.contends, missing(pool), self.halted].map(|it| it.map(stalled));
        // Of a version that the other pool was done with before, its nodes are updated all the same.
        let waits_for_pool = self
            .waiting
            .values()
            .any(|group| matches!(group.reason, Reason::WaitingForPool(_)));
        let goes_on = counts.updating_nodes > 0 || !(self.waiting.is_empty() || waits_for_pool);
        let waits = if goes_on {
            None
        } else {
            waits_for_ever(fleet, pool, waits_for_pool)
        };
        let stalls = invalid
            .or(contends.as_ref())
            .or(missing.as_ref())
            .or(waits.as_ref())
            .or(halted.as_ref());
        let [ready, stalled] = health(stalls, unready);
        let progressing = self.progressing(pool, fleet.versions, &ready);
        let updated = self.progress.updated_condition(NO_NODES);
        let conditions = [accepted, progressing, updated, ready, stalled];
        DesiredPoolStatus {
            counts,
            next_window: window.map(|window| NextWindow {
                start: window.start.to_string(),
                end: (!window.reopens).then(|| window.end.to_string()),
            }),
            versions,
            conditions,
        }
    }
}

impl DesiredPoolStatus {
    /// Whether all of this, of the pool's spec as it is now, is stored already.
    pub fn is_stored_in(&self, pool: &WatchedPool) -> bool {
        let (Some(stored), generation) = (pool.stored(), pool.observed()) else {
            return false;
        };
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
    pub fn patch(&self, pool: &WatchedPool, now: &str) -> Value {
        let stored = pool.stored().map_or(&[][..], |status| &status.conditions);
        let generation = pool.observed();
        let conditions = self
            .conditions
            .iter()
            .map(|wanted| wanted.stored_over(stored, generation, now));
        let ObjectMeta { name, uid, .. } = &pool.item.metadata;
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

impl WatchedPool {
    /// The generation of the spec, as conditions have it.
    fn observed(&self) -> Option<u64> {
        generation(&self.item.ok()?.metadata)
    }
}

#[cfg(test)]
mod tests;
