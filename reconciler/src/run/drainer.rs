//! Decides which nodes' pods are watched, plans drains, and finds nodes that no drain can empty. Reads the workloads whose pods are
//! evicted: before the drain, and once the node is in service again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brupop_api::marker::EVICTED_OWNERS_MAX;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{Item, Marker, State};
use brupop_core::cluster::{Cluster, NodeRecord};
use brupop_core::deadlines::DrainTime;
use brupop_core::decide::{Abort, Decisions};
use brupop_core::drain::{
    self, Arrivals, DrainAction, DrainPlan, LATE, Obstacle, PodKey, Stuck, drain_action,
    next_overdue,
};
use brupop_core::facts::NodeView;
use brupop_core::leader::LeaderState;
use brupop_core::objects::{Budget, PodItem, is_operator_pod};
use brupop_core::rules::Policy;
use brupop_core::rules::Rules;
use brupop_core::workloads::{self, Evicted, Scale, Scales, Workload};
use brupop_runtime::errors::describe;
use brupop_runtime::{Listing, named};
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::Api;
use kube::{Client, Error};

use crate::run::Reconciler;
use crate::run::evict::Evictions;
use crate::run::{Pass, Wake, until};
use crate::watches::{For, PodWatches, WantedPods};

/// A node is passed over for this long after its pods were last looked at, if there are too many such nodes, or too many pods,
/// to watch all.
const PASSED_OVER: Duration = Duration::from_mins(5);

/// Looks at pods that take longer than this in sum are not made without a pause, but for one.
const LOOKS_AT_ONCE: Duration = Duration::from_millis(5);

/// Knows the pods of the nodes that are emptied, or will be soon, and what was tried with them.
#[derive(Default)]
pub(crate) struct Drainer {
    watched: PodWatches,
    pub(crate) workloads: WorkloadReads,
    pub(crate) evictions: Evictions,
    /// Shadows of the nodes that start next, or will: their pods are looked at before that.
    preflight: BTreeSet<String>,
    /// Facts about the pods of nodes, by name of the shadow.
    looks: BTreeMap<String, Look>,
    /// The node whose pods were looked at last: the one after it is next, so that each has its turn.
    looked_at: String,
    /// Nodes that are passed over because of their pods, by name of the shadow.
    passed_over: BTreeMap<String, PassedOver>,
}

/// The result of a look at the pods of a node. It is computed again only when something changes from which it follows.
struct Look {
    /// Of the pods of the node, and of all budgets.
    revisions: [u64; 2],
    from: Basis,
    /// When time alone changes it.
    until: Option<Duration>,
    /// The plan of the drain.
    plan: Arc<DrainPlan>,
    obstacle: Option<Obstacle>,
    /// The pods (UIDs) that a budget blocked when the drain began, and those that may take longer to end than the drain does.
    first: BTreeSet<String>,
    /// The pods that came during the drain, if it has begun.
    arrivals: Option<Arrivals>,
}

/// The progress of the update: the input of a look, apart from pods and budgets.
#[derive(PartialEq, Eq)]
struct Basis {
    marker: Option<Marker>,
    time: DrainTime,
    /// Whether the node's drain respects pods that ask not to be disrupted.
    respects: bool,
    /// Whether pods that are left at the drain's deadline are deleted.
    force: bool,
    /// The time that the drain may take, in seconds.
    drain: i64,
}

/// The reason why a node is passed over.
struct PassedOver {
    obstacle: Obstacle,
    /// Time for which it has waited for budgets, while no other node of its pool was drained.
    waited: Duration,
    /// The time since which it does so, if it does now.
    waits_since: Option<Duration>,
    /// When its pods were last looked at.
    seen: Duration,
}

