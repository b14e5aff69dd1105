//! Which nodes' pods are watched, and what follows from their pods: what a drain has to do, and what no drain gets
//! past.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::facts::ShadowFacts;
use brupop_api::shadow::{DrainObstacle, Failures};
use brupop_api::{Item, Marker, State, names};
use jiff::{SignedDuration, Timestamp};

use super::wake::Wake;
use crate::evict::{EvictionAnswer, Evictions};
use crate::operation::ApiServer;
use crate::watches::{PodWatches, WantedPods, Watches, WorkloadWatches};
use brupop_core::cluster::{Cluster, Entry};
use brupop_core::deadlines::drain_is_overdue;
use brupop_core::drain::{
    self, Circumstances, DrainAction, DrainPlan, LATE, LOOKS_AT_ONCE, Obstacle, PodKey, drain_action,
    identity,
};
use brupop_core::kept::Dropped;
use brupop_core::known::{Known, RulesByOwner};
use brupop_core::objects::{Budget, PodItem, is_operator_pod};
use brupop_core::policy::Policy;
use brupop_core::rules::Rules;
use brupop_core::workloads::owner;
use brupop_core::workloads::{Returns, Workload};

/// A node is passed over for this long after its pods were last looked at, if there are too many such nodes, or too many pods,
/// to watch all.
const PASSED_OVER: Duration = Duration::from_mins(5);

/// Why a node is passed over, and since when for a reason of this kind.
pub(super) struct PassedOver {
    obstacle: Obstacle,
    since: Duration,
    /// When its pods were last looked at.
    seen: Duration,
    /// Its pods may be watched. If not, there was no room for them, and they are looked at again when it is not passed over any
    /// more.
    watched: bool,
}

/// What the pods of a node are watched for, the most important first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum For {
    /// It is being emptied, and watched already: nobody takes its watch before it is empty.
    Drain,
    /// It is being emptied.
    DrainAnew,
    /// It is about to be emptied.
    DrainNext,
    /// It is the next to start.
    Start,
    /// It will be emptied once its host has staged the update.
    DrainSoon,
    /// It is passed over; a change of its pods may end that.
    Another,
}

/// What follows from the pods of a node. It is computed again only when something changes from which it follows.
pub(super) struct NodePods {
    from: Basis,
    /// When time alone changes it.
    until: Option<Duration>,
    /// The workloads of the pods.
    workloads: Vec<Workload>,
    /// `None` as long as a workload is not known.
    drain: Option<NodeDrain>,
}

/// What a drain has to do, and what stands in its way.
#[derive(PartialEq, Eq)]
struct NodeDrain {
    plan: Arc<DrainPlan>,
    obstacle: Option<Obstacle>,
}

/// From what it follows.
#[derive(PartialEq, Eq)]
struct Basis {
    /// Of pods, budgets and workloads; see [`PodWatches`].
    revisions: [u64; 3],
    marker: Option<Marker>,
    idle: bool,
    failures: Option<Failures>,
    /// How long a drain may take.
    deadline: SignedDuration,
    /// A drain has taken that long.
    overdue: bool,
    /// Does the node's drain respect pods that ask not to be disrupted?
    respects: bool,
}

impl Basis {
    fn of(entry: Option<&Entry>, revisions: [u64; 3], rules: &Rules, around: &Around<'_>) -> Self {
        // Once an update runs, a pod that loses its DaemonSet will be deleted; the drain waits for that.
        let shadow = entry.and_then(Entry::shadow);
        let marker = entry.and_then(Entry::marker);
        let deadline = rules.durations.drain;
        Self {
            revisions,
            marker: marker.cloned(),
            idle: shadow.is_none_or(|shadow| shadow.spec.state == State::Idle),
            failures: shadow.and_then(|shadow| shadow.spec.failures.clone()),
            deadline,
            overdue: marker.is_some_and(|marker| drain_is_overdue(marker, deadline, around.time)),
            respects: rules.respect_do_not_disrupt,
        }
    }

