//! One turn: look, decide, do.

use std::sync::Arc;
use std::time::Duration;

use brupop_api::conditions::{ConditionStatus, PROGRESSING, REASONS_AGAINST_PREFETCH};
use brupop_api::facts::ShadowFacts;
use brupop_api::{BottlerocketShadow, Field, Problem, State, Value, Write};
use jiff::{Timestamp, Unit};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{Agent, BUSY_FOR_LONG, Pause, REFRESHES_LEFT_OUT, facts};
use crate::host::{HostError, Status, parse_boot_id};
use crate::pace::Begun;
use crate::trouble::jittered;
use brupop_agent_core::step::{HostFacts, Prefetch, Step, Updates, host_trouble, step};

/// The host's answers in one turn.
struct Look {
    boot_id: String,
    version: String,
    status: Status,
    now: String,
}

impl Look {
    fn facts(&self) -> HostFacts<'_> {
        HostFacts {
            boot_id: &self.boot_id,
            version: &self.version,
            updates: match &self.status {
                Status::Unknown => Updates::Unknown,
                Status::Busy => Updates::Busy,
                Status::Known(status) => Updates::Known(status.facts()),
            },
            now: &self.now,
        }
    }
}

impl Agent {
    pub(super) async fn turn(&mut self) -> Pause {
        let Some(shadow) = self.newest().await else { return Pause::Shadow };
        let Some(seen) = facts(&shadow) else { return Pause::Shadow };
        let look = match self.look().await {
            Ok(look) => look,
            Err(error) => {
                self.absence.noticed(&error);
                let delay = self.host_unreachable.failed(&error.to_string());
                let told = self.tell_trouble(&seen, &shadow).await;
                return told.unwrap_or(Pause::ShadowOr(delay));
            }
        };
        self.absence.over();
        self.host_unreachable.over();
        let span = tracing::info_span!("host", version = look.version);
        self.act(&look.facts(), &seen, &shadow).instrument(span).await
    }

    async fn act(
        &mut self,
        host: &HostFacts<'_>,
        seen: &ShadowFacts<'_>,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Pause {
        self.remember(seen, host, shadow);
        let (step, memory) = step(host, seen, &self.memory);
        // Only now: a call that is still to be made, or whose end is not known, may yet fail.
        if step == Step::Wait && self.call_failing.is_failing() {
            self.call_failing.over();
            self.memory = memory;
            // Once more: what the shadow says of it may be taken back now.
            return Pause::None;
        }
        if !matches!(step, Step::Report(_)) {
            self.reports = 0;
            if let Some(pause) = self.tell_trouble(seen, shadow).await {
                return pause;
            }
        }
        if step != Step::Poll {
            self.polls.reset();
        }
        match step {
            Step::Report(write) => match self.report(&write, shadow).await {
                Ok(()) => {
                    self.memory = memory;
                    if write.sets.iter().any(|(field, value)| {
                        *field == Field::StatusRebootRequested && *value != Value::Absent
                    }) {
                        self.refusals.claimed();
                    }
                    self.after_prefetch(&write);
                    self.after_report()
                }
                Err(pause) => pause,
            },
            Step::Call(call) => {
                let chosen = host.known().and_then(|known| known.chosen);
                self.ask(call, seen, chosen, memory).await
            }
            Step::Poll => {
                self.memory = memory;
                self.notice_lost(host);
                Pause::ShadowOr(self.polls.next(self.options.poll_interval))
            }
            Step::Wait => {
                self.memory = memory;
                match seen.spec.state {
                    State::Idle => Pause::ShadowOr(self.idle_for(host)),
                    _ => Pause::Shadow,
                }
            }
        }
    }