impl Drainer {
    /// Watches the pods of nodes that are being emptied, or will be soon, and makes drain plans from those that are
    /// known.
    pub(crate) fn watch(
        &mut self,
        reconciler: &Reconciler,
        cluster: &mut Cluster,
        leader: &LeaderState,
        (now, time): (Duration, Timestamp),
        wake: &mut Wake,
    ) {
        self.pass_over_too_many(now);
        let wanted = self.wanted(cluster);
        let (client, watches) = (&reconciler.api.client, &reconciler.watches);
        self.watched.want(client, watches, wanted, now);
        self.look_at_pods(reconciler, cluster, leader, (now, time));
        self.looks
            .retain(|name, _| cluster.records.contains_key(name));
        let mut obstacles = self.obstacles(&reconciler.policy, cluster, now, wake);
        let plans = self.looks.values().map(|look| &*look.plan);
        self.evictions.retain(plans);
        for (name, record) in &mut cluster.records {
            let drain = self.looks.get(name).map(|look| {
                wake.by(look.until);
                let (plan, is_over) = (&look.plan, look.from.time.is_over);
                let left = |pod: &PodKey| format!("{}/{} is left", pod.namespace, pod.name);
                let any_left = || plan.remaining().next().filter(|_| is_over).map(left);
                let held_up_by = || self.evictions.held_up_by(plan, time).or_else(any_left);
                let begun = look.from.begun();
                (Arc::clone(plan), begun.and_then(|_| held_up_by()))
            });
            record.record_drain(drain, time);
            record.led.scales = self.workloads.scales(name).cloned();
            record.led.obstacle = obstacles.remove(name);
        }
        for namespace in self.watched.relaxed() {
            self.evictions.retry(&namespace, now);
        }
    }

    /// Has the pods watched of these nodes, which start next, from the next pass on. Returns whether they are others than
    /// before.
    pub(crate) fn preflight(&mut self, names: BTreeSet<String>) -> bool {
        let changed = names != self.preflight;
        self.preflight = names;
        changed
    }

    /// Returns how many budgets cannot be read.
    pub(crate) fn unreadable_budgets(&self) -> usize {
        let budgets = self.watched.budgets().all();
        budgets.iter().filter(|budget| budget.body.is_err()).count()
    }

    /// Looks at the pods of the nodes where something has changed, in turn. However many there are, it does a bounded part of
    /// this at once, and then the loop goes on with it. Until then a node keeps what followed from its pods, unless its update has
    /// come further: then nothing is known. Returns whether anything else follows from pods than before.
    pub(crate) fn look_at_pods(
        &mut self,
        reconciler: &Reconciler,
        cluster: &Cluster,
        leader: &LeaderState,
        (now, time): (Duration, Timestamp),
    ) -> bool {
        let Some(budgets_revision) = self.watched.budgets_revision() else {
            return !std::mem::take(&mut self.looks).is_empty();
        };
        let known = self.watched.known();
        let before = self.looks.len();
        self.looks.retain(|name, _| known.contains_key(name));
        let has_too_many = self.watched.pods().too_many().next().is_some();
        let mut changed = has_too_many || self.looks.len() < before;
        let (mut budgets, mut began, namespace) = (None, None, &reconciler.api.namespace);
        for (name, revision) in in_turn(&known, &self.looked_at.clone()) {
            let record = cluster.records.get(name);
            let rules = cluster.rules(cluster.owner(name), &reconciler.policy);
            let revisions = [*revision, budgets_revision];
            let from = Basis::new(record, rules, leader, time);
            let before = self.looks.get(name);
            let is_over = |look: &Look| look.until.is_some_and(|until| until <= now);
            let is_same = |look: &Look| look.revisions == revisions && look.from == from;
            if before.is_some_and(|look| is_same(look) && !is_over(look)) {
                continue;
            }
            // The watch lists the pods once it is told of the cordon.
            let is_listed = from.begun() == self.watched.drain(name);
            let has_to_pause = began.is_some_and(|at: Instant| at.elapsed() >= LOOKS_AT_ONCE);
            if has_to_pause || !is_listed {
                if is_listed {
                    reconciler.watches.pods_changed.notify_one();
                }
                if before.is_some_and(|look| look.from != from) {
                    changed |= self.looks.remove(name).is_some();
                }
                continue;
            }
            self.looked_at.clone_from(name);
            let pods = self.watched.pods().of(name);
            let budgets = budgets.get_or_insert_with(|| self.watched.budgets().all());
            began.get_or_insert_with(Instant::now);
            let ours = |pod: &PodItem| is_operator_pod(pod, namespace);
            let look = Look::at(&pods, budgets, revisions, from, before, (now, time), ours);
            changed |= before.is_none_or(|before| before.leads_to() != look.leads_to());
            self.looks.insert(name.clone(), look);
        }
        changed
    }

