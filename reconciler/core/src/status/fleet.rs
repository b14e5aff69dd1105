//! The status of the fleet: how far its nodes are, which versions are halted, and what people type to resume them.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::conditions::ConditionStatus::{self, False, True, Unknown};
use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, HALTED, OTHER_OPERATOR, READY, STALLED, UPDATED,
};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::fleet::VersionRecord;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketFleet, NodeCounts, names};
use kube::Resource as _;
use semver::Version;
use serde_json::{Value, json};

use super::{DesiredCondition, EventText, generation};
use crate::decide::{Decision, Reason, why_halted};
use crate::facts::{FleetFacts, NodeView, Observed, PoolFacts, is_unavailable};
use crate::objects::NodeFacts;
use crate::pool::Pool;

/// The fleet's message before its leader has looked.
const NOT_TRIED_OUT: &str = "it is not known yet whether the admission rules are in force, and whether upstream's operator \
                             is installed";
/// Bytes of the message about halts that are reserved for the nodes that failed.
const WHY: usize = 160;

/// The wanted status of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFleetStatus {
    /// Figures of all opted-in nodes.
    pub counts: NodeCounts,
    /// Nodes that run Bottlerocket and are not opted in.
    pub not_opted_in_nodes: u64,
    /// Whether there is no update for any node.
    pub updated: DesiredCondition,
    /// Versions that no new node is updated to.
    pub halted: Option<Vec<String>>,
    /// Whether a version is halted that a node wants.
    pub halt: DesiredCondition,
    /// The first pool in which a person must act, and why.
    pub stalled_pool: Option<String>,
    /// Whether no node is in mid-update.
    pub idle: DesiredCondition,
    /// Whether our admission rules are in force; `None` = not tried out yet.
    pub admission: Option<DesiredCondition>,
    /// Whether another operator is here; `None` = not looked yet.
    pub other_operator: Option<DesiredCondition>,
}

impl DesiredFleetStatus {
    /// Whether the fleet has this status already, for the current generation of its spec.
    pub fn is_stored_in(&self, fleet: &BottlerocketFleet) -> bool {
        let generation = generation(&fleet.metadata);
        fleet.status.as_ref().is_some_and(|status| {
            let is_stored =
                |wanted: &DesiredCondition| wanted.is_stored_in(&status.conditions, generation);
            let known = self.may_be_unknown();
            status.observed_generation == generation
                && status.counts == self.counts
                && status.not_opted_in_nodes == self.not_opted_in_nodes
                && status.halted_versions == self.halted
                && self.always(&status.conditions).iter().all(is_stored)
                && known
                    .into_iter()
                    .all(|(_, wanted)| wanted.is_none_or(is_stored))
        })
    }

