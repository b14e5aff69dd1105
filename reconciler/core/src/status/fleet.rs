//! The status of the fleet.

use brupop_api::conditions::{ADMISSION_ENFORCED, Condition, ConditionStatus, OTHER_OPERATOR};
use brupop_api::{BottlerocketFleet, NodeCounts, names};
use kube::Resource as _;
use serde_json::{Value, json};

use super::{DesiredCondition, EventText, generation};

/// What the fleet's status should show to people.
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
    /// Whether a version is halted.
    pub halt: DesiredCondition,
    /// Whether a node waits because of that. Once all want a later version, nobody has to act.
    pub halt_holds_nodes: bool,
    /// Whether no node is in mid-update.
    pub idle: DesiredCondition,
    /// Whether our admission rules are in force; `None` = not tried out yet.
    pub admission: Option<DesiredCondition>,
    /// Whether another operator is here; `None` = not looked yet.
    pub other_operator: Option<DesiredCondition>,
}

impl DesiredFleetStatus {
    /// Whether all of this, of the fleet's spec as it is now, is stored already.
    pub fn is_stored_in(&self, fleet: &BottlerocketFleet) -> bool {
        let generation = generation(&fleet.metadata);
        fleet.status.as_ref().is_some_and(|status| {
            let is_stored =
                |wanted: &DesiredCondition| wanted.is_stored_in(&status.conditions, generation);
            status.observed_generation == generation
                && status.counts == self.counts
                && status.not_opted_in_nodes == self.not_opted_in_nodes
                && status.halted_versions == self.halted
                && [&self.halt, &self.idle, &self.updated]
                    .into_iter()
                    .all(is_stored)
                && self.health(&status.conditions).iter().all(is_stored)
                && self
                    .may_be_unknown()
                    .all(|(_, wanted)| wanted.is_none_or(is_stored))
        })
    }

    /// The conditions that may not be known, by their types.
    pub(super) fn may_be_unknown(
        &self,
    ) -> impl Iterator<Item = (&'static str, Option<&DesiredCondition>)> {
        let known = [&self.admission, &self.other_operator].map(Option::as_ref);
        [ADMISSION_ENFORCED, OTHER_OPERATOR].into_iter().zip(known)
    }

    /// The Event about what is in the way of all updates, if this fleet does not say so yet.
    pub fn new_obstacle(&self, fleet: &BottlerocketFleet) -> Option<EventText> {
        let stored = fleet
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        let obstacle = |wanted: Option<&DesiredCondition>, status, reason, action: &str| {
            let wanted = wanted.filter(|wanted| wanted.status == status)?;
            let told = |it: &Condition| it.type_ == wanted.type_ && it.status == status;
            if stored.iter().any(told) {
                return None;
            }
            let note = format!("no update starts: {}", wanted.message);
            Some(EventText {
                reason,
                warning: true,
                note,
                action: action.to_owned(),
            })
        };
        obstacle(
            self.other_operator.as_ref(),
            ConditionStatus::True,
            "OtherOperator",
            "LookAround",
        )
        .or_else(|| {
            obstacle(
                self.admission.as_ref(),
                ConditionStatus::False,
                "AdmissionNotEnforced",
                "DryRun",
            )
        })
    }

    /// The status to apply to the fleet. Where somebody else has put a field that should not be there, two such patches
    /// are needed.
    pub fn patch(&self, fleet: &BottlerocketFleet, now: &str) -> Value {
        let generation = generation(&fleet.metadata);
        let conditions = fleet
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        // A condition that is not known is applied as it is stored: if it were left out, it would be removed.
        let kept = |type_| {
            conditions
                .iter()
                .find(|condition| condition.type_ == type_)
                .cloned()
        };
        let known = self.may_be_unknown().filter_map(|(type_, wanted)| {
            wanted
                .map(|wanted| wanted.stored_over(conditions, generation, now))
                .or_else(|| kept(type_))
        });
        let mut status = json!(self.counts);
        status["notOptedInNodes"] = json!(self.not_opted_in_nodes);
        status["observedGeneration"] = json!(generation);
        // Server-side apply removes only what we have applied. What somebody else has put there is overwritten first.
        let halted = fleet
            .status
            .as_ref()
            .and_then(|status| status.halted_versions.as_ref());
        if self.halted.is_some() || halted.is_some_and(|versions| !versions.is_empty()) {
            status["haltedVersions"] = json!(self.halted.as_deref().unwrap_or_default());
        }
        let health = self.health(conditions);
        let always = [&self.halt, &self.idle, &self.updated]
            .into_iter()
            .chain(&health);
        let always = always.map(|wanted| wanted.stored_over(conditions, generation, now));
        status["conditions"] = json!(known.chain(always).collect::<Vec<_>>());
        json!({
            "apiVersion": BottlerocketFleet::api_version(&()),
            "kind": BottlerocketFleet::kind(&()),
            "metadata": {"name": names::FLEET, "uid": fleet.metadata.uid},
            "status": status,
        })
    }
}