    /// The nodes whose pods should be watched, the most important first.
    fn wanted<'c>(&self, cluster: &'c Cluster) -> Vec<WantedPods<'c>> {
        let wanted = cluster.records.iter().filter_map(|(name, record)| {
            let marker = record.marker();
            Some(WantedPods {
                what_for: self.wanted_for(cluster, name, record)?,
                shadow: name,
                drain: begun(marker),
            })
        });
        let mut wanted: Vec<_> = wanted.collect();
        wanted.sort_unstable();
        wanted
    }

    fn wanted_for(&self, cluster: &Cluster, name: &str, record: &NodeRecord) -> Option<For> {
        record.node.as_ref()?;
        let passed_over = self.passed_over.get(name);
        if passed_over.is_some_and(|it| it.obstacle == Obstacle::TooManyPods) {
            return None;
        }
        let shadow = ShadowFacts::of(record.shadow()?)?;
        let slot = cluster.ledger().and_then(|status| status.slots.get(name));
        let begins = slot.is_some_and(|slot| Some(slot.attempt) > shadow.spec.attempt);
        let is_granted = shadow.spec.reboot_granted_boot_id.is_some();
        match shadow.spec.state {
            _ if shadow.is_of_other_operator() => None,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate => {
                match (record.marker(), self.watched.watches(name)) {
                    _ if is_granted => None,
                    (Some(_), true) => Some(For::Drain),
                    (Some(_), false) => Some(For::DrainUnwatched),
                    (None, _) if shadow.reached() => Some(For::DrainNext),
                    (None, _) => Some(For::DrainSoon),
                }
            }
            State::Idle if begins => Some(For::DrainSoon),
            State::Idle if self.preflight.contains(name) => Some(For::Start),
            // Watched as long as there is room, to see when that changes.
            State::Idle if passed_over.is_some() => Some(For::Another),
            State::Idle | State::MonitoringUpdate | State::ErrorReset => None,
        }
    }

    /// Passes over the nodes of which no pods are kept, because there are too many of them.
    fn pass_over_too_many(&mut self, now: Duration) {
        for name in self.watched.pods().too_many() {
            let passed_over = PassedOver::new(Obstacle::TooManyPods, now);
            self.passed_over.insert(name.to_owned(), passed_over);
        }
    }

    /// Records which nodes are passed over because of their pods. Returns what stands in the way of their drains.
    fn obstacles(
        &mut self,
        policy: &Policy,
        cluster: &Cluster,
        now: Duration,
        wake: &mut Wake,
    ) -> BTreeMap<String, Obstacle> {
        for (name, look) in &self.looks {
            let Some(obstacle) = look.obstacle.clone() else {
                self.passed_over.remove(name);
                continue;
            };
            let new = PassedOver::new(Obstacle::TooManyPods, now);
            let passed_over = self.passed_over.entry(name.clone()).or_insert(new);
            (passed_over.obstacle, passed_over.seen) = (obstacle, now);
        }
        let records = cluster.records.iter();
        let drained = records.filter(|(_, record)| record.is_being_drained());
        let drained: BTreeSet<_> = drained.map(|(name, _)| cluster.owner(name)).collect();
        let mut obstacles = BTreeMap::new();
        self.passed_over.retain(|name, passed_over| {
            let owner = cluster.owner(name);
            let patience = Duration::try_from(cluster.rules(owner, policy).durations.drain)
                .unwrap_or_default();
            passed_over.wait(drained.contains(&owner), patience, now, wake);
            let obstacle = passed_over.obstacle(self.looks.contains_key(name), now, wake);
            let stands = obstacle.is_some();
            obstacles.extend(obstacle.map(|obstacle| (name.clone(), obstacle.clone())));
            cluster.has_shadow(name) && (stands || passed_over.has_clock())
        });
        obstacles
    }
}

/// All of them, and first those after the last one at which was looked.
fn in_turn<'k>(
    known: &'k BTreeMap<String, u64>,
    last: &str,
) -> impl Iterator<Item = (&'k String, &'k u64)> {
    let after_it = known.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
    after_it.chain(known.range::<str, _>((Bound::Unbounded, Bound::Included(last))))
}

