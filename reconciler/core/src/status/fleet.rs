//! The statuses of fleet and pools: how far their nodes are, which versions are halted, and what people type to resume them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::conditions::ConditionStatus::{False, True, Unknown};
use brupop_api::conditions::{
    ACCEPTED, ADMISSION_ENFORCED, Condition, HALTED, IDLE, OTHER_OPERATOR, PROGRESSING, READY,
    STALLED, UPDATED,
};
use brupop_api::crds::{MESSAGE_MAX, POOL_VERSIONS_MAX, VERSION_MAX};
use brupop_api::fleet::{BottlerocketFleetStatus, VersionRecord};
use brupop_api::pool::{Gate, NextWindow, PrometheusGate, VersionCount};
use brupop_api::printable::printable;
use brupop_api::{BottlerocketFleet, BottlerocketPool, BottlerocketPoolStatus, NodeCounts, names};
use semver::Version;
use serde_json::{Value, json};

use super::{EventText, apply, are_stored, condition, found, generation, over};
use crate::cluster::Cluster;
use crate::decide::{Decision, Reason, why_halted};
use crate::facts::{FirstPool, FleetFacts, NodeView, Observed, Owner, PoolFacts};
use crate::objects::NodeFacts;
use crate::pool::Pool;
use crate::window::Starts;

/// The fleet's message before its leader has looked.
const NOT_TRIED_OUT: &str = "it is not known yet whether the admission rules are in force, and whether upstream's operator \
                             is installed";
/// Bytes of the message about halts that are reserved for the nodes that failed.
const WHY: usize = 160;
const NO_NODES: &str = "the pool owns no node that is opted in";
const NO_FORCE: &str = "spec.drain.onTimeout is Force, but the reconciler may not delete pods, so it counts as Abort; add the \
                        component force-drain, or write Abort";

/// The status of the fleet that is wanted: figures, halted versions and conditions, from what was decided for each node. Of the
/// rules of admission, and of upstream's operator, `Err` says what is wrong; `None` = not looked yet. Commands to resume name
/// the namespace.
pub fn fleet<'a>(
    cluster: &Cluster,
    observed: &Observed<'a>,
    nodes: &[Decision<'a>],
    admission: Option<Result<(), &str>>,
    alone: Option<Result<(), &str>>,
    halts: &[&VersionRecord],
    namespace: &str,
) -> BottlerocketFleetStatus {
    let progress = Progress::of_fleet(observed, nodes);
    let stored = cluster.ledger().map_or(&[][..], |it| &it.conditions);
    let checks = checks(admission, alone, stored);
    let stalled = stalled_pools(&cluster.pools).next();
    let stalled = stalled.map(|(pool, stalled)| format!("pool {pool}: {}", stalled.message));
    let halt = halted(namespace, &observed.fleet, halts);
    let health = fleet_health(progress.counts.nodes, &checks, &halt, stalled.as_deref());
    let idle = idle(cluster.busy_nodes(observed.fleet.slots));
    let updated = progress.updated_condition("no node is opted in");
    let conditions = checks.into_iter().flatten();
    BottlerocketFleetStatus {
        counts: NodeCounts {
            unavailable_limit: observed.fleet.total_limit(),
            ..progress.counts
        },
        not_opted_in_nodes: observed.not_opted_in,
        halted_versions: halted_versions(halts),
        conditions: conditions
            .chain([halt, idle, updated])
            .chain(health)
            .collect(),
        ..BottlerocketFleetStatus::default()
    }
}

/// The conditions `AdmissionEnforced` and `OtherOperator` of the fleet. What is not known is as it is stored.
fn checks(
    admission: Option<Result<(), &str>>,
    alone: Option<Result<(), &str>>,
    stored: &[Condition],
) -> [Option<Condition>; 2] {
    let stored = |type_: &str| found(stored, type_).cloned();
    let admission = admission.map(|enforced| {
        let refused = "webhook and policy refused the dry runs, as they must";
        match enforced {
            Ok(()) => condition(ADMISSION_ENFORCED, True, "Refused", refused),
            Err(why) => condition(ADMISSION_ENFORCED, False, "NotRefused", why),
        }
    });
    let alone = alone.map(|alone| {
        let none = "upstream's operator is not installed";
        match alone {
            Ok(()) => condition(OTHER_OPERATOR, False, "NoneFound", none),
            Err(why) => condition(OTHER_OPERATOR, True, "NotRuledOut", why),
        }
    });
    [
        admission.or_else(|| stored(ADMISSION_ENFORCED)),
        alone.or_else(|| stored(OTHER_OPERATOR)),
    ]
}

