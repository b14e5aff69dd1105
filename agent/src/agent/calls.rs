//! Calls that make the host do something.

use std::time::Duration;

use brupop_agent_core::step::{
    BegunCommand, Command, HostCall, HostFacts, StepMemory, Updates, has_no_in_place_updates,
};
use brupop_api::facts::ShadowFacts;
use brupop_api::{Problem, State};

use super::host_session::{HostFailures, HostSession, chosen};
use crate::host::{CommandAnswer, HostError};

/// What came of a call.
pub(super) struct CallMade {
    /// The host has begun what was asked for, or may have.
    pub(super) may_have_begun: bool,
    /// How long to wait before the next look.
    pub(super) wait: Duration,
}

impl HostSession {
    /// Makes a call, unless the same one was made too recently.
    pub(super) async fn call(
        &mut self,
        call: HostCall,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        refresh_due: bool,
    ) -> CallMade {
        let due = call == HostCall::Command(Command::Refresh) && refresh_due;
        if !due && let Some(wait) = self.pace.repeats(call).wait(call, facts.generation) {
            return CallMade {
                may_have_begun: false,
                wait,
            };
        }
        let outcome = self.host.call(call).await;
        let idle = matches!(facts.spec.state, State::Idle | State::ErrorReset);
        let prefetch = chosen(host).filter(|_| idle && call == HostCall::Command(Command::Prepare));
        if let Some(version) = prefetch.filter(|_| !matches!(outcome, Ok(CommandAnswer::Busy))) {
            self.pace
                .prefetches
                .asked(version, self.options.refresh_interval);
        }
        self.refusals.on_answer(call, &outcome);
        self.pace
            .repeats(call)
            .asked(call, facts.generation, self.options.reboot_repeat_interval);
        let may_have_begun = may_have_begun(&outcome);
        if may_have_begun {
            self.pace.command.begun();
        }
        let wait = match outcome {
            Ok(CommandAnswer::Begun) => {
                self.on_begun(call, facts.generation);
                log_begun(call, facts, due, prefetch);
                self.next_poll()
            }
            Ok(CommandAnswer::Busy) => self.next_poll(),
            Ok(CommandAnswer::Refused(sentence)) => {
                let problem = if has_no_in_place_updates(&sentence) {
                    Problem::NoInPlaceUpdates
                } else {
                    refused(call)
                };
                let sentence = format!("{} was refused: {sentence}", call.name());
                self.failures
                    .call_failed(problem, &sentence, prefetch.is_some())
            }
            Err(error) => self.failures.call_failed(
                Problem::HostUnreachable,
                &error.to_string(),
                prefetch.is_some(),
            ),
        };
        CallMade {
            may_have_begun,
            wait,
        }
    }

    /// The host has accepted the call.
    fn on_begun(&mut self, call: HostCall, generation: u64) {
        self.failures.calls.resolved();
        self.stop_polling();
        self.pace
            .repeats(call)
            .accepted(call, generation, self.options.reboot_repeat_interval);
        if call == HostCall::Command(Command::Refresh) {
            self.pace.refresh_begun(self.options.refresh_interval);
        }
    }

    /// A host that got a call, gave no answer to it, and is busy now has begun with it: it is there.
    pub(super) fn note_busy(&mut self, memory: &StepMemory, host: &HostFacts<'_>) {
        if host.updates == Updates::Busy
            && memory.asked.is_some()
            && self.failures.call_problem == Problem::HostUnreachable
        {
            self.failures.calls.resolved();
        }
    }

    /// Forgets a command that had begun and of whose end the host says nothing. It may then be asked for again.
    pub(super) fn forget_lost(&self, memory: &mut StepMemory, host: &HostFacts<'_>) {
        if host.updates != Updates::Busy
            && let Some(BegunCommand { command, .. }) = memory.asked
            && self.pace.command.is_lost()
        {
            tracing::warn!(
                ?command,
                "the host does not say how this command ended; the agent may send it again"
            );
            memory.asked = None;
            memory.refresh_lost |= command == Command::Refresh;
        }
    }
}

impl HostFailures {
    /// A call failed. Returns how long to wait before the next look.
    fn call_failed(&mut self, problem: Problem, sentence: &str, is_prefetch: bool) -> Duration {
        if is_prefetch {
            return self.prefetches.failed(sentence);
        }
        self.call_problem = problem;
        self.calls.failed(sentence)
    }
}

/// If the host was there but gave no answer, it may have begun. Then its end is seen; otherwise it counts as lost.
fn may_have_begun(outcome: &Result<CommandAnswer, HostError>) -> bool {
    match outcome {
        Ok(outcome) => *outcome == CommandAnswer::Begun,
        Err(error) => !matches!(error, HostError::Unreachable { .. }),
    }
}

/// The word for a call that is refused.
fn refused(call: HostCall) -> Problem {
    match call {
        HostCall::Command(_) => Problem::CommandRefused,
        HostCall::Reboot => Problem::RebootRefused,
    }
}

/// Logs a call that the host has accepted.
fn log_begun(call: HostCall, facts: &ShadowFacts<'_>, due: bool, prefetch: Option<&str>) {
    if due {
        tracing::debug!("the host looks for updates");
    } else if let Some(version) = prefetch {
        tracing::info!(
            version,
            "the host downloads an update before the node's turn"
        );
    } else {
        let (version, attempt) = (facts.spec.version, facts.spec.attempt);
        tracing::info!(
            call = call.name(),
            version,
            attempt,
            "the host has accepted the call"
        );
    }
}