impl Basis {
    fn new(
        record: Option<&NodeRecord>,
        rules: &Rules,
        leader: &LeaderState,
        now: Timestamp,
    ) -> Self {
        let marker = record.and_then(NodeRecord::marker);
        let node = record.and_then(|record| record.node.as_ref());
        let uid = node.map_or("", |node| node.uid.as_str());
        let of_node = (uid, marker);
        let shadow = record.and_then(NodeRecord::shadow);
        let spec = shadow.map(|shadow| &shadow.spec);
        let failed_before = spec.is_some_and(|spec| {
            let failure = spec.last_failure.as_ref();
            failure.is_some_and(|it| Abort::is_of_drain(&it.reason))
                && !spec.is_retried(node.and_then(|node| node.retry))
        });
        let drain = rules.durations.drain;
        Self {
            marker: marker.cloned(),
            time: DrainTime::of(&leader.ahead, of_node, drain, failed_before, now),
            respects: rules.respect_do_not_disrupt,
            force: leader.may_force && rules.wants_force,
            drain: drain.as_secs(),
        }
    }

    fn begun(&self) -> Option<&str> {
        begun(self.marker.as_ref())
    }
}

/// Returns when the node was last cordoned for its drain, if that has begun.
fn begun(marker: Option<&Marker>) -> Option<&str> {
    let started = marker?.drain_started_at.as_deref()?;
    Some(marker?.cordoned_at.as_deref().unwrap_or(started))
}

impl Look {
    /// All that decisions depend on.
    fn leads_to(&self) -> (&DrainPlan, &Option<Obstacle>, Option<Duration>) {
        (&self.plan, &self.obstacle, self.until)
    }

    /// Looks at the pods of a node; `before` is what the last look found.
    fn at(
        pods: &[Arc<PodItem>],
        budgets: &[Arc<Item<Budget>>],
        revisions: [u64; 2],
        from: Basis,
        before: Option<&Self>,
        (now, time): (Duration, Timestamp),
        ours: impl Fn(&PodItem) -> bool + Copy,
    ) -> Self {
        let same_drain = before.filter(|before| before.from.begun() == from.begun());
        let arrivals = from.begun().map(|_| {
            let before = same_drain.and_then(|before| before.arrivals.as_ref());
            Arrivals::record(before, pods.iter().map(AsRef::as_ref), now)
        });
        let is_left = |pod: &PodItem| arrivals.as_ref().is_some_and(|it| it.is_left(pod));
        let (left, pods): (Vec<&PodItem>, Vec<&PodItem>) =
            pods.iter().map(AsRef::as_ref).partition(|pod| is_left(pod));
        let pods = || pods.iter().copied();
        let overlooked = (from.force && from.time.is_over)
            .then(|| time.checked_sub(LATE).ok())
            .flatten();
        let mut plan = DrainPlan::of(pods(), ours, from.marker.as_ref(), overlooked);
        if from.respects {
            plan.respect(pods());
        }
        let would_go = |pod: &&PodItem| {
            let action = drain_action(pod);
            matches!(
                action,
                DrainAction::Evicted | DrainAction::Stuck(Stuck::Unmanaged)
            )
        };
        plan.left = left.into_iter().filter(would_go).map(PodKey::of).collect();
        let recent = arrivals.as_ref().map(|arrivals| arrivals.recent(now));
        let recent = recent.unwrap_or_default();
        plan.hold(|uid| recent.contains_key(uid));
        let blocked = from
            .begun()
            .map(|_| drain::blocked_pods(pods, budgets, ours));
        let blocked = blocked.unwrap_or_default();
        plan.is_blocked = !blocked.is_empty();
        let first = same_drain.map_or_else(
            || &blocked | &drain::slow_pods(pods(), from.drain),
            |before| before.first.clone(),
        );
        if !from.force && !from.time.first_over {
            plan.put_first(&first);
        }
        let times = [next_overdue(pods(), time), from.time.next];
        let times = times.into_iter().flatten().map(|at| now + until(time, at));
        let obstacle = drain::obstacle(pods, budgets, ours, from.respects, time);
        Self {
            revisions,
            until: times.chain(recent.into_values()).min(),
            from,
            plan: Arc::new(plan),
            obstacle,
            first,
            arrivals,
        }
    }
}