/// The conditions `Ready` and `Stalled` of a fleet of this number of nodes, with these checks and this condition `Halted`, and
/// what is said of a pool in which a person must act. As long as no node is opted in, the rules of admission cannot be tried
/// out, and nothing needs them.
fn fleet_health(
    nodes: u64,
    [admission, alone]: &[Option<Condition>; 2],
    halt: &Condition,
    stalled_pool: Option<&str>,
) -> [Condition; 2] {
    let hindrance = |check: &Option<Condition>, good, reason| match check {
        Some(check) if check.status == good => None,
        Some(check) => Some(condition(READY, False, reason, &check.message)),
        None => Some(condition(READY, Unknown, "NotTriedOut", NOT_TRIED_OUT)),
    };
    let not_enforced = hindrance(admission, True, Reason::AdmissionNotEnforced.as_str());
    let not_alone = hindrance(alone, False, OTHER_OPERATOR);
    let hindrances = not_enforced
        .filter(|_| nodes > 0)
        .into_iter()
        .chain(not_alone);
    let spent = (halt.status == True).then(|| (halt.reason.clone(), halt.message.as_str()));
    let pool = stalled_pool.map(|why| ("PoolStalled".into(), why));
    health(
        spent.or(pool),
        hindrances.min_by_key(|it| it.status == Unknown),
    )
}