    /// Is the update as far as it was, so that at most pods, budgets and workloads are others?
    fn is_as_far_as(&self, other: &Self) -> bool {
        let Self { revisions: _, marker, idle, failures, deadline, overdue, respects } = self;
        (marker, idle, failures, deadline, overdue, respects)
            == (&other.marker, &other.idle, &other.failures, &other.deadline, &other.overdue, &other.respects)
    }
}

impl NodePods {
    /// All that decisions depend on.
    fn leads_to(&self) -> (&Option<NodeDrain>, Option<Duration>, &[Workload]) {
        (&self.drain, self.until, &self.workloads)
    }
}

impl PassedOver {
    /// Does it stand still? Not if the last look at the pods is too long ago.
    fn stands(&mut self, pods_known: bool, patience: Duration, now: Duration, wake: &mut Wake) -> bool {
        if !pods_known {
            wake.by(self.seen + PASSED_OVER);
            if now >= self.seen + PASSED_OVER {
                return false;
            }
        }
        if let Obstacle::Now { for_long, .. } = &mut self.obstacle {
            *for_long = now >= self.since + patience;
            if !*for_long {
                wake.by(self.since + patience);
            }
        }
        true
    }
}

/// Knows the pods of the nodes that are emptied, or will be soon, and what was tried with them.
#[derive(Default)]
pub(super) struct Drainer {
    pods: PodWatches,
    workloads: WorkloadWatches,
    /// Shadows of the nodes that start next, or will: their pods are looked at before that.
    preflight: BTreeSet<String>,
    /// What follows from the pods of nodes, by name of the shadow.
    node_pods: BTreeMap<String, NodePods>,
    /// The node whose pods were looked at last: the one after it is next, so that each has its turn.
    looked_at: String,
    /// Nodes that are passed over because of their pods, by name of the shadow.
    passed_over: BTreeMap<String, PassedOver>,
    evictions: Evictions,
    returns: Returns,
}

/// What a look at pods needs to know beside them.
pub(super) struct Around<'a> {
    pub(super) api: &'a ApiServer,
    pub(super) watches: &'a Watches,
    pub(super) policy: &'a Policy,
    pub(super) now: Duration,
    /// The time at `now`.
    pub(super) time: Timestamp,
}

impl Drainer {
    /// Watches the pods of nodes that are being emptied, or will be soon, and makes drain plans from those that are
    /// known.
    pub(super) fn watch(
        &mut self,
        around: &Around<'_>,
        cluster: &Cluster,
        known: &mut Known,
        wake: &mut Wake,
    ) {
        let &Around { api, watches, now, .. } = around;
        self.note_dropped(self.pods.take_dropped(), now);
        let wanted = self.wanted(cluster).into_iter();
        let wanted =
            wanted.map(|(why, shadow, node)| WantedPods { shadow, node, spare: why == For::Another });
        self.pods.want(&api.client, watches, wanted, now);
        self.look_at_pods(around, cluster, known);
        self.watch_workloads(around, cluster, known);
        // The watches of workloads have just changed.
        self.look_at_pods(around, cluster, known);
        known.note_drains(self.drains(around, cluster, wake).into_iter(), around.time);
        known.obstacles = self.obstacles(around, cluster, known, wake);
        self.evictions.retain(known.drains.values().map(|drain| &*drain.plan));
        self.returns.retain(|name| known.drains.contains_key(name));
        for namespace in self.pods.relaxed() {
            self.evictions.retry(&namespace, now);
        }
    }

    /// Notes of which nodes no pods are kept any more, because there are too many of them, or because others needed the room.
    fn note_dropped(&mut self, dropped: BTreeMap<String, Dropped>, now: Duration) {
        for (name, why) in dropped {
            if why == Dropped::TooMany {
                let obstacle = Obstacle::TooManyPods;
                self.passed_over.insert(name, PassedOver { obstacle, since: now, seen: now, watched: false });
            } else if let Some(passed_over) = self.passed_over.get_mut(&name) {
                passed_over.watched = false;
            }
        }
    }

    /// Has the pods watched of these nodes, which start next, from the next pass on. Returns whether they are others than
    /// before.
    pub(super) fn preflight(&mut self, names: BTreeSet<String>) -> bool {
        let changed = names != self.preflight;
        self.preflight = names;
        changed
    }

