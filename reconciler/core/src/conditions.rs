//! Conditions, as server-side apply has them, and when they are worth a write. Pure.

mod halted;
mod idle;

use std::time::Duration;

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, OTHER_OPERATOR, OVERDUE, PROGRESSING,
};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::fleet::Counts;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use serde_json::{Value, json};

/// How long a condition must stay the same before it is written: one that passes at once is not worth a request.
const SETTLED: Duration = Duration::from_millis(400);

/// What a condition should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCondition {
    /// Its type.
    pub type_: &'static str,
    /// Its status.
    pub status: ConditionStatus,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

impl DesiredCondition {
    /// The condition Progressing of a shadow.
    pub fn progressing(status: ConditionStatus, reason: &'static str, message: &str) -> Self {
        Self::of(PROGRESSING, status, reason, message)
    }

    /// The message is made printable: it may hold the words of agents, hosts and API servers.
    fn of(type_: &'static str, status: ConditionStatus, reason: &'static str, message: &str) -> Self {
        Self { type_, status, reason, message: printable(message, MESSAGE_MAX).into_owned() }
    }

    /// The condition Overdue of a shadow whose update holds its slot for too long, from its condition Progressing.
    pub fn overdue(progressing: &Self) -> Self {
        let message = format!(
            "the update has held its slot for longer than this step may take: {}",
            progressing.message
        );
        Self::of(OVERDUE, ConditionStatus::True, progressing.reason, &message)
    }

    /// The condition `AdmissionEnforced` of the fleet; `Err` says what was seen instead of a refusal.
    pub fn admission(enforced: Result<(), &str>) -> Self {
        let (status, reason, message) = match enforced {
            Ok(()) => {
                (ConditionStatus::True, "Refused", "webhook and policy refused the dry runs, as they must")
            }
            Err(why) => (ConditionStatus::False, "NotRefused", why),
        };
        Self::of(ADMISSION_ENFORCED, status, reason, message)
    }

    /// The condition `OtherOperator` of the fleet; `Err` says which one is here, or why that is not known.
    pub fn other_operator(alone: Result<(), &str>) -> Self {
        let (status, reason, message) = match alone {
            Ok(()) => (ConditionStatus::False, "NoneFound", "upstream's operator is not installed"),
            Err(why) => (ConditionStatus::True, "NotRuledOut", why),
        };
        Self::of(OTHER_OPERATOR, status, reason, message)
    }

    /// Is this stored already, of whichever generation of the spec?
    fn is_told_by(&self, conditions: &[Condition]) -> bool {
        self.found(conditions).is_some_and(|found| {
            found.status == self.status && found.reason == self.reason && found.message == self.message
        })
    }

    /// Is this stored already, of this generation of the spec?
    pub fn stands_in(&self, conditions: &[Condition], generation: Option<u64>) -> bool {
        self.is_told_by(conditions)
            && self.found(conditions).is_some_and(|found| found.observed_generation == generation)
    }

    fn found<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        conditions.iter().find(|condition| condition.type_ == self.type_)
    }

    /// The condition of this generation of the spec as it is to be stored over these, with the time at which its status
    /// last changed.
    fn over(&self, conditions: &[Condition], generation: Option<u64>, now: &str) -> Condition {
        let kept = self.found(conditions).filter(|found| found.status == self.status);
        Condition {
            type_: self.type_.to_owned(),
            status: self.status,
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: generation,
            last_transition_time: kept.map_or(now, |found| &found.last_transition_time).to_owned(),
        }
    }
}

/// The generation of the spec that was read.
fn generation(metadata: &ObjectMeta) -> Option<u64> {
    metadata.generation?.try_into().ok()
}