/// The conditions `Ready` and `Stalled` of the fleet or a pool, which kstatus reads, and with it Flux and Helm. They are made from
/// the word and the sentence that say why a person has to act, if one has to. If not, `Ready` is True, or what is given.
///
/// `Stalled` is False where it might be left out: kstatus treats both alike, and `kubectl wait --for=condition=Stalled=false`
/// finds nothing without it. There is no `Reconciling`: it would be True during each roll-out, so that a release of
/// Bottlerocket, which changes no object, would keep Flux and Helm waiting.
fn health(stalls: Option<(Cow<'static, str>, &str)>, ready: Option<Condition>) -> [Condition; 2] {
    if let Some((reason, message)) = stalls {
        return [(READY, False), (STALLED, True)]
            .map(|(type_, status)| condition(type_, status, reason.clone(), message));
    }
    let in_force = "the spec is in force: nodes are updated, or wait, as it says";
    let well = "the spec is valid, nodes belong to one pool each, and no halt holds them";
    [
        ready.unwrap_or_else(|| condition(READY, True, "InForce", in_force)),
        condition(STALLED, False, "NotStalled", well),
    ]
}

/// The condition `Idle` of the fleet, in which this many nodes are busy. The message changes only with that number.
pub(super) fn idle(busy_nodes: usize) -> Condition {
    let none = "no node is being updated, and no Node has changes of the operator";
    let one = "1 node is being updated, has changes of the operator, or cannot be read";
    match busy_nodes {
        0 => condition(IDLE, True, "NothingInProgress", none),
        1 => condition(IDLE, False, "InProgress", one),
        many => {
            let many = format!(
                "{many} nodes are being updated, have changes of the operator, or cannot be read"
            );
            condition(IDLE, False, "InProgress", &many)
        }
    }
}

/// The Event about an obstacle to all updates that the conditions of the fleet, as they are stored, do not show yet.
pub fn new_obstacle(
    wanted: &BottlerocketFleetStatus,
    fleet: &BottlerocketFleet,
) -> Option<EventText> {
    let obstacle = |type_, bad, reason, action: &str| {
        let is_bad = |it: &&Condition| it.status == bad;
        let wanted = found(&wanted.conditions, type_).filter(is_bad)?;
        let told = found(conditions(fleet), type_).filter(is_bad);
        told.is_none().then(|| EventText {
            reason,
            warning: true,
            note: format!("no update starts: {}", wanted.message),
            action: action.to_owned(),
        })
    };
    let other = obstacle(OTHER_OPERATOR, True, "OtherOperator", "LookAround");
    other.or_else(|| obstacle(ADMISSION_ENFORCED, False, "AdmissionNotEnforced", "DryRun"))
}

/// Whether the fleet has this status already, for the current generation of its spec.
pub fn fleet_has(fleet: &BottlerocketFleet, wanted: &BottlerocketFleetStatus) -> bool {
    let generation = generation(&fleet.metadata);
    fleet.status.as_ref().is_some_and(|stored| {
        stored.observed_generation == generation
            && stored.counts == wanted.counts
            && stored.not_opted_in_nodes == wanted.not_opted_in_nodes
            && stored.halted_versions == wanted.halted_versions
            && are_stored(&wanted.conditions, &stored.conditions, generation)
    })
}

/// The status to apply to the fleet. Where somebody else has put a field that should not be there, two such patches
/// are needed.
pub fn fleet_patch(
    fleet: &BottlerocketFleet,
    wanted: &BottlerocketFleetStatus,
    now: &str,
) -> Value {
    let generation = generation(&fleet.metadata);
    let mut status = json!(wanted.counts);
    status["notOptedInNodes"] = json!(wanted.not_opted_in_nodes);
    status["observedGeneration"] = json!(generation);
    status["conditions"] = json!(over(conditions(fleet), &wanted.conditions, generation, now));
    // Server-side apply removes only what we have applied. What somebody else has put there is overwritten first.
    let stored = fleet.status.as_ref();
    let stored = stored.and_then(|it| it.halted_versions.as_ref());
    if wanted.halted_versions.is_some() || stored.is_some_and(|versions| !versions.is_empty()) {
        status["haltedVersions"] = json!(wanted.halted_versions.as_deref().unwrap_or_default());
    }
    apply::<BottlerocketFleet>(&fleet.metadata, status)
}

fn conditions(fleet: &BottlerocketFleet) -> &[Condition] {
    let status = fleet.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

/// Returns the pools that need a person to act, each with its condition `Stalled`.
pub fn stalled_pools(pools: &BTreeMap<String, Pool>) -> impl Iterator<Item = (&str, &Condition)> {
    pools.iter().filter_map(|(name, pool)| {
        let stalled = found(&pool.stored.conditions, STALLED)?;
        (stalled.status == True).then_some((name.as_str(), stalled))
    })
}

/// Returns the records of halted versions that a Ready node wants. Once all want another version, nobody has to act.
pub fn halts<'a>(observed: &Observed<'a>) -> Vec<&'a VersionRecord> {
    let is_halted = |record: &&VersionRecord| record.halted_at.is_some();
    let halted: Vec<_> = observed.fleet.versions.iter().filter(is_halted).collect();
    if halted.is_empty() {
        return halted;
    }
    let is_ready = |node: &NodeFacts| node.labelled && node.is_ready();
    let ready = observed
        .views
        .iter()
        .filter(|it| it.node.is_some_and(is_ready));
    let wanted: BTreeSet<_> = ready.filter_map(NodeView::release).collect();
    let is_wanted = |it: &&VersionRecord| wanted.contains(&(&*it.version, &*it.variant));
    halted.into_iter().filter(is_wanted).collect()
}

/// The versions of these halts, each once; `None` if there are none.
pub fn halted_versions(halts: &[&VersionRecord]) -> Option<Vec<String>> {
    let versions: BTreeSet<String> = halts.iter().map(|it| it.version.clone()).collect();
    (!versions.is_empty()).then(|| versions.into_iter().collect())
}

/// The condition `Halted` of the fleet in this namespace, with these halts.
fn halted(namespace: &str, fleet: &FleetFacts<'_>, halts: &[&VersionRecord]) -> Condition {
    let why: Vec<String> = halts
        .iter()
        .map(|record| {
            let (version, variant) = (&record.version, &record.variant);
            let why = format!("{version} for {variant}: {}", why_halted(record));
            match fleet.named_for(record) {
                // It names an earlier halt, or none.
                Some(named) if record.halted_at.as_deref() != Some(named) => {
                    format!("{why} (spec.resumedVersions names {named}, not this halt)")
                }
                _ => why,
            }
        })
        .collect();
    if why.is_empty() {
        let message = "no version that a node would be updated to is halted";
        return condition(HALTED, False, "WithinFailureBudget", message);
    }
    let how = how_to_resume(namespace, halts);
    let why = printable(&why.join("; "), MESSAGE_MAX.saturating_sub(how.len())).into_owned();
    condition(HALTED, True, "FailureBudgetSpent", &(why + &how))
}

