//! Calls that make the host do something.

use brupop_api::facts::ShadowFacts;
use brupop_api::{Problem, State};
use tokio::time::Instant;

use super::{Agent, Pause};
use crate::host::{HostError, Outcome};
use crate::pace::Begun;
use crate::trouble::jittered;
use brupop_agent_core::step::{Asked, Command, HostCall, HostFacts, Memory, Updates};

impl Agent {
    /// Makes a call, unless the same one was made too recently. `memory` is what to remember if the host begins.
    pub(super) async fn ask(
        &mut self,
        call: HostCall,
        seen: &ShadowFacts<'_>,
        chosen: Option<&str>,
        memory: Memory,
    ) -> Pause {
        let due = call == HostCall::Command(Command::Refresh) && self.memory.refresh_due;
        if !due && let Some(wait) = self.repeats.wait(call, seen.generation) {
            return Pause::ShadowOr(wait);
        }
        let outcome = self.host.call(call).await;
        let idle = matches!(seen.spec.state, State::Idle | State::ErrorReset);
        let prefetch = chosen.filter(|_| idle && call == HostCall::Command(Command::Prepare));
        if let Some(version) = prefetch.filter(|_| !matches!(outcome, Ok(Outcome::Busy))) {
            self.prefetches.asked(version, self.options.refresh_interval);
        }
        self.refusals.answered(call, &outcome);
        let (problem, sentence) = match outcome {
            Ok(Outcome::Begun) => {
                self.begun(call, seen.generation, memory);
                say_begun(call, seen, due, prefetch);
                return Pause::ShadowOr(self.polls.next(self.options.poll_interval));
            }
            Ok(Outcome::Busy) => {
                return Pause::ShadowOr(self.polls.next(self.options.poll_interval));
            }
            Ok(Outcome::NotFound(sentence) | Outcome::NotAllowed(sentence) | Outcome::Failed(sentence)) => {
                (refused(call), format!("{} was refused: {sentence}", call.name()))
            }
            Err(error) => {
                if !matches!(error, HostError::Unreachable { .. }) {
                    // It may have begun all the same. Then its end is seen; otherwise it counts as lost.
                    self.begun = Some(Begun::now());
                    self.memory = memory;
                }
                (Problem::HostUnreachable, error.to_string())
            }
        };
        let failing = if prefetch.is_some() {
            &mut self.prefetch_failing
        } else {
            self.call_problem = problem;
            &mut self.call_failing
        };
        Pause::ShadowOr(failing.failed(&sentence))
    }

    /// The host has accepted the call.
    fn begun(&mut self, call: HostCall, generation: u64, memory: Memory) {
        self.call_failing.over();
        self.repeats.made(call, generation, self.options.reboot_repeat_interval);
        self.begun = Some(Begun::now());
        self.memory = memory;
        if call == HostCall::Command(Command::Refresh) {
            self.refresh_at = Instant::now() + jittered(self.options.refresh_interval, 0.1);
        }
    }

    /// Forgets a command that had begun and of whose end the host says nothing. It may then be asked for again.
    pub(super) fn notice_lost(&mut self, host: &HostFacts<'_>) {
        if host.updates != Updates::Busy
            && let Some(Asked { command, .. }) = self.memory.asked
            && self.begun.as_ref().is_none_or(Begun::is_lost)
        {
            tracing::warn!(?command, "the host does not say what became of its command; it counts as lost");
            self.memory.asked = None;
            self.memory.refresh_lost |= command == Command::Refresh;
        }
    }
}

/// The word for a call that is refused.
fn refused(call: HostCall) -> Problem {
    match call {
        HostCall::Command(_) => Problem::CommandRefused,
        HostCall::Reboot => Problem::RebootRefused,
    }
}

/// A log line about a call that the host has accepted.
fn say_begun(call: HostCall, seen: &ShadowFacts<'_>, due: bool, prefetch: Option<&str>) {
    if due {
        tracing::debug!("the host looks for updates");
    } else if let Some(version) = prefetch {
        tracing::info!(version, "the host downloads an update ahead of its turn");
    } else {
        let (version, attempt) = (seen.spec.version, seen.spec.attempt);
        tracing::info!(call = call.name(), version, attempt, "the host has begun");
    }
}