/// The conditions of a shadow.
pub fn of_shadow(shadow: &BottlerocketShadow) -> &[Condition] {
    shadow.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// Are these conditions of the shadow, as its spec is now, stored already, and no others of ours?
pub fn shadow_has(shadow: &BottlerocketShadow, wanted: &[DesiredCondition]) -> bool {
    let (stored, generation) = (of_shadow(shadow), generation(&shadow.metadata));
    let ours = |condition: &&Condition| [PROGRESSING, OVERDUE].contains(&condition.type_.as_str());
    wanted.iter().all(|wanted| wanted.stands_in(stored, generation))
        && stored.iter().filter(ours).count() == wanted.len()
}

/// The status to apply to a shadow, so that it has the wanted conditions. It names the shadow's UID, so the API server
/// applies it to this very object only.
pub fn shadow_patch(shadow: &BottlerocketShadow, wanted: &[DesiredCondition], now: &str) -> Value {
    let (stored, generation) = (of_shadow(shadow), generation(&shadow.metadata));
    let conditions: Vec<Condition> =
        wanted.iter().map(|wanted| wanted.over(stored, generation, now)).collect();
    json!({
        "apiVersion": BottlerocketShadow::api_version(&()),
        "kind": BottlerocketShadow::kind(&()),
        "metadata": {"name": shadow.metadata.name, "uid": shadow.metadata.uid},
        "status": {"conditions": conditions},
    })
}

/// What the fleet's status should show to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFleetStatus {
    /// How many nodes at once.
    pub limit: u64,
    /// How many nodes are up to date, behind and in update.
    pub counts: Counts,
    /// Versions that no new node is updated to.
    pub halted: Option<String>,
    /// Has the failure budget of a version been spent?
    pub halt: DesiredCondition,
    /// Is no node in mid-update?
    pub idle: DesiredCondition,
    /// Are our admission rules in force? `None` = not tried out yet.
    pub admission: Option<DesiredCondition>,
    /// Is another operator here? `None` = not looked yet.
    pub other_operator: Option<DesiredCondition>,
}

impl DesiredFleetStatus {
    /// Is all of this, of the fleet's spec as it is now, stored already?
    pub fn stands_in(&self, fleet: &BottlerocketFleet) -> bool {
        let generation = generation(&fleet.metadata);
        fleet.status.as_ref().is_some_and(|status| {
            let stands = |wanted: &DesiredCondition| wanted.stands_in(&status.conditions, generation);
            status.observed_generation == generation
                && status.limit == Some(self.limit)
                && status.counts == Some(self.counts)
                && status.halted == self.halted
                && stands(&self.halt)
                && stands(&self.idle)
                && self.may_be_unknown().all(|(_, wanted)| wanted.is_none_or(stands))
        })
    }

    /// The conditions that are not known from the beginning, by their types.
    fn may_be_unknown(&self) -> impl Iterator<Item = (&'static str, Option<&DesiredCondition>)> {
        [(ADMISSION_ENFORCED, self.admission.as_ref()), (OTHER_OPERATOR, self.other_operator.as_ref())]
            .into_iter()
    }

    /// What is in the way of all updates, if this fleet does not say so yet.
    pub fn new_obstacle(&self, fleet: &BottlerocketFleet) -> Option<&str> {
        let wanted = self.other_operator.as_ref().filter(|wanted| wanted.status == ConditionStatus::True)?;
        let stored = fleet.status.as_ref().map_or(&[][..], |status| &status.conditions);
        (!wanted.is_told_by(stored)).then_some(&wanted.message)
    }

    /// The status to apply to the fleet. Where somebody else has put a field that should not be there, two such patches
    /// are needed.
    pub fn patch(&self, fleet: &BottlerocketFleet, now: &str) -> Value {
        let generation = generation(&fleet.metadata);
        let conditions = fleet.status.as_ref().map_or(&[][..], |status| &status.conditions);
        // A condition that is not known yet is applied as it is stored: if it were left out, it would be removed.
        let kept = |type_| conditions.iter().find(|condition| condition.type_ == type_).cloned();
        let known = self.may_be_unknown().filter_map(|(type_, wanted)| {
            wanted.map(|wanted| wanted.over(conditions, generation, now)).or_else(|| kept(type_))
        });
        let mut status =
            json!({"counts": self.counts, "limit": self.limit, "observedGeneration": generation});
        // Server-side apply removes only what we have applied. What somebody else has put there is overwritten first.
        let halted = fleet.status.as_ref().and_then(|status| status.halted.as_deref());
        if let Some(halted) = self.halted.as_deref().or(halted.filter(|text| !text.is_empty()).map(|_| "")) {
            status["halted"] = json!(halted);
        }
        let always = [&self.halt, &self.idle].map(|wanted| wanted.over(conditions, generation, now));
        status["conditions"] = json!(known.chain(always).collect::<Vec<_>>());
        json!({
            "apiVersion": BottlerocketFleet::api_version(&()),
            "kind": BottlerocketFleet::kind(&()),
            "metadata": {"name": names::FLEET, "uid": fleet.metadata.uid},
            "status": status,
        })
    }
}