/// Returns what a person types to resume the halted versions, as the end of a sentence; empty if none can be resumed. A merge
/// patch replaces the whole list, and what stood there before is no longer needed.
fn how_to_resume(namespace: &str, halts: &[&VersionRecord]) -> String {
    let (all, fleet) = (halts.len(), names::FLEET);
    let (mut items, mut resumed) = (String::new(), 0);
    let command = |resumed: usize, items: &str| {
        let some = (resumed < all).then(|| format!(" with {resumed} of {all}"));
        let some = some.unwrap_or_default();
        format!(
            r#"; to resume{some}: kubectl -n {namespace} patch brf {fleet} --type=merge -p '{{"spec":{{"resumedVersions":[{items}]}}}}'"#
        )
    };
    for record in halts.iter().filter(|record| is_plain(record)) {
        let comma = if items.is_empty() { "" } else { "," };
        let VersionRecord {
            version, variant, ..
        } = record;
        let at = record.halted_at.as_deref().unwrap_or_default();
        let more = format!(
            r#"{items}{comma}{{"version":"{version}","variant":"{variant}","haltedAt":"{at}"}}"#
        );
        if command(resumed + 1, &more).len() > MESSAGE_MAX - WHY {
            break;
        }
        (items, resumed) = (more, resumed + 1);
    }
    if resumed == 0 {
        return String::new();
    }
    command(resumed, &items)
}

/// Whether this record's words need no quotes in a shell or in JSON. The API server stores no others, but people paste this.
fn is_plain(record: &VersionRecord) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-_".contains(&byte);
    let words = [&record.version, &record.variant];
    let mut words = words.into_iter().chain(&record.halted_at);
    words.all(|text| !text.is_empty() && text.bytes().all(plain))
}

/// The progress of opted-in nodes, of the fleet or of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The figures, without the limit.
    pub counts: NodeCounts,
    /// Number of nodes that have not reported, or cannot look for updates.
    pub unknown: u64,
    /// The first by name of those that are behind and have no update to go to, and why.
    pub behind: Option<(&'a str, Reason<'a>)>,
    /// The number of nodes on each version.
    pub(super) versions: BTreeMap<&'a str, u64>,
    /// The number of those whose update has not begun, by the word of the reason, and why the first of them waits.
    pub(super) waiting: BTreeMap<&'static str, (u64, Reason<'a>)>,
    /// The reason why a version is halted that one of them wants.
    pub(super) halted: Option<Reason<'a>>,
    /// The reason why neither this pool nor another one owns some nodes.
    pub(super) contends: Option<Reason<'a>>,
}

