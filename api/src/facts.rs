//! Facts of a shadow, borrowed and small: one view for agent, reconciler and model.

use std::sync::LazyLock;

use crate::shadow::{
    BottlerocketShadow, BottlerocketShadowSpec, BottlerocketShadowStatus, Problem, State,
};

/// A shadow as decisions see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowFacts<'a> {
    /// The shadow's `metadata.name`, with its prefix.
    pub name: &'a str,
    /// The shadow's `metadata.uid`, borrowed from it.
    pub uid: &'a str,
    /// `metadata.generation`: changes with every change of the spec.
    pub generation: u64,
    /// The shadow's spec.
    pub spec: &'a BottlerocketShadowSpec,
    /// The status; all absent if there is none.
    pub status: &'a BottlerocketShadowStatus,
}

impl BottlerocketShadowSpec {
    /// Whether this number, which a person has written ([`crate::names::RETRY_ANNOTATION`]), ends the back-off after the last
    /// failure: it is of the attempt that failed, or of a later one that has not failed.
    pub fn is_retried(&self, retry: Option<u64>) -> bool {
        self.last_failure
            .as_ref()
            .is_some_and(|failures| retry >= Some(failures.attempt) && retry <= self.attempt)
    }
}

impl BottlerocketShadowStatus {
    /// Whether its agent reports that the host cannot look for updates, or cannot have any.
    pub fn cannot_update(&self) -> bool {
        self.problem.is_some_and(Problem::prevents_update)
    }
}

impl<'a> ShadowFacts<'a> {
    /// The view of an object; `None` if it has no name, UID or generation, as no object of the API server does.
    pub fn of(shadow: &'a BottlerocketShadow) -> Option<Self> {
        static NO_STATUS: LazyLock<BottlerocketShadowStatus> = LazyLock::new(Default::default);
        Some(Self {
            name: shadow.metadata.name.as_deref()?,
            uid: shadow.metadata.uid.as_deref()?,
            generation: u64::try_from(shadow.metadata.generation?).ok()?,
            spec: &shadow.spec,
            status: shadow.status.as_ref().unwrap_or(&NO_STATUS),
        })
    }

    /// Whether the agent has reached the spec's state at the spec's attempt.
    pub fn reached(&self) -> bool {
        self.reports(self.spec.state)
    }

    /// Does the agent report this state, at the spec's attempt? (A shadow that nobody has updated has no attempt.)
    pub fn reports(&self, state: State) -> bool {
        self.status.current_state == Some(state)
            && self.status.attempt.unwrap_or(0) == self.spec.attempt.unwrap_or(0)
    }

    /// Whether this operator began the update that the spec asks for.
    pub fn is_in_update(&self) -> bool {
        self.spec.state != State::Idle && self.spec.attempt.is_some()
    }

    /// Whether another operator began the update that the spec asks for: each of ours has an attempt.
    pub fn is_of_other_operator(&self) -> bool {
        self.spec.state != State::Idle && self.spec.attempt.is_none()
    }

    /// Whether the agent has claimed the granted reboot.
    pub fn is_claimed(&self) -> bool {
        self.spec.reboot_granted_boot_id.is_some()
            && self.spec.reboot_granted_boot_id == self.status.reboot_claimed_boot_id
    }

    /// The version to update to, if there is one.
    pub fn update(&self) -> Option<&'a str> {
        let target = self.status.target_version.as_deref();
        target.filter(|_| self.status.target_version != self.status.current_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_object_without_name_uid_or_generation_is_none() {
        let whole = || {
            let mut shadow = BottlerocketShadow::new("brs-a", BottlerocketShadowSpec::default());
            (shadow.metadata.uid, shadow.metadata.generation) = (Some("u".into()), Some(2));
            shadow
        };
        let shadow = whole();
        let seen = ShadowFacts::of(&shadow).unwrap();
        assert_eq!((seen.name, seen.uid, seen.generation), ("brs-a", "u", 2));
        let changes: [fn(&mut BottlerocketShadow); 4] = [
            |shadow| shadow.metadata.name = None,
            |shadow| shadow.metadata.uid = None,
            |shadow| shadow.metadata.generation = None,
            |shadow| shadow.metadata.generation = Some(-1),
        ];
        for change in changes {
            let mut shadow = whole();
            change(&mut shadow);
            assert_eq!(ShadowFacts::of(&shadow), None, "{:?}", shadow.metadata);
        }
    }

    #[test]
    fn a_state_is_reported_at_the_attempt_asked_for() {
        use State::{ErrorReset, Idle, MonitoringUpdate};
        for (current_state, attempt, asked_for, reports) in [
            (
                Some(MonitoringUpdate),
                Some(1),
                Some(1),
                Some(MonitoringUpdate),
            ),
            (Some(MonitoringUpdate), None, None, Some(MonitoringUpdate)),
            (Some(MonitoringUpdate), Some(1), Some(2), None),
            (Some(MonitoringUpdate), None, Some(1), None),
            (Some(ErrorReset), Some(1), Some(1), Some(ErrorReset)),
            (Some(Idle), Some(1), Some(2), None),
            (None, Some(1), Some(1), None),
        ] {
            let facts = ShadowFacts {
                name: "brs-a",
                uid: "u",
                generation: 2,
                spec: &BottlerocketShadowSpec {
                    state: MonitoringUpdate,
                    attempt: asked_for,
                    ..Default::default()
                },
                status: &BottlerocketShadowStatus {
                    current_state,
                    attempt,
                    ..Default::default()
                },
            };
            let told = State::ALL.into_iter().find(|state| facts.reports(*state));
            assert_eq!(
                told, reports,
                "{current_state:?} at {attempt:?}, not {asked_for:?}"
            );
            assert_eq!(
                facts.reached(),
                reports == Some(MonitoringUpdate),
                "{current_state:?}"
            );
        }
    }
}