    /// How many budgets cannot be read.
    pub(super) fn unreadable_budgets(&self) -> usize {
        self.pods.unreadable_budgets()
    }

    /// At most this many pods of the plan that are due to be removed. Their removal begins. The pass notes when others are
    /// due.
    pub(super) fn begin(
        &mut self,
        plan: &DrainPlan,
        room: usize,
        now: Duration,
        wake: &mut Wake,
    ) -> Vec<PodKey> {
        let due: Vec<PodKey> = self.evictions.due(plan, now).into_iter().take(room).cloned().collect();
        for pod in &due {
            self.evictions.begin(pod.clone());
            self.returns.eviction_begins(&pod.uid);
        }
        if let Some(next) = self.evictions.next(plan, now) {
            wake.by(next);
        }
        due
    }

    /// A removal was answered. Returns whether the answer is news.
    pub(super) fn answered(&mut self, pod: &PodKey, answer: &EvictionAnswer, now: Duration) -> bool {
        self.evictions.answered(pod, answer, now)
    }

    /// The first pod of this drain whose eviction has been refused for long, and why.
    pub(super) fn lasting_refusal<'p>(&self, plan: &'p DrainPlan) -> Option<(&'p PodKey, &str)> {
        self.evictions.lasting_refusal(plan)
    }

    /// What holds this drain up at this time, as a sentence.
    pub(super) fn held_up_by(&self, plan: &DrainPlan, time: Timestamp) -> Option<String> {
        self.evictions.held_up_by(plan, time)
    }

    /// Looks at the pods of the nodes where something has changed, in turn. However many there are, it does a bounded part of
    /// this at once, and then the loop goes on with it. Until then a node keeps what followed from its pods, unless its update has
    /// come further: then nothing is known. Returns whether anything else follows from pods than before.
    pub(super) fn look_at_pods(&mut self, around: &Around<'_>, cluster: &Cluster, of_nodes: &Known) -> bool {
        let now = around.now;
        let Self { pods: watched, workloads, node_pods, returns, looked_at, .. } = self;
        let Some(budgets_revision) = watched.budgets_revision() else {
            return !std::mem::take(node_pods).is_empty();
        };
        let mut budgets = None;
        let mut changed = watched.has_dropped();
        let known = watched.known();
        node_pods.retain(|name, _| known.contains_key(name));
        let rules = RulesByOwner::new(cluster, around.policy);
        let mut cost = 0;
        for (name, pods) in after(&known, &looked_at.clone()) {
            let entry = cluster.entries.get(name);
            let revisions = [*pods, budgets_revision, workloads.revision()];
            let from = Basis::of(entry, revisions, rules.of(of_nodes.owner(name)), around);
            let before = node_pods.get(name);
            if before.is_some_and(|it| it.from == from && it.until.is_none_or(|until| now < until)) {
                continue;
            }
            if cost >= LOOKS_AT_ONCE {
                around.watches.pods_changed.notify_one();
                let is_past = before.is_some_and(|before| !before.from.is_as_far_as(&from));
                changed |= is_past && node_pods.remove(name).is_some();
                continue;
            }
            looked_at.clone_from(name);
            let (pods, budgets) = (watched.pods(name), budgets.get_or_insert_with(|| watched.budgets()));
            cost += drain::cost(pods.iter().map(AsRef::as_ref), budgets);
            let look = Look { name, around, pods: &pods, budgets, workloads };
            let after = look.at(from, returns);
            changed |= before.is_none_or(|before| before.leads_to() != after.leads_to());
            node_pods.insert(name.clone(), after);
        }
        changed
    }

    /// The drains of nodes whose pods are known, and what those fail on that may fail now.
    fn drains(
        &self,
        around: &Around<'_>,
        cluster: &Cluster,
        wake: &mut Wake,
    ) -> Vec<(String, Arc<DrainPlan>, Option<DrainObstacle>)> {
        let mut budgets = None;
        let mut drains = vec![];
        for (name, found) in self.node_pods.iter().filter(|(name, _)| cluster.entries.contains_key(*name)) {
            if let Some(until) = found.until {
                wake.by(until);
            }
            let Some(NodeDrain { plan, .. }) = &found.drain else { continue };
            let may_fail = found.from.overdue || plan.needed.is_some() || !plan.returning.is_empty();
            let fails = may_fail && !found.from.idle;
            let failing = || {
                let (pods, budgets) =
                    (self.pods.pods(name), budgets.get_or_insert_with(|| self.pods.budgets()));
                let refused = |pod: &PodKey| self.evictions.is_refused(pod);
                drain::failing_on(plan, || pods.iter().map(AsRef::as_ref), budgets, refused, around.time)
            };
            drains.push((name.clone(), Arc::clone(plan), fails.then(failing).flatten()));
        }
        drains
    }

    /// Notes which nodes are passed over because of their pods. Returns what stands in the way of their drains.
    fn obstacles(
        &mut self,
        around: &Around<'_>,
        cluster: &Cluster,
        known: &Known,
        wake: &mut Wake,
    ) -> BTreeMap<String, Obstacle> {
        let now = around.now;
        let Self { node_pods, passed_over, .. } = self;
        for name in known.drains.keys() {
            let Some(NodeDrain { obstacle, .. }) = node_pods.get(name).and_then(|it| it.drain.as_ref())
            else {
                continue;
            };
            let before = passed_over.remove(name);
            if let Some(obstacle) = obstacle.clone() {
                let same = |before: &PassedOver| discriminant(&before.obstacle) == discriminant(&obstacle);
                let since = before.filter(same).map_or(now, |before| before.since);
                passed_over.insert(name.clone(), PassedOver { obstacle, since, seen: now, watched: true });
            }
        }
        let rules = RulesByOwner::new(cluster, around.policy);
        passed_over.retain(|name, passed_over| {
            let patience =
                Duration::try_from(rules.of(known.owner(name)).durations.drain).unwrap_or_default();
            let pods_known = known.drains.contains_key(name);
            cluster.has_shadow(name) && passed_over.stands(pods_known, patience, now, wake)
        });
        passed_over.iter().map(|(name, it)| (name.clone(), it.obstacle.clone())).collect()
    }

    /// Watches the workloads whose pods are about to be evicted, and those that have to become available again.
    fn watch_workloads(&mut self, around: &Around<'_>, cluster: &Cluster, known: &mut Known) {
        let evicted = known.monitored(cluster, &RulesByOwner::new(cluster, around.policy));
        let slots = cluster.ledger().map(|status| &status.slots);
        let mut of_updates: BTreeSet<Workload> =
            evicted.values().flatten().filter_map(|(owner, _)| Workload::parse(owner)).collect();
        let mut of_others = BTreeSet::new();
        for (name, node_pods) in &self.node_pods {
            let updates = slots.is_some_and(|slots| slots.contains_key(name));
            let of = if updates { &mut of_updates } else { &mut of_others };
            of.extend(node_pods.workloads.iter().cloned());
        }
        self.workloads.want(&around.api.client, around.watches, [of_updates, of_others]);
        known.note_evicted(&evicted, |owners| self.workloads.evicted(owners));
    }

    /// The nodes whose pods should be watched (name of the shadow, name of the node), the most important first.
    fn wanted<'c>(&self, cluster: &'c Cluster) -> Vec<(For, &'c str, &'c str)> {
        let entries = cluster.entries.iter().filter_map(|(name, entry)| {
            Some((self.wanted_for(cluster, name, entry)?, name.as_str(), names::node_of_shadow(name)?))
        });
        let mut wanted: Vec<_> = entries.collect();
        wanted.sort_unstable();
        wanted
    }

    fn wanted_for(&self, cluster: &Cluster, name: &str, entry: &Entry) -> Option<For> {
        entry.node.as_ref()?;
        if self.passed_over.get(name).is_some_and(|passed_over| !passed_over.watched) {
            return None;
        }
        let shadow = ShadowFacts::of(entry.shadow()?)?;
        let slot = cluster.ledger().and_then(|status| status.slots.get(name));
        let begins = slot.is_some_and(|slot| Some(slot.attempt) > shadow.spec.attempt);
        let granted = shadow.spec.reboot_from_boot_id.is_some();
        match shadow.spec.state {
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if granted => None,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if entry.marker().is_some() => {
                Some(if self.pods.watches(name) { For::Drain } else { For::DrainAnew })
            }
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if shadow.reached() => {
                Some(For::DrainNext)
            }
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate => Some(For::DrainSoon),
            State::Idle if begins => Some(For::DrainSoon),
            State::Idle if self.preflight.contains(name) => Some(For::Start),
            // Watched as long as there is room, to see when that changes.
            State::Idle if self.passed_over.contains_key(name) => Some(For::Another),
            State::Idle | State::MonitoringUpdate | State::ErrorReset => None,
        }
    }
}

