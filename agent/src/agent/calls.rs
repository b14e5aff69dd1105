//! Calls that make the host do something.

use std::time::Duration;

use brupop_agent_core::step::{Command, HostCall, HostFacts, StepMemory, has_no_in_place_updates};
use brupop_api::shadow::ShadowFacts;
use brupop_api::{Problem, State};

use super::host_session::{HostSession, chosen};
use crate::host::{CommandAnswer, HostError};

impl HostSession {
    /// Makes a call, unless the same one was made too recently. `memory` becomes `after` if the host has begun, or may have:
    /// if it was there but gave no answer, the end of the command is seen, or else it counts as lost. But a refresh without an
    /// answer is repeated, for the end of somebody else's would vouch for an image. Returns how long to wait before the next
    /// look.
    pub(super) async fn call(
        &mut self,
        call: HostCall,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        memory: &mut StepMemory,
        after: StepMemory,
    ) -> Duration {
        let is_refresh = call == HostCall::Command(Command::Refresh);
        let due = is_refresh && memory.refresh_due;
        if !due && let Some(wait) = self.pace.wait(call, facts.generation) {
            return wait;
        }
        let outcome = self.host.call(call).await;
        let begun = matches!(outcome, Ok(CommandAnswer::Begun));
        let reached = |error| !matches!(error, &HostError::Unreachable { .. });
        let unheard = outcome.as_ref().is_err_and(reached);
        let may_have_begun = begun || (unheard && !is_refresh);
        if may_have_begun {
            *memory = after;
            self.pace.command_begun();
        }
        let is_reboot = call == HostCall::Reboot;
        if is_reboot && may_have_begun {
            self.reboots.on_request();
        }
        // While a reboot is under way, the host may refuse further requests: these wait just as long.
        if begun || (unheard && is_refresh) || (is_reboot && self.reboots.may_come()) {
            let reboot = self.options.reboot_repeat_interval;
            self.pace.called(call, facts.generation, reboot);
        }
        let idle = matches!(facts.spec.state, State::Idle | State::ErrorReset);
        let prefetch = chosen(host).filter(|_| idle && call == HostCall::Command(Command::Prepare));
        if let Some(version) = prefetch {
            self.pace.prefetched(version, self.options.refresh_interval);
        }
        let (problem, sentence) = match outcome {
            Ok(CommandAnswer::Begun) => {
                self.resolved();
                if is_refresh {
                    self.pace.refresh_begun(self.options.refresh_interval);
                }
                let (attempt, ahead) = (facts.spec.attempt, prefetch.is_some());
                if !due {
                    tracing::info!(
                        call = call.name(),
                        version = prefetch.or(facts.spec.version.as_deref()),
                        attempt,
                        ahead,
                        "the host has accepted the call"
                    );
                }
                return self.options.poll_interval;
            }
            Ok(CommandAnswer::Refused(sentence)) => {
                let problem = match call {
                    _ if has_no_in_place_updates(&sentence) => Problem::NoInPlaceUpdates,
                    HostCall::Command(_) => Problem::CommandRefused,
                    HostCall::Reboot => Problem::RebootRefused,
                };
                (problem, format!("{} was refused: {sentence}", call.name()))
            }
            Err(error) => (Problem::HostUnreachable, error.to_string()),
        };
        if let Some(version) = prefetch {
            tracing::warn!(
                version,
                reason = sentence,
                "the host cannot download the update before the node's turn"
            );
            return self.options.poll_interval;
        }
        (self.problem, self.call_failed) = (problem, true);
        self.failing.failed(&sentence)
    }
}