impl PassedOver {
    fn new(obstacle: Obstacle, seen: Duration) -> Self {
        Self {
            obstacle,
            waited: Duration::ZERO,
            waits_since: None,
            seen,
        }
    }

    /// Returns what stands in the way of the drain. Nothing is known of that if the last look at the pods is too long ago.
    fn obstacle(&self, pods_known: bool, now: Duration, wake: &mut Wake) -> Option<&Obstacle> {
        let ends = self.seen + PASSED_OVER;
        if !pods_known && now < ends {
            wake.by(ends);
        }
        (pods_known || now < ends).then_some(&self.obstacle)
    }

    /// Whether it is kept although nothing is known of the pods any more: the clock of the wait for budgets goes on from look to
    /// look, also if it stands meanwhile.
    fn has_clock(&self) -> bool {
        matches!(self.obstacle, Obstacle::Budget { .. })
    }

    /// Goes on with the clock of the wait for budgets, up to `patience`. It stands while another node of the pool is drained.
    fn wait(&mut self, stands: bool, patience: Duration, now: Duration, wake: &mut Wake) {
        let Obstacle::Budget { waited, .. } = &mut self.obstacle else {
            self.waits_since = None;
            return;
        };
        let since = self.waits_since.unwrap_or(now);
        self.waited += now.saturating_sub(since);
        self.waits_since = (!stands).then_some(now);
        *waited = self.waited >= patience;
        if !stands && !*waited {
            wake.by(now + patience.saturating_sub(self.waited));
        }
    }
}

/// A workload that has fewer pods available than before is read again after the first of these, doubled up to the second.
const READ_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(5)];

/// The reads for all nodes, by name of the shadow.
#[derive(Debug, Default)]
pub(crate) struct WorkloadReads(BTreeMap<String, NodeReads>);

#[derive(Debug, Default)]
struct NodeReads {
    scales: Scales,
    /// The wait between the last read and the next.
    wait: Duration,
    /// When that is over. Instants are durations since any fixed moment of a monotonic clock.
    due: Duration,
    is_under_way: bool,
    /// A decision has asked for them since the last [`WorkloadReads::prune`].
    is_wanted: bool,
}

impl WorkloadReads {
    /// Returns those owners whose workloads are still to be read. Each owner comes with the number of its pods that were available.
    fn unread<'o>(
        &mut self,
        name: &str,
        owners: impl Iterator<Item = (&'o String, u32)>,
    ) -> Vec<(String, Workload)> {
        let reads = self.0.entry(name.to_owned()).or_default();
        reads.is_wanted = true;
        owners
            .filter_map(|(owner, before)| Some((owner, before, Workload::parse(owner)?)))
            .take(EVICTED_OWNERS_MAX)
            .filter(|(owner, before, _)| workloads::is_unread(owner, *before, &reads.scales))
            .map(|(owner, _, workload)| (owner.clone(), workload))
            .collect()
    }

    /// Returns when the next read is due, unless one is under way.
    fn due(&self, name: &str) -> Option<Duration> {
        let reads = self.0.get(name).filter(|reads| !reads.is_under_way)?;
        Some(reads.due)
    }

    /// Records that a read begins.
    fn begin(&mut self, name: &str) {
        if let Some(reads) = self.0.get_mut(name) {
            reads.is_under_way = true;
        }
    }

    fn end(&mut self, name: &str, scales: Scales, now: Duration) {
        if let Some(reads) = self.0.get_mut(name) {
            reads.scales.extend(scales);
            reads.is_under_way = false;
            reads.wait = (reads.wait * 2).clamp(READ_AGAIN[0], READ_AGAIN[1]);
            reads.due = now + reads.wait;
        }
    }

    /// Forgets what no decision has asked for since the last call.
    pub(crate) fn prune(&mut self) {
        self.0
            .retain(|_, reads| std::mem::take(&mut reads.is_wanted));
    }

    /// Returns what was read for a node, if a read has ended.
    pub(crate) fn scales(&self, name: &str) -> Option<&Scales> {
        let reads = self.0.get(name).filter(|reads| !reads.wait.is_zero())?;
        Some(&reads.scales)
    }
}

