//! The host as it is looked at turn by turn, and what it refuses or does not answer.

use std::time::Duration;

use brupop_agent_core::step::{Command, HostFacts, Prefetch, StepMemory, Updates};
use brupop_api::conditions::{ConditionStatus, PROGRESSING, REASONS_AGAINST_PREFETCH};
use brupop_api::shadow::ShadowFacts;
use brupop_api::{BottlerocketShadow, Problem, State};
use jiff::{Timestamp, Unit};
use tokio::time::Instant;

use super::SocketAbandoned;
use super::pace::Pace;
use super::reboots::Reboots;
use crate::host::{Host, HostError, StatusAnswer, parse_boot_id};
use crate::options::Options;
use crate::retry::{LASTING, Retry};

/// When nobody has listened on the socket for so long, the process ends.
///
/// The container's mount is of the socket file, not of its folder. An API server that is restarted makes a new file, and
/// the mount stays with the old one, on which nobody listens any more. Only a new container gets a new mount, and the kubelet
/// makes one when the process has ended. Nothing is lost: all state is in the cluster and on the host. A host that has no
/// API server at all brings the pod into `CrashLoopBackOff`, so that it is not Ready for most of the time.
const ABSENT_FOR_GOOD: Duration = Duration::from_mins(1);

/// Speaks to the host, and paces what is asked of it.
#[derive(Debug)]
pub(super) struct HostSession {
    pub(super) options: Options,
    pub(super) host: Host,
    /// Boot id, and the version that runs in this boot.
    running: Option<(String, String)>,
    pub(super) pace: Pace,
    pub(super) reboots: Reboots,
    /// The time since which nobody listens on the socket.
    absent_since: Option<Instant>,
    /// The time since which each activate of a whole image has failed.
    activate_fails_since: Option<Instant>,
    /// Retries of calls that the host refuses or does not answer.
    pub(super) failing: Retry,
    /// The problem that these failures are reported as.
    pub(super) problem: Problem,
    /// The last call failed. Answers to questions do not resolve that.
    pub(super) call_failed: bool,
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
            reboots: Reboots::default(),
            absent_since: None,
            activate_fails_since: None,
            failing: Retry::new("Bottlerocket's API"),
            problem: Problem::HostUnreachable,
            call_failed: false,
            options,
        }
    }

    /// Looks at the host.
    ///
    /// # Errors
    /// How long to wait before the next look, if it gives no usable answer.
    pub(super) async fn observe(&mut self) -> Result<HostAnswers, Duration> {
        let answers = self.questions().await;
        match &answers {
            Err(error) if error.is_absence() => {
                self.absent_since.get_or_insert_with(Instant::now);
            }
            _ => self.absent_since = None,
        }
        let answers = answers.map_err(|error| {
            self.problem = Problem::HostUnreachable;
            self.failing.failed(&error.to_string())
        })?;
        let busy = answers.status == StatusAnswer::Busy;
        self.pace.looked(busy);
        // A busy host refuses others only until its command ends; and a call that was not answered has begun then.
        if busy || !self.call_failed {
            self.resolved();
        }
        Ok(answers)
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

    /// Notes that the host does what it is asked. Returns whether it did not before.
    pub(super) fn resolved(&mut self) -> bool {
        self.call_failed = false;
        self.failing.resolved()
    }

    /// Fails once nobody has listened on the socket for too long.
    ///
    /// # Errors
    /// The error with which to end.
    pub(super) fn abandoned(&self) -> Result<(), SocketAbandoned> {
        let after = self.absent_since.map_or(Duration::ZERO, |it| it.elapsed());
        if after < ABSENT_FOR_GOOD {
            return Ok(());
        }
        let socket = self.options.socket.clone();
        Err(SocketAbandoned { socket, after })
    }

    /// Returns what has been wrong with the host's API for a while.
    pub(super) fn lasting_failure(&self) -> Option<(Problem, &str)> {
        let reason = self.failing.failing_for(LASTING)?;
        Some((self.problem, reason))
    }

    /// Whether the host's API has not answered for long enough to end an attempt.
    pub(super) fn is_silent(&self) -> bool {
        let deadline = self.options.refused_deadline.max(LASTING);
        self.problem == Problem::HostUnreachable && self.failing.failing_for(deadline).is_some()
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
        self.reboots.begin_attempt(attempt);
        self.activate_fails_since = (attempt.is_some() && memory.activate_failed == attempt)
            .then(|| self.activate_fails_since.unwrap_or_else(Instant::now));
        let deadline = self.options.refused_deadline;
        let fails = |since: Instant| since.elapsed() >= deadline;
        let refused = self.failing.failing_for(deadline).map(|_| self.problem);
        memory.refused = match facts.spec.state {
            State::StagedAndPerformedUpdate => {
                refused.is_some_and(|problem| problem != Problem::HostUnreachable)
                    || self.activate_fails_since.is_some_and(fails)
            }
            State::RebootedIntoUpdate => {
                refused == Some(Problem::RebootRefused) && !self.reboots.may_come()
            }
            State::Idle | State::ErrorReset | State::MonitoringUpdate => false,
        };
        memory.host_api_fails = self.call_failed;
        memory.reboot_may_come = self.reboots.may_come();
        memory.busy_for_long = self.pace.is_busy_for_long();
        memory.refresh_due = self.until_refresh(facts).is_zero();
        memory.prefetch = match chosen(host) {
            _ if !self.options.prefetch => Prefetch::Off,
            Some(chosen)
                if self.pace.until_prefetch(chosen).is_none() && waits_for_its_turn(shadow) =>
            {
                Prefetch::Due
            }
            _ => Prefetch::Later,
        };
    }

    fn until_refresh(&self, facts: &ShadowFacts<'_>) -> Duration {
        let status = facts.status;
        // While a failed look holds the node back, none is left out.
        let image_waits = status.staged.as_ref().is_some_and(|it| it.prefetched)
            && status.problem != Some(Problem::RefreshFailed);
        self.pace
            .until_refresh(self.options.refresh_interval, image_waits)
    }

    /// Returns how long to wait until the next look, if nothing else happens.
    pub(super) fn until_look(&self, host: &HostFacts<'_>, facts: &ShadowFacts<'_>) -> Duration {
        if facts.is_in_update() {
            return self.options.poll_interval;
        }
        if facts.spec.state != State::Idle {
            return self.options.refresh_interval;
        }
        let prefetch = chosen(host)
            .filter(|_| self.options.prefetch)
            .and_then(|version| self.pace.until_prefetch(version));
        let refresh = self.until_refresh(facts);
        prefetch.map_or(refresh, |wait| wait.min(refresh))
    }

    /// Forgets a command that had begun and of whose end the host says nothing. It may then be asked for again.
    pub(super) fn forget_lost(&self, memory: &mut StepMemory, host: &HostFacts<'_>) {
        if host.updates != Updates::Busy
            && let Some(asked) = memory.asked
            && self.pace.is_command_lost()
        {
            tracing::warn!(
                command = ?asked.command,
                "the host does not say how this command ended; the agent may send it again"
            );
            memory.asked = None;
            memory.refresh_lost |= asked.command == Command::Refresh;
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
        it.status == ConditionStatus::False && !REASONS_AGAINST_PREFETCH.contains(&&*it.reason)
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