/// All of them, and first those after the last one at which was looked.
fn after<'k>(known: &'k BTreeMap<String, u64>, last: &str) -> impl Iterator<Item = (&'k String, &'k u64)> {
    let after_it = known.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
    after_it.chain(known.range::<str, _>((Bound::Unbounded, Bound::Included(last))))
}

/// A look at the pods of one node.
struct Look<'l> {
    name: &'l str,
    around: &'l Around<'l>,
    pods: &'l [Arc<PodItem>],
    budgets: &'l [Arc<Item<Budget>>],
    workloads: &'l WorkloadWatches,
}

impl Look<'_> {
    fn at(&self, from: Basis, returns: &mut Returns) -> NodePods {
        let &Self { name, around, budgets, workloads, .. } = self;
        let &Around { api, policy, now, time, .. } = around;
        let ours = |pod: &PodItem| is_operator_pod(pod, &api.namespace);
        let orphaned = |pod: &PodItem| workloads.orphaned(pod);
        let pods = || self.pods.iter().map(AsRef::as_ref);
        let marker = from.marker.as_ref();
        let overlooked = (policy.force && from.overdue).then(|| time.checked_sub(LATE).ok()).flatten();
        let mut plan = DrainPlan::of(pods(), ours, orphaned, marker, overlooked);
        if from.respects {
            plan.respect(pods());
        }
        let evicted =
            || pods().filter(|pod| !ours(pod) && drain_action(pod, orphaned(pod)) != DrainAction::Stays);
        let until = leave(&mut plan, returns, name, marker, &evicted, budgets, now);
        if !policy.force {
            plan.put_first(pods(), budgets, from.failures.as_ref());
        }
        let Basis { deadline, respects, failures, .. } = &from;
        let circumstances =
            Circumstances { time, deadline: *deadline, respects: *respects, failures: failures.as_ref() };
        let changes = circumstances.changes_at(pods());
        let changes = changes.map(|at| now + Duration::try_from(at.duration_since(time)).unwrap_or_default());
        let until = until.into_iter().chain(changes).min();
        plan.keep_available(|owner| workloads.found(owner));
        // A drain that has begun does not wait until workloads that appear meanwhile are known.
        let begun = marker.is_some_and(|marker| marker.drain_started_at.is_some());
        let known = begun || pods().filter_map(owner).all(|owner| workloads.found(&owner).is_some());
        let drain = known.then(|| {
            let orphaned = |pod: &PodItem| from.idle && orphaned(pod);
            let obstacle = drain::obstacle(pods, budgets, ours, orphaned, &circumstances);
            NodeDrain { plan: Arc::new(plan), obstacle }
        });
        let workloads: BTreeSet<_> = pods().filter_map(|pod| Workload::parse(&owner(pod)?)).collect();
        NodePods { from, until, workloads: workloads.into_iter().collect(), drain }
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
    let found = returns.observe(shadow, began, stay.map(|pod| (pod.uid().to_owned(), identity(pod))), now);
    plan.hold(&found.held);
    plan.returning = found.owners;
    if !left.is_empty() || !plan.returning.is_empty() {
        let is_left =
            |pod: &&PodItem| [left, &plan.returning].iter().any(|them| them.contains(&identity(pod)));
        (plan.needed, plan.needed_by) = drain::covered(pods().filter(is_left), budgets).unzip();
    }
    found.next
}

#[cfg(test)]
mod tests;