impl<'a> Progress<'a> {
    /// The progress of the fleet, from what was decided for each node.
    pub fn of_fleet(observed: &Observed<'a>, decisions: &[Decision<'a>]) -> Self {
        let (fleet, mut progress) = (&observed.fleet, Self::default());
        for (view, decision) in observed.views.iter().zip(decisions) {
            progress.count(fleet, view, decision.reason);
        }
        progress.counts.updating_nodes = u64::try_from(fleet.slots.len()).unwrap_or(u64::MAX);
        progress
    }

    fn count(&mut self, fleet: &FleetFacts<'a>, view: &NodeView<'a>, reason: Reason<'a>) {
        let Some(node) = view.node.filter(|node| node.labelled) else {
            return;
        };
        if let Some(version) = node.version() {
            *self.versions.entry(version).or_default() += 1;
        }
        if matches!(reason, Reason::VersionHalted(_)) {
            self.halted = Some(reason);
        }
        let counts = &mut self.counts;
        counts.nodes += 1;
        let has_slot = view.held().is_some();
        let waits = !has_slot
            && view
                .shadow
                .is_some_and(|it| it.status.current_version.is_some() && it.update().is_some());
        let asks_for_more = || {
            let rules = fleet.pool_of(view)?.rules?;
            let runs = Version::parse(node.version()?).ok()?;
            Some(rules.asks_for_more_than(&runs))
        };
        let cannot_update = || {
            view.shadow
                .is_some_and(|shadow| shadow.status.cannot_update())
        };
        let (group, is_behind) = match reason {
            _ if has_slot => (&mut counts.updating_nodes, false),
            _ if waits && reason.waits_for_turn() => (&mut counts.pending_nodes, false),
            _ if waits => (&mut counts.blocked_nodes, false),
            Reason::NotOffered | Reason::NotOfferedRunBy(..) => {
                (&mut counts.not_offered_nodes, true)
            }
            Reason::NoUpdateChosen(_) => (&mut counts.locked_nodes, asks_for_more() == Some(true)),
            // The last report of such a host may be outdated.
            Reason::NotUnderstood(_)
            | Reason::ShadowUnreadable(_)
            | Reason::NodeNotReady
            | Reason::AgentSilent
            | Reason::AgentNotReported => (&mut self.unknown, false),
            _ if !view.has_reported() || cannot_update() => (&mut self.unknown, false),
            _ => (&mut counts.updated_nodes, false),
        };
        *group += 1;
        if is_behind {
            self.behind = self.behind.or(Some((node.name(), reason)));
        }
        if waits {
            let waiting = self.waiting.entry(reason.as_str());
            waiting.or_insert((0, reason)).0 += 1;
        }
    }

    /// The condition `Updated`, of a fleet or pool of which this is said while it has no nodes.
    pub fn updated_condition(&self, no_nodes: &str) -> Condition {
        let of = |status, reason, message: &str| condition(UPDATED, status, reason, message);
        let counts = self.counts;
        let pending = "some nodes have an update that is not done";
        let unknown = "a node has not reported since it booted, or cannot look for updates";
        match self.behind {
            _ if counts.nodes == 0 => of(Unknown, "NoNodes", no_nodes),
            _ if counts.updating_nodes + counts.pending_nodes + counts.blocked_nodes > 0 => {
                of(False, "UpdatesPending", pending)
            }
            Some((node, reason)) => {
                let message = format!("{node}: {}", reason.message());
                of(False, reason.as_str(), &message)
            }
            None if self.unknown > 0 => of(Unknown, "NotReported", unknown),
            None => of(True, "NoUpdate", "there is no update for any node"),
        }
    }
}

