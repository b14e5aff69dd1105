//! Which nodes' pods are watched, and what follows from their pods: what a drain has to do, and what no drain gets
//! past.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use brupop_api::facts::ShadowFacts;
use brupop_api::{Item, Marker, State, names};

use super::Reconciler;
use super::wake::Wake;
use brupop_core::budgets;
use brupop_core::cluster::{Cluster, Entry, Obstacle};
use brupop_core::drain::{DrainPlan, Fate, fate, identity};
use brupop_core::objects::{Budget, PodItem, is_operator_pod};
use brupop_core::returns::Returns;
use brupop_core::workloads::owner;
use brupop_core::workloads::{Found, Workload};

/// A node is passed over for this long after its pods were last looked at, if there are too many such nodes to watch
/// all.
const PASSED_OVER: Duration = Duration::from_mins(5);

/// Why a node is passed over, and since when.
pub(super) struct PassedOver {
    /// What stands in the way; for a budget that allows nothing now, the budget.
    why: String,
    /// No drain could empty the node; otherwise a budget allows nothing now.
    never: bool,
    since: Duration,
    /// When its pods were last looked at.
    seen: Duration,
}

/// What the pods of a node are watched for, the most important first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum For {
    /// It is being emptied, or about to be.
    Drain,
    /// It is the next to start.
    Start,
    /// It will be emptied once its host has staged the update.
    DrainSoon,
    /// It is passed over; a change of its pods may end that.
    Another,
}

impl Reconciler {
    /// Watches the pods of nodes that are being emptied, or will be soon, and makes drain plans from those that are
    /// known.
    pub(super) fn watch_pods(&mut self, cluster: &mut Cluster, wake: &mut Wake) {
        let mut wanted: Vec<(For, &str, &str)> = vec![];
        for (name, entry) in &cluster.entries {
            let wanted_for = self.wanted_for(cluster, name, entry);
            if let Some((wanted_for, node)) = wanted_for.zip(names::node_of_shadow(name)) {
                wanted.push((wanted_for, name, node));
            }
        }
        wanted.sort_unstable();
        let wanted = wanted.into_iter().map(|(_, name, node)| (name, node));
        self.leading.pods.want(&self.caller.client, &self.watches.changed, &self.watches.failures, wanted);
        self.watch_workloads(cluster);
        let (namespace, now) = (&self.caller.namespace, self.now());
        let ours = |pod: &PodItem| is_operator_pod(pod, namespace);
        let (workloads, returns) = (&self.leading.workloads, &mut self.leading.returns);
        let orphaned = |pod: &PodItem| workloads.orphaned(pod);
        let looked = self.leading.pods.look(|name, pods, budgets| {
            let marker = cluster.entries.get(name).and_then(Entry::marker);
            let pods = || pods.iter().map(AsRef::as_ref);
            let mut plan = DrainPlan::of(pods(), ours, orphaned, marker);
            let evicted = || pods().filter(|pod| !ours(pod) && fate(pod, orphaned(pod)) != Fate::Stays);
            let next = leave(&mut plan, returns, name, marker, &evicted, budgets, now);
            if let Some(next) = next {
                wake.by(next);
            }
            plan.owners.retain(|owner| workloads.found(owner) == Some(Found::Available));
            // A drain that has begun does not wait until workloads that appear meanwhile are known.
            let begun = marker.is_some_and(|marker| marker.drain_started_at.is_some());
            let known = begun || pods().filter_map(owner).all(|owner| workloads.found(&owner).is_some());
            // Once an update runs, a pod that loses its DaemonSet will be deleted; the drain waits for that.
            let idle = cluster.shadow(name).is_none_or(|shadow| shadow.spec.state == State::Idle);
            known.then(|| {
                let never = budgets::undrainable(pods(), budgets, ours, |pod| idle && orphaned(pod));
                let now = || budgets::blocked(pods(), budgets, ours);
                let passed_over =
                    never.map(|why| (true, why)).or_else(|| now().map(|budget| (false, budget)));
                (plan, passed_over)
            })
        });
        for entry in cluster.entries.values_mut() {
            (entry.drain, entry.obstacle) = (None, None);
        }
        for (name, looked) in looked {
            let Some((plan, passed_over)) = looked else { continue };
            let before = self.leading.passed_over.remove(&name);
            if let Some((never, why)) = passed_over {
                let since = before.filter(|before| before.never == never).map_or(now, |before| before.since);
                self.leading.passed_over.insert(name.clone(), PassedOver { why, never, since, seen: now });
            }
            cluster.entry(&name).drain = Some(plan);
        }
        let patience = Duration::try_from(self.policy.durations.drain).unwrap_or_default();
        self.leading.passed_over.retain(|name, PassedOver { why, never, since, seen }| {
            let Some(entry) = cluster.entries.get_mut(name).filter(|entry| entry.shadow.is_some()) else {
                return false;
            };
            if entry.drain.is_none() {
                wake.by(*seen + PASSED_OVER);
                if now >= *seen + PASSED_OVER {
                    return false;
                }
            }
            let for_long = now >= *since + patience;
            if !*never && !for_long {
                wake.by(*since + patience);
            }
            entry.obstacle = Some(match never {
                true => Obstacle::Never(why.clone()),
                false => Obstacle::Now { budget: why.clone(), for_long },
            });
            true
        });
        self.leading.evictions.retain(cluster.drains());
        self.leading.returns.retain(|name| cluster.drain(name).is_some());
        for namespace in self.leading.pods.relaxed() {
            self.leading.evictions.retry(&namespace, now);
        }
    }

