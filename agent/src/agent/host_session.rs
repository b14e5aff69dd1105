//! The host as it is looked at turn by turn, and what is known of our requests to it.

use std::time::Duration;

use brupop_agent_core::step::{HostFacts, Prefetch, StepMemory, Updates};
use brupop_api::conditions::{ConditionStatus, PROGRESSING, REASONS_AGAINST_PREFETCH};
use brupop_api::facts::ShadowFacts;
use brupop_api::{BottlerocketShadow, Field, Problem, State, Value, Write};
use jiff::{Timestamp, Unit};

use super::SocketAbandoned;
use super::absence::Absence;
use super::refusals::HostRefusals;
use crate::host::{Host, HostError, StatusAnswer, parse_boot_id};
use crate::options::Options;
use crate::pace::Pace;
use crate::retry::{LASTING, Retry};

/// Speaks to the host, and paces what is asked of it.
#[derive(Debug)]
pub(super) struct HostSession {
    pub(super) options: Options,
    pub(super) host: Host,
    /// Boot id, and the version that runs in this boot.
    running: Option<(String, String)>,
    pub(super) pace: Pace,
    pub(super) refusals: HostRefusals,
    absence: Absence,
    pub(super) failures: HostFailures,
}

/// What the host does not do.
#[derive(Debug)]
pub(super) struct HostFailures {
    /// Questions that got no usable answer.
    questions: Retry,
    /// Calls that were refused or not answered.
    pub(super) calls: Retry,
    /// What that is, in one word.
    pub(super) call_problem: Problem,
    /// Downloads ahead of the turn that were refused or not answered.
    pub(super) prefetches: Retry,
}

/// The host's answers in one turn.
pub(super) struct HostAnswers {
    boot_id: String,
    pub(super) version: String,
    status: StatusAnswer,
    now: String,
}

impl HostAnswers {
    pub(super) fn facts(&self) -> HostFacts<'_> {
        HostFacts {
            boot_id: &self.boot_id,
            version: &self.version,
            updates: match &self.status {
                StatusAnswer::Unknown => Updates::Unknown,
                StatusAnswer::Busy => Updates::Busy,
                StatusAnswer::Known(status) => Updates::Known(status.facts()),
            },
            now: &self.now,
        }
    }
}

impl HostSession {
    pub(super) fn new(options: Options) -> Self {
        Self {
            host: Host::new(&options.socket, options.host_timeout),
            running: None,
            pace: Pace::new(options.start_jitter),
            refusals: HostRefusals::default(),
            absence: Absence::default(),
            failures: HostFailures {
                questions: Retry::new("Bottlerocket's API"),
                calls: Retry::new("the call of an action in Bottlerocket's API"),
                call_problem: Problem::HostUnreachable,
                prefetches: Retry::new("the download before the node's turn"),
            },
            options,
        }
    }

    /// Looks at the host.
    ///
    /// # Errors
    /// How long to wait before the next look, if it gives no usable answer.
    pub(super) async fn observe(&mut self) -> Result<HostAnswers, Duration> {
        match self.questions().await {
            Ok(answers) => {
                self.absence.on_answer();
                self.failures.questions.resolved();
                Ok(answers)
            }
            Err(error) => {
                self.absence.on_failure(&error);
                Err(self.failures.questions.failed(&error.to_string()))
            }
        }
    }

