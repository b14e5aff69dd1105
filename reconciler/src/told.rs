//! What people are told of an update, as Events and log lines. Pure.

use brupop_api::{Object, State};

use crate::decide::{Decision, Effect, Reason};
use crate::facts::Situation;

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// A stable word.
    pub reason: &'static str,
    /// Is it something to worry about?
    pub warning: bool,
    /// A sentence.
    pub note: String,
    /// What was being done: an attempt at an update, so that two of them are not taken for one.
    pub action: String,
}

impl Told {
    fn new(situation: &Situation<'_>, reason: &'static str, warning: bool, note: String) -> Self {
        let attempt = situation.shadow.and_then(|shadow| shadow.spec.attempt).unwrap_or(0);
        Self { reason, warning, note, action: format!("UpdateAttempt{attempt}") }
    }
}

/// What is told once this decision was carried out.
pub fn of_effect(situation: &Situation<'_>, decision: &Decision<'_>) -> Option<Told> {
    let told = |reason, note: String| Some(Told::new(situation, reason, false, note));
    let shadow = situation.shadow?;
    let version = shadow.spec.version.unwrap_or("its new version");
    let current = shadow.status.current_version.unwrap_or("an unknown version");
    let object = match decision.effect.as_ref()? {
        Effect::ConfirmDrained(_) => return told("Drained", "no pod is left that had to move".to_owned()),
        Effect::Write(write) => write.object,
        Effect::CreateShadow { .. } | Effect::DeleteShadow { .. } | Effect::Evict => return None,
    };
    match (object, decision.reason) {
        (Object::ShadowSpec(_), Reason::Starting(to)) if shadow.spec.state == State::Idle => {
            told("UpdateStarted", format!("the update from {current} to {to} begins"))
        }
        (Object::ShadowSpec(_), Reason::Starting(to)) => {
            told("UpdateAdopted", format!("an update to {to} that was under way is taken over"))
        }
        (Object::Node(_), Reason::Cordoning) => told("Cordoned", format!("to be emptied for {version}")),
        (Object::ShadowSpec(_), Reason::RebootGranted) => {
            told("RebootGranted", format!("the node is empty; its host may reboot into {version}"))
        }
        (Object::Node(_), Reason::ReturningToService) => {
            told("ReturnedToService", "what was changed on the node for its update is undone".to_owned())
        }
        (Object::ShadowSpec(_), Reason::Finishing) => told("Updated", format!("the node runs {version}")),
        (Object::ShadowSpec(_), Reason::Aborting(_)) => {
            let still = if shadow.status.attempt == shadow.spec.attempt {
                "; its agent undoes what it did"
            } else {
                ""
            };
            let note = format!("{} ({current}, wanted {version}){still}", decision.reason.message());
            Some(Told::new(situation, "UpdateAborted", true, note))
        }
        _ => None,
    }
}

/// What is told when the reason of a node becomes this one, without a write of ours.
pub fn of_reason(situation: &Situation<'_>, reason: &Reason<'_>) -> Option<Told> {
    let (word, warning) = match reason {
        Reason::Rebooting => ("Rebooting", false),
        Reason::RebootOverdue => ("RebootOverdue", true),
        _ => return None,
    };
    Some(Told::new(situation, word, warning, reason.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Abort;
    use crate::facts::{PodFacts, TimeFacts};
    use brupop_api::Write;
    use brupop_api::facts::{ShadowFacts, SpecFacts, StatusFacts};

    fn situation(state: State) -> Situation<'static> {
        Situation {
            shadow_name: "brs-n",
            node: None,
            shadow: Some(ShadowFacts {
                name: "brs-n",
                uid: "u",
                generation: 1,
                spec: SpecFacts { state, version: Some("2.0.0"), attempt: Some(4), ..SpecFacts::default() },
                status: StatusFacts {
                    current_version: Some("1.0.0"),
                    attempt: Some(4),
                    ..StatusFacts::default()
                },
            }),
            owner_uid: None,
            pods: PodFacts::default(),
            time: TimeFacts::default(),
        }
    }

    #[test]
    fn each_step_is_told_by_a_stable_word() {
        let spec =
            || Effect::Write(Write { object: Object::ShadowSpec("brs-n"), tests: vec![], sets: vec![] });
        let node = || Effect::Write(Write { object: Object::Node("n"), tests: vec![], sets: vec![] });
        let drained =
            Effect::ConfirmDrained(Write { object: Object::Node("n"), tests: vec![], sets: vec![] });
        for (state, effect, reason, word, warning) in [
            (State::Idle, spec(), Reason::Starting("2.0.0"), "UpdateStarted", false),
            (State::RebootedIntoUpdate, spec(), Reason::Starting("2.0.0"), "UpdateAdopted", false),
            (State::StagedAndPerformedUpdate, node(), Reason::Cordoning, "Cordoned", false),
            (State::StagedAndPerformedUpdate, drained, Reason::Draining, "Drained", false),
            (State::StagedAndPerformedUpdate, spec(), Reason::RebootGranted, "RebootGranted", false),
            (State::RebootedIntoUpdate, node(), Reason::ReturningToService, "ReturnedToService", false),
            (State::MonitoringUpdate, spec(), Reason::Finishing, "Updated", false),
            (State::RebootedIntoUpdate, spec(), Reason::Aborting(Abort::FellBack), "UpdateAborted", true),
        ] {
            let told = of_effect(&situation(state), &Decision { effect: Some(effect), reason }).unwrap();
            assert_eq!((told.reason, told.warning), (word, warning), "{reason:?}");
            assert_eq!(told.action, "UpdateAttempt4");
        }
        let waiting = Decision { effect: None, reason: Reason::Staging("2.0.0") };
        assert_eq!(of_effect(&situation(State::StagedAndPerformedUpdate), &waiting), None);
        let evicting = Decision { effect: Some(Effect::Evict), reason: Reason::Draining };
        assert_eq!(of_effect(&situation(State::StagedAndPerformedUpdate), &evicting), None);
    }

    #[test]
    fn a_reboot_that_is_overdue_is_a_warning() {
        let of = |reason| {
            of_reason(&situation(State::RebootedIntoUpdate), &reason).map(|told| (told.reason, told.warning))
        };
        assert_eq!(of(Reason::Rebooting), Some(("Rebooting", false)));
        assert_eq!(of(Reason::RebootOverdue), Some(("RebootOverdue", true)));
        assert_eq!(of(Reason::Draining), None);
    }
}