    /// The conditions that may not be known, by their types.
    fn may_be_unknown(&self) -> [(&'static str, Option<&DesiredCondition>); 2] {
        [
            (ADMISSION_ENFORCED, self.admission.as_ref()),
            (OTHER_OPERATOR, self.other_operator.as_ref()),
        ]
    }

    /// The other conditions over these that are stored.
    fn always(&self, stored: &[Condition]) -> Vec<DesiredCondition> {
        let always = [&self.halt, &self.idle, &self.updated].map(Clone::clone);
        always.into_iter().chain(self.health(stored)).collect()
    }

    /// The conditions `Ready` and `Stalled` over these that are stored: what is not known is as it stands there. As long as
    /// no node is opted in, the rules of admission cannot be tried out, and nothing needs them.
    pub(super) fn health(&self, stored: &[Condition]) -> [DesiredCondition; 2] {
        let known = self.may_be_unknown().into_iter();
        let hindrances = known.filter_map(|(type_, wanted)| {
            let stored = found(stored, type_).map(|it| (it.status, &it.message));
            let said = wanted.map(|it| (it.status, &it.message)).or(stored);
            let (good, reason) = match type_ {
                ADMISSION_ENFORCED if self.counts.nodes == 0 => return None,
                ADMISSION_ENFORCED => (True, Reason::AdmissionNotEnforced.as_str()),
                _ => (False, OTHER_OPERATOR),
            };
            let (status, reason, message) = match said {
                Some((status, _)) if status == good => return None,
                Some((_, message)) => (False, reason, message.as_str()),
                None => (Unknown, "NotTriedOut", NOT_TRIED_OUT),
            };
            Some(DesiredCondition::of(READY, status, reason, message))
        });
        let ready = hindrances.min_by_key(|it| it.status == Unknown);
        let halt = (self.halt.reason, self.halt.message.as_str());
        let halt = Some(halt).filter(|_| self.halt.status == True);
        let pool = self.stalled_pool.as_deref();
        let pool = pool.map(|why| ("PoolStalled", why));
        DesiredCondition::health(halt.or(pool), ready)
    }

    /// The Event about an obstacle to all updates that the fleet's conditions do not show yet.
    pub fn new_obstacle(&self, fleet: &BottlerocketFleet) -> Option<EventText> {
        let obstacle = |wanted: &Option<DesiredCondition>, bad, reason, action: &str| {
            let wanted = wanted.as_ref().filter(|wanted| wanted.status == bad)?;
            let told = found(conditions(fleet), wanted.type_).is_some_and(|it| it.status == bad);
            (!told).then(|| EventText {
                reason,
                warning: true,
                note: format!("no update starts: {}", wanted.message),
                action: action.to_owned(),
            })
        };
        let other = obstacle(&self.other_operator, True, "OtherOperator", "LookAround");
        let not_enforced = || obstacle(&self.admission, False, "AdmissionNotEnforced", "DryRun");
        other.or_else(not_enforced)
    }

    /// The status to apply to the fleet. Where somebody else has put a field that should not be there, two such patches
    /// are needed.
    pub fn patch(&self, fleet: &BottlerocketFleet, now: &str) -> Value {
        let (stored, generation) = (conditions(fleet), generation(&fleet.metadata));
        let over = |wanted: &DesiredCondition| wanted.stored_over(stored, generation, now);
        // A condition that is not known is applied as it is stored: if it were left out, it would be removed.
        let known = self
            .may_be_unknown()
            .into_iter()
            .filter_map(|(type_, wanted)| {
                wanted.map(over).or_else(|| found(stored, type_).cloned())
            });
        let always = self.always(stored);
        let mut status = json!(self.counts);
        status["notOptedInNodes"] = json!(self.not_opted_in_nodes);
        status["observedGeneration"] = json!(generation);
        status["conditions"] = json!(known.chain(always.iter().map(over)).collect::<Vec<_>>());
        // Server-side apply removes only what we have applied. What somebody else has put there is overwritten first.
        let halted = fleet
            .status
            .as_ref()
            .and_then(|it| it.halted_versions.as_ref());
        if self.halted.is_some() || halted.is_some_and(|versions| !versions.is_empty()) {
            status["haltedVersions"] = json!(self.halted.as_deref().unwrap_or_default());
        }
        json!({
            "apiVersion": BottlerocketFleet::api_version(&()),
            "kind": BottlerocketFleet::kind(&()),
            "metadata": {"name": names::FLEET, "uid": fleet.metadata.uid},
            "status": status,
        })
    }
}

fn conditions(fleet: &BottlerocketFleet) -> &[Condition] {
    let status = fleet.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

fn found<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|it| it.type_ == type_)
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

impl DesiredCondition {
    /// The condition `Halted` of the fleet in this namespace, with these halts.
    pub fn halted(namespace: &str, fleet: &FleetFacts<'_>, halts: &[&VersionRecord]) -> Self {
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
            return Self::of(HALTED, False, "WithinFailureBudget", message);
        }
        let how = how_to_resume(namespace, halts);
        let why = printable(&why.join("; "), MESSAGE_MAX.saturating_sub(how.len())).into_owned();
        Self::of(HALTED, True, "FailureBudgetSpent", &(why + &how))
    }
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
            progress.count(view, fleet.pool_of(view), decision);
        }
        progress.counts.updating_nodes = u64::try_from(fleet.slots.len()).unwrap_or(u64::MAX);
        progress
    }

    /// Counts a node of this pool.
    pub(super) fn count(
        &mut self,
        view: &NodeView<'a>,
        pool: Option<&PoolFacts<'a>>,
        decision: &Decision<'a>,
    ) {
        let Decision {
            reason, has_slot, ..
        } = *decision;
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
        counts.unavailable_nodes += u64::from(is_unavailable(view));
        let waits = !has_slot
            && view
                .shadow
                .is_some_and(|it| it.status.current_version.is_some() && it.update().is_some());
        let asks_for_more = || {
            let (runs, rules) = (Version::parse(node.version()?).ok()?, pool?.rules?);
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
    pub fn updated_condition(&self, no_nodes: &str) -> DesiredCondition {
        let of = |status: ConditionStatus, reason: &'static str, message: &str| {
            DesiredCondition::of(UPDATED, status, reason, message)
        };
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

#[cfg(test)]
mod tests {
    mod halted;
    mod progress;
}