    async fn look(&mut self) -> Result<Look, HostError> {
        let path = &self.options.boot_id_file;
        let boot_id = std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| parse_boot_id(&text))
            .map_err(|why| HostError::BootId { path: path.clone(), why })?;
        let version = match &self.running {
            Some((boot, version)) if *boot == boot_id => version.clone(),
            _ => self.host.os().await?.version,
        };
        self.running = Some((boot_id.clone(), version.clone()));
        let status = self.host.status().await?;
        let now = Timestamp::now();
        let now = now.round(Unit::Second).unwrap_or(now).to_string();
        Ok(Look { boot_id, version, status, now })
    }

    /// Brings into memory what timers and earlier turns know.
    fn remember(&mut self, seen: &ShadowFacts<'_>, host: &HostFacts<'_>, shadow: &BottlerocketShadow) {
        self.refusals.attempt(seen.spec.attempt);
        let busy = host.updates == Updates::Busy;
        if busy {
            self.begun = Some(Begun::now());
            self.refusals.busy();
        }
        let deadline = self.options.refused_deadline;
        self.memory.refused = match seen.spec.state {
            State::StagedAndPerformedUpdate => self.refusals.command_for_good(deadline),
            State::RebootedIntoUpdate => self.refusals.reboot_for_good(deadline),
            State::Idle | State::ErrorReset | State::MonitoringUpdate => false,
        };
        self.memory.host_api_fails = self.call_failing.is_failing();
        self.memory.reboot_may_come = self.refusals.reboot_may_come();
        self.busy_since = self.busy_since.filter(|_| busy).or_else(|| busy.then(Instant::now));
        self.memory.busy_for_long = self.busy_since.is_some_and(|since| since.elapsed() >= BUSY_FOR_LONG);
        self.memory.refresh_due |= Instant::now() >= self.refresh_at;
        let chosen = host.known().and_then(|known| known.chosen);
        self.memory.prefetch = match chosen {
            _ if !self.options.prefetch => Prefetch::Off,
            Some(chosen) if self.prefetches.wait(chosen).is_none() && waits_for_its_turn(shadow) => {
                Prefetch::Due
            }
            _ => Prefetch::Later,
        };
    }

    /// How long until something is due on an idle host.
    fn idle_for(&self, host: &HostFacts<'_>) -> Duration {
        let refresh = self.refresh_at.duration_since(Instant::now());
        let chosen = host.known().and_then(|known| known.chosen).filter(|_| self.options.prefetch);
        chosen.and_then(|chosen| self.prefetches.wait(chosen)).map_or(refresh, |wait| wait.min(refresh))
    }

    /// Looks for updates become rarer while an image waits that was downloaded ahead of its turn.
    fn after_prefetch(&mut self, write: &Write<'_>) {
        if write.sets.contains(&(Field::StatusStaged, Value::Absent)) {
            self.refresh_at =
                self.refresh_at.min(Instant::now() + jittered(self.options.refresh_interval, 0.1));
        }
        let waits =
            |(_, value): &(Field<'_>, Value<'_>)| matches!(value, Value::Staged(staged) if staged.prefetched);
        if write.sets.iter().any(waits) {
            self.prefetch_failing.over();
            self.memory.refresh_due = false;
            let seldom = self.options.refresh_interval.saturating_mul(REFRESHES_LEFT_OUT);
            self.refresh_at = Instant::now() + jittered(seldom, 0.1);
        }
    }

    /// Says in the shadow what has been wrong with the host's API for a while.
    async fn tell_trouble(
        &mut self,
        seen: &ShadowFacts<'_>,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Option<Pause> {
        let unreachable = self.host_unreachable.lasting().map(|reason| (Problem::HostUnreachable, reason));
        let failing = || self.call_failing.lasting().map(|reason| (self.call_problem, reason));
        let (problem, reason) = unreachable.or_else(failing)?;
        let write = host_trouble(seen, problem, reason)?;
        match self.report(&write, shadow).await {
            Ok(()) => Some(self.after_report()),
            Err(pause) => Some(pause),
        }
    }
}

/// Does the node lack nothing but its turn? Also true if the reconciler has not said anything yet.
fn waits_for_its_turn(shadow: &BottlerocketShadow) -> bool {
    let mut conditions = shadow.status.iter().flat_map(|status| &status.conditions);
    let progressing = conditions.find(|condition| condition.type_ == PROGRESSING);
    progressing.is_none_or(|it| {
        it.status == ConditionStatus::False && !REASONS_AGAINST_PREFETCH.contains(&it.reason.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    #[test]
    fn who_could_have_its_turn_downloads_ahead_of_it() {
        let waits = |conditions: Json| {
            let shadow = json!({
                "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
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
            ("Unknown", "NotReported", false),
            ("True", "Aborting", false),
        ] {
            let time = "2026-11-21T04:00:00Z";
            let condition = json!({"type": PROGRESSING, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": time});
            assert_eq!(waits(json!([condition])), expected, "{reason}");
        }
    }
}