/// Reads these workloads. Those that do not answer are left out.
async fn read(client: Client, workloads: Vec<(String, Workload)>) -> Scales {
    let reads = workloads
        .iter()
        .map(|(_, workload)| find(&client, workload));
    let answers = join_all(reads).await;
    let answers = workloads.into_iter().zip(answers);
    let scales = answers.filter_map(|((owner, _), answer)| match answer {
        Ok(scale) => Some((owner, scale)),
        Err(error) => {
            let error = describe(&error);
            tracing::warn!(owner, error, "a workload could not be read");
            None
        }
    });
    scales.collect()
}

/// Returns the scale of a workload; `None` without the right to read it, or if the request is refused for another reason that
/// does not go away.
async fn find(client: &Client, workload: &Workload) -> kube::Result<Option<Scale>> {
    let (namespace, resource) = (&workload.namespace, &workload.resource);
    let api = Api::<Item<Scale>>::namespaced_with(client.clone(), namespace, resource);
    // A list of one takes its turn with other large answers.
    let named = named(&workload.name);
    let found = async { Listing::begin(&api, &named).await?.next().await };
    match found.await {
        Ok(object) => Ok(Scale::of(object.as_ref())),
        Err(Error::Api(status)) if matches!(status.code, 400..=409 | 422) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Reconciler {
    /// Reads the workloads of a node that are still to be read, if that is due and there is room. When there is room again, a
    /// request has been answered, and that makes a pass.
    pub(crate) fn read_workloads<'o>(
        &mut self,
        name: &str,
        owners: impl Iterator<Item = (&'o String, u32)>,
        wake: &mut Wake,
    ) {
        let (now, has_room) = (self.now(), self.has_room_for_conditions());
        let reads = &mut self.leading.drainer.workloads;
        let unread = reads.unread(name, owners);
        let Some(due) = reads.due(name) else { return };
        if unread.is_empty() && reads.scales(name).is_some() || !has_room {
            return;
        }
        if now < due {
            return wake.by(due);
        }
        reads.begin(name);
        let (name, read) = (name.to_owned(), read(self.api.client.clone(), unread));
        self.start(read, move |this, scales| {
            let now = this.now();
            this.leading.drainer.workloads.end(&name, scales, now);
        });
    }

    /// Reads the workloads whose pods were evicted, once their node has been in service for long enough.
    pub(crate) fn read_evicted(&mut self, view: &NodeView<'_>, wake: &mut Wake) {
        let name = view.shadow_name;
        let reads = &self.leading.drainer.workloads;
        let is_awaited = view.evicted != Evicted::Back || reads.scales(name).is_some();
        let marker = view.node.and_then(|node| node.marker());
        if let Some(marker) = marker.filter(|_| view.time.verified && is_awaited) {
            let owners = marker.evicted_owners.iter();
            let owners = owners.map(|(owner, before)| (owner, *before));
            self.read_workloads(name, owners, wake);
        }
    }

    /// Has the pods watched of nodes that are next, and of those that get a slot now. The watches begin with the next
    /// pass.
    pub(crate) fn preflight(&mut self, pass: &Pass<'_>, decisions: &Decisions<'_>) {
        let next = decisions.preflight.iter().chain(&decisions.taken);
        let names = next.map(|&index| pass.observed.views[index].shadow_name.to_owned());
        if self.leading.drainer.preflight(names.collect()) {
            self.watches.changed.notify_one();
        }
    }

    /// Returns whether anything else follows from the pods, which have changed, than before.
    pub(crate) fn drains_changed(&mut self) -> bool {
        let watches = Arc::clone(&self.watches);
        let Ok(cluster) = watches.cluster() else {
            return true;
        };
        if !self.leading.state.is_of(&cluster) {
            return true;
        }
        let state = std::mem::take(&mut self.leading.state);
        let mut drainer = std::mem::take(&mut self.leading.drainer);
        let (now, time) = (self.now(), Timestamp::now());
        let changed = drainer.look_at_pods(self, &cluster, &state, (now, time));
        (self.leading.state, self.leading.drainer) = (state, drainer);
        changed
    }
}

#[cfg(test)]
mod tests;