/// The statuses of all pools, in the order of the facts, from what was decided for each node, and why a query
/// of a gate has no answer (`Err`, of `None` if it was not asked yet), and whether pods may be deleted.
pub fn pools<'q>(
    observed: &Observed<'_>,
    nodes: &[Decision<'_>],
    unanswered: impl Fn(&PrometheusGate) -> Result<(), Option<&'q str>>,
    may_force: bool,
) -> Vec<BottlerocketPoolStatus> {
    let fleet = &observed.fleet;
    let mut progresses: Vec<Progress<'_>> =
        fleet.pools.iter().map(|_| Progress::default()).collect();
    for (view, decision) in observed.views.iter().zip(nodes) {
        if let Owner::Pool(index) = view.owner
            && let Some(progress) = progresses.get_mut(index)
        {
            progress.count(fleet, view, decision.reason);
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
                Some(condition(READY, False, "ForceNotGranted", NO_FORCE))
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
        unready: Option<Condition>,
    ) -> BottlerocketPoolStatus {
        let counts = NodeCounts {
            unavailable_limit: pool.limit,
            ..self.counts
        };
        let accepted = match pool.starts {
            Starts::Invalid(why) => condition(ACCEPTED, False, "PoolInvalid", why),
            _ => condition(ACCEPTED, True, "Understood", "the pool is understood"),
        };
        let stalls = self.why_stalled(fleet, pool);
        let stalls = stalls
            .as_ref()
            .map(|(reason, why)| ((*reason).into(), &**why));
        let [ready, stalled] = health(stalls, unready);
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
        BottlerocketPoolStatus {
            observed_generation: None,
            counts,
            next_window: pool.next_window.map(|window| NextWindow {
                start: window.start.to_string(),
                end: (!window.reopens).then(|| window.end.to_string()),
            }),
            versions,
            conditions: vec![accepted, progressing, updated, ready, stalled],
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
            && let Some((name, why)) = never_begins(fleet, pool, waits_for_pool)
        {
            let word = Reason::WaitingForPool(FirstPool::NotDone(name)).as_str();
            let message =
                format!("the pool {name} goes first (spec.dependsOn), and cannot begin: {why}");
            return Some((word, message.into()));
        }
        self.halted.map(told)
    }

    /// Returns why the pool moves or waits: the reason of most waiting nodes. If that is also why the pool is not ready, or no
    /// node waits, the message of `Ready` says more.
    fn progressing(&self, pool: &PoolFacts<'_>, ready: &Condition) -> Condition {
        let waits =
            |reason: &str, message: &str| condition(PROGRESSING, False, reason.to_owned(), message);
        if let Starts::Invalid(why) = pool.starts {
            return waits("PoolInvalid", why);
        }
        let counts = self.counts;
        if counts.updating_nodes > 0 {
            let message = "nodes of the pool are being updated";
            return condition(PROGRESSING, True, "Updating", message);
        }
        // Among equals, the first in the alphabet.
        let groups = self.waiting.values().rev();
        let most = groups.max_by_key(|(nodes, _)| nodes);
        let most = most.map(|(_, reason)| *reason);
        if ready.status == False && most.is_none_or(|it| it.as_str() == ready.reason) {
            return waits(&ready.reason, &ready.message);
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

/// Whether all of this, of the pool's spec as it is now, is stored already.
pub fn pool_has(pool: &Pool, wanted: &BottlerocketPoolStatus) -> bool {
    let (stored, generation) = (&pool.stored, generation(&pool.metadata));
    stored.observed_generation == generation
        && stored.counts == wanted.counts
        && stored.next_window == wanted.next_window
        && stored.versions == wanted.versions
        && are_stored(&wanted.conditions, &stored.conditions, generation)
}

/// The status to apply to the pool.
pub fn pool_patch(pool: &Pool, wanted: &BottlerocketPoolStatus, now: &str) -> Value {
    let generation = generation(&pool.metadata);
    let status = BottlerocketPoolStatus {
        observed_generation: generation,
        conditions: over(&pool.stored.conditions, &wanted.conditions, generation, now),
        ..wanted.clone()
    };
    apply::<BottlerocketPool>(&pool.metadata, status)
}

/// That a pool that goes first is not there.
fn missing<'a>(pool: &PoolFacts<'a>) -> Option<Reason<'a>> {
    let missing = FirstPool::Missing(pool.missing?);
    Some(Reason::WaitingForPool(missing))
}

/// Returns a pool that goes before this one, directly or through others, and cannot begin; and why. A pool without nodes counts
/// only while nodes wait for it.
fn never_begins<'f>(
    fleet: &FleetFacts<'f>,
    pool: &PoolFacts<'f>,
    nodes_wait: bool,
) -> Option<(&'f str, Cow<'f, str>)> {
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
            return Some((next.name, why));
        }
        open.extend(after(next));
    }
    None
}

/// The condition `Ready` of a pool with a gate without an answer: first one that failed, then one that was not asked yet.
fn unanswered_gate<'q>(
    pool: &PoolFacts<'_>,
    unanswered: impl Fn(&PrometheusGate) -> Result<(), Option<&'q str>>,
) -> Option<Condition> {
    let gates = pool.rules.into_iter().flat_map(|rules| &rules.gates);
    let without = gates.filter_map(|gate| Some((gate, unanswered(&gate.prometheus).err()?)));
    let (Gate { name, prometheus }, why) = without.min_by_key(|(_, why)| why.is_none())?;
    let source = &prometheus.source;
    let (status, message) = match why {
        Some(why) => (
            False,
            format!(
                "the gate {name} (spec.gates) is closed, because its source {source} gives no answer: {why}"
            ),
        ),
        None => (
            Unknown,
            format!("the reconciler that leads has no answer for the gate {name} (spec.gates) yet"),
        ),
    };
    let reason = Reason::GateUnknown(name).as_str();
    Some(condition(READY, status, reason, &message))
}

#[cfg(test)]
mod tests {
    mod halted;
    mod pools;
    mod progress;
}