    async fn questions(&mut self) -> Result<HostAnswers, HostError> {
        let path = &self.options.boot_id_file;
        let boot_id = std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| parse_boot_id(&text))
            .map_err(|why| HostError::BootId {
                path: path.clone(),
                why,
            })?;
        let version = match &self.running {
            Some((boot, version)) if *boot == boot_id => version.clone(),
            _ => self.host.os().await?,
        };
        self.running = Some((boot_id.clone(), version.clone()));
        let status = self.host.status().await?;
        Ok(HostAnswers {
            boot_id,
            version,
            status,
            now: now(),
        })
    }

    /// The error with which to end, once nobody has listened on the socket for too long.
    pub(super) fn abandoned(&self) -> Option<SocketAbandoned> {
        self.absence.abandoned(&self.options.socket)
    }

    /// What has been wrong with the host's API for a while.
    pub(super) fn lasting_failure(&self) -> Option<(Problem, &str)> {
        let HostFailures {
            questions,
            calls,
            call_problem,
            ..
        } = &self.failures;
        let unreachable = questions
            .lasting()
            .map(|reason| (Problem::HostUnreachable, reason));
        unreachable.or_else(|| calls.lasting().map(|reason| (*call_problem, reason)))
    }

    /// Why the host's API has not answered, if that has been so for long enough to end an attempt.
    pub(super) fn silence(&self) -> Option<&str> {
        let HostFailures {
            questions,
            calls,
            call_problem,
            ..
        } = &self.failures;
        let deadline = self.options.refused_deadline.max(LASTING);
        let silent_calls = || {
            calls
                .failing_for(deadline)
                .filter(|_| *call_problem == Problem::HostUnreachable)
        };
        questions.failing_for(deadline).or_else(silent_calls)
    }

    /// Brings into the step's memory what timers and earlier turns know.
    pub(super) fn prompt(
        &mut self,
        memory: &mut StepMemory,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        shadow: &BottlerocketShadow,
    ) {
        let attempt = facts.spec.attempt;
        self.refusals.begin_attempt(attempt);
        self.refusals
            .on_activates(attempt.is_some() && memory.activate_failed == attempt);
        let busy = host.updates == Updates::Busy;
        self.pace.command.seen(busy);
        if busy {
            self.refusals.on_busy();
        }
        let deadline = self.options.refused_deadline;
        memory.refused = match facts.spec.state {
            State::StagedAndPerformedUpdate => self.refusals.command_for_good(deadline),
            State::RebootedIntoUpdate => self.refusals.reboot_for_good(deadline),
            State::Idle | State::ErrorReset | State::MonitoringUpdate => false,
        };
        memory.host_api_fails = self.failures.calls.is_failing();
        memory.reboot_may_come = self.refusals.reboot_may_come();
        memory.busy_for_long = self.pace.command.is_long();
        memory.refresh_due |= self.pace.refresh_is_due();
        memory.prefetch = match chosen(host) {
            _ if !self.options.prefetch => Prefetch::Off,
            Some(chosen)
                if self.pace.prefetches.wait(chosen).is_none() && waits_for_its_turn(shadow) =>
            {
                Prefetch::Due
            }
            _ => Prefetch::Later,
        };
    }

    /// How long until something is due on an idle host.
    pub(super) fn idle_for(&self, host: &HostFacts<'_>) -> Duration {
        self.pace
            .idle_for(chosen(host).filter(|_| self.options.prefetch))
    }

    /// How long to wait until the next look at a command that runs.
    pub(super) fn next_poll(&mut self) -> Duration {
        self.pace.polls.next(self.options.poll_interval)
    }

    /// No command is waited for.
    pub(super) fn stop_polling(&mut self) {
        self.pace.polls.reset();
    }

    /// The API server has taken a report: notes a claim, and what became of a download ahead of its turn.
    pub(super) fn on_report(&mut self, write: &Write<'_>, memory: &mut StepMemory) {
        for (field, value) in &write.sets {
            match (field, value) {
                (Field::StatusRebootClaimedBootId, value) if *value != Value::Absent => {
                    self.refusals.on_claim();
                }
                (Field::StatusStaged, Value::Absent) => {
                    self.pace.image_gone(self.options.refresh_interval);
                }
                (_, Value::Staged(staged)) if staged.prefetched => {
                    self.failures.prefetches.resolved();
                    memory.refresh_due = false;
                    self.pace.prefetched(self.options.refresh_interval);
                }
                _ => {}
            }
        }
    }
}

/// The time as it is written into the status.
pub(super) fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

/// The version that the host chooses.
pub(super) fn chosen<'a>(host: &HostFacts<'a>) -> Option<&'a str> {
    host.known().and_then(|known| known.chosen)
}

/// Does the node lack nothing but its turn? Also true if the reconciler has not said anything yet.
fn waits_for_its_turn(shadow: &BottlerocketShadow) -> bool {
    let mut conditions = shadow.status.iter().flat_map(|status| &status.conditions);
    let progressing = conditions.find(|condition| condition.type_ == PROGRESSING);
    progressing.is_none_or(|it| {
        it.status == ConditionStatus::False
            && !REASONS_AGAINST_PREFETCH.contains(&it.reason.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Resource as _;
    use serde_json::{Value as Json, json};

    #[test]
    fn a_node_ready_for_its_turn_prefetches() {
        let waits = |conditions: Json| {
            let shadow = json!({
                "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
                "metadata": {"name": "brs-n"}, "spec": {"state": "Idle"}, "status": {"conditions": conditions},
            });
            waits_for_its_turn(&serde_json::from_value(shadow).unwrap())
        };
        assert!(waits(json!([])), "nothing is said yet");
        for (status, reason, expected) in [
            ("False", "LimitReached", true),
            ("False", "OutsideWindow", true),
            ("False", "NoUpdate", true),
            ("False", "VersionHalted", false),
            ("False", "BackingOff", false),
            ("False", "NodePaused", false),
            ("False", "FleetPaused", false),
            ("Unknown", "AgentSilent", false),
            ("True", "Aborting", false),
        ] {
            let time = "2026-11-21T04:00:00Z";
            let condition = json!({"type": PROGRESSING, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": time});
            assert_eq!(waits(json!([condition])), expected, "{reason}");
        }
    }
}