    /// Watches the workloads whose pods are about to be evicted, and those that have to become available again.
    fn watch_workloads(&mut self, cluster: &mut Cluster) {
        let workloads = |pods: &[Arc<PodItem>]| -> Vec<Workload> {
            pods.iter().filter_map(|pod| Workload::parse(&owner(pod)?)).collect()
        };
        let looked = self.leading.pods.look(|_, pods, _| workloads(pods));
        let mut wanted: BTreeSet<Workload> = looked.into_values().flatten().collect();
        let evicted =
            if self.policy.durations.workloads.is_zero() { BTreeMap::new() } else { cluster.monitored() };
        wanted.extend(evicted.values().flatten().filter_map(|owner| Workload::parse(owner)));
        self.leading.workloads.want(
            &self.caller.client,
            &self.watches.changed,
            &self.watches.failures,
            wanted,
        );
        for (name, owners) in &evicted {
            cluster.note_evicted(name, self.leading.workloads.evicted(owners));
        }
    }

    fn wanted_for(&self, cluster: &Cluster, name: &str, entry: &Entry) -> Option<For> {
        entry.node.as_ref()?;
        let shadow = ShadowFacts::of(entry.shadow()?)?;
        let begun = shadow.reached() || entry.marker().is_some();
        let has_slot = cluster.status().is_some_and(|status| status.slots.contains_key(name));
        let granted = shadow.spec.reboot_from_boot_id.is_some();
        match shadow.spec.state {
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if granted => None,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if begun => Some(For::Drain),
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate => Some(For::DrainSoon),
            State::Idle if has_slot => Some(For::DrainSoon),
            State::Idle if self.leading.look_at.contains(name) => Some(For::Start),
            // Watched as long as there is room, to see when that changes.
            State::Idle if self.leading.passed_over.contains_key(name) => Some(For::Another),
            State::Idle | State::MonitoringUpdate | State::ErrorReset => None,
        }
    }
}

/// Notes in the plan whose pods have come back each time, and whether a budget covers what would be left for that. Returns
/// when to look again.
fn leave<'p, P: Iterator<Item = &'p PodItem>>(
    plan: &mut DrainPlan,
    returns: &mut Returns,
    shadow: &str,
    marker: Option<&Marker>,
    pods: &impl Fn() -> P,
    budgets: &[Arc<Item<Budget>>],
    now: Duration,
) -> Option<Duration> {
    let began = marker.and_then(|marker| marker.drain_started_at.as_deref());
    let stay = pods().filter(|pod| pod.ok().is_none_or(|pod| pod.gone_by.is_none()));
    let left = marker.map_or(&[][..], |marker| &marker.left_owners);
    let stay = stay.filter(|pod| !left.contains(&identity(pod)));
    let found = returns.look(shadow, began, stay.map(|pod| (pod.uid().to_owned(), identity(pod))), now);
    plan.hold(&found.held);
    plan.returning = found.owners;
    if !left.is_empty() || !plan.returning.is_empty() {
        let is_left =
            |pod: &&PodItem| [left, &plan.returning].iter().any(|them| them.contains(&identity(pod)));
        plan.needed = budgets::covered(pods().filter(is_left), budgets);
    }
    found.next
}