/// What is wanted of one object, and since when. It is written only once it has been wanted for a moment, for most
/// reasons last no longer.
#[derive(Debug)]
pub struct Debounced<W>(Option<(W, Duration)>);

impl<W> Default for Debounced<W> {
    fn default() -> Self {
        Self(None)
    }
}

impl<W: PartialEq> Debounced<W> {
    /// This is wanted now. Returns when to ask again; `None` if it has been wanted for long enough to be written.
    pub fn waits_until(&mut self, wanted: W, now: Duration) -> Option<Duration> {
        let since = match &self.0 {
            Some((before, since)) if *before == wanted => *since,
            _ => now,
        };
        self.0 = Some((wanted, since));
        let due = since + SETTLED;
        (now < due).then_some(due)
    }

    /// Nothing is to be written any more.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use std::collections::BTreeMap;
    use std::slice;

    fn wanted(status: ConditionStatus, reason: &'static str) -> DesiredCondition {
        DesiredCondition::progressing(status, reason, "a sentence")
    }

    fn shadow(conditions: &Value) -> BottlerocketShadow {
        serde_json::from_value(json!({
            "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_status() {
        let first = wanted(ConditionStatus::False, "NoUpdate");
        let patch = shadow_patch(&shadow(&json!([])), slice::from_ref(&first), "2026-11-21T04:00:00Z");
        assert_eq!(
            patch,
            json!({
                "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
                "metadata": {"name": "brs-n", "uid": "u"},
                "status": {"conditions": [{"type": "Progressing", "status": "False", "reason": "NoUpdate",
                    "message": "a sentence", "observedGeneration": 1,
                    "lastTransitionTime": "2026-11-21T04:00:00Z"}]},
            })
        );
        let shadow = shadow(&patch["status"]["conditions"]);
        assert!(shadow_has(&shadow, slice::from_ref(&first)));
        let time = |wanted: &DesiredCondition| {
            shadow_patch(&shadow, slice::from_ref(wanted), "2026-11-21T05:00:00Z")["status"]["conditions"][0]
                ["lastTransitionTime"]
                .clone()
        };
        let other_reason = wanted(ConditionStatus::False, "NodePaused");
        assert!(!shadow_has(&shadow, slice::from_ref(&other_reason)));
        assert_eq!(time(&other_reason), "2026-11-21T04:00:00Z");
        assert_eq!(time(&wanted(ConditionStatus::True, "Starting")), "2026-11-21T05:00:00Z");
    }

    #[test]
    fn a_condition_that_stays_is_written_once_for_each_generation_of_the_spec() {
        let stays = [wanted(ConditionStatus::False, "NoUpdate")];
        let patch = shadow_patch(&shadow(&json!([])), &stays, "2026-11-21T04:00:00Z");
        let mut read = shadow(&patch["status"]["conditions"]);
        read.metadata.generation = Some(2);
        assert!(!shadow_has(&read, &stays));
        let patch = shadow_patch(&read, &stays, "2026-11-21T05:00:00Z");
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["observedGeneration"], 2);
        assert_eq!(condition["lastTransitionTime"], "2026-11-21T04:00:00Z");
        read = shadow(&patch["status"]["conditions"]);
        read.metadata.generation = Some(2);
        assert!(shadow_has(&read, &stays));
    }

    #[test]
    fn an_update_that_is_overdue_says_so_until_it_is_not() {
        let progressing = wanted(ConditionStatus::True, "ReturningToService");
        let both = [progressing.clone(), DesiredCondition::overdue(&progressing)];
        let patch = shadow_patch(&shadow(&json!([])), &both, "2026-11-21T04:00:00Z");
        let late = shadow(&patch["status"]["conditions"]);
        assert_eq!(patch["status"]["conditions"][1]["type"], "Overdue");
        assert!(shadow_has(&late, &both) && !shadow_has(&late, &both[..1]));
        let patch = shadow_patch(&late, &both[..1], "2026-11-21T05:00:00Z");
        assert!(shadow_has(&shadow(&patch["status"]["conditions"]), &both[..1]));
    }

    #[test]
    fn messages_are_as_the_schema_takes_them() {
        let message = |words: &str| DesiredCondition::progressing(ConditionStatus::True, "R", words).message;
        assert_eq!(message(&"é".repeat(600)), format!("{}…", "é".repeat(510)));
        assert_eq!(message("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
        assert_eq!(DesiredCondition::admission(Err("\u{7}")).message, "\\u{7}");
    }

    #[test]
    fn what_passes_at_once_is_not_written() {
        let ms = Duration::from_millis;
        let mut debounced = Debounced::default();
        assert_eq!(debounced.waits_until(1, ms(0)), Some(ms(400)));
        assert_eq!(debounced.waits_until(2, ms(100)), Some(ms(500)), "another reason begins anew");
        assert_eq!(debounced.waits_until(2, ms(499)), Some(ms(500)));
        assert_eq!(debounced.waits_until(2, ms(500)), None);
        debounced.forget();
        assert_eq!(debounced.waits_until(2, ms(600)), Some(ms(1000)));
    }

    #[test]
    fn the_fleet_keeps_a_condition_that_was_not_looked_at_yet() {
        let mut wanted = DesiredFleetStatus {
            limit: 1,
            counts: Counts { nodes: 3, ..Counts::default() },
            halted: None,
            halt: DesiredCondition::halted("ns", &BTreeMap::new(), &[]),
            idle: DesiredCondition::idle(&Cluster::default(), &BTreeMap::new()),
            admission: Some(DesiredCondition::admission(Err("the webhook let through what it must refuse"))),
            other_operator: Some(DesiredCondition::other_operator(Err("upstream's is here"))),
        };
        let fleet = |status: &Value| -> BottlerocketFleet {
            serde_json::from_value(
                json!({"apiVersion": "brupop.bottlerocket.aws/v1alpha1", "kind": "BottlerocketFleet",
                "metadata": {"name": "fleet", "uid": "u", "generation": 1}, "spec": {}, "status": status}),
            )
            .unwrap()
        };
        let none = fleet(&json!({}));
        assert!(!wanted.stands_in(&none));
        assert_eq!(wanted.new_obstacle(&none), Some("upstream's is here"));
        let patch = wanted.patch(&none, "2026-11-21T04:00:00Z");
        let written = fleet(&patch["status"]);
        assert_eq!(wanted.new_obstacle(&written), None, "it is told once");
        let gone = DesiredFleetStatus {
            other_operator: Some(DesiredCondition::other_operator(Ok(()))),
            ..wanted.clone()
        };
        assert!(!gone.stands_in(&written) && gone.new_obstacle(&written).is_none());
        assert!(wanted.stands_in(&written));
        let steered = BottlerocketFleet {
            metadata: ObjectMeta { generation: Some(2), ..written.metadata.clone() },
            ..written.clone()
        };
        assert!(!wanted.stands_in(&steered), "it is said of each generation of the spec");
        assert_eq!(wanted.new_obstacle(&steered), None, "but told once");
        let status = wanted.patch(&steered, "later")["status"].take();
        let mut seen = fleet(&status);
        seen.metadata.generation = Some(2);
        assert!(wanted.stands_in(&seen));
        let generations = status["conditions"].as_array().unwrap().iter().map(|it| &it["observedGeneration"]);
        assert!(generations.chain([&status["observedGeneration"]]).all(|it| *it == 2), "{status}");
        (wanted.admission, wanted.other_operator) = (None, None);
        assert!(wanted.stands_in(&written));
        assert_eq!(wanted.patch(&written, "later")["status"], patch["status"]);
    }
}
