//! Whether the host refuses, for good, what an attempt needs of it: then the attempt has failed, and a claim may be taken
//! back.

use std::time::Duration;

use tokio::time::Instant;

use crate::host::{CommandAnswer, HostError};
use brupop_agent_core::step::HostCall;

/// A reboot that was asked for, and that the host accepted, has come by then, or does not come: the host stops its services
/// within a few minutes.
const OVER: Duration = Duration::from_mins(30);

/// What became of the requests of this process.
#[derive(Debug, Default)]
pub(super) struct HostRefusals {
    attempt: Option<u64>,
    /// Since when this process knows of the attempt. What it has not asked for since then, another process asked for before.
    known_since: Option<Instant>,
    /// This process made the claim. So no process before it can have asked for this reboot.
    claimed: bool,
    /// When the host last accepted a request for a reboot, or may have. The reboot may come at any moment.
    reboot_accepted: Option<Instant>,
    /// Since when it has refused every request for a reboot.
    reboot_since: Option<Instant>,
    /// Since when it has refused every command.
    command_since: Option<Instant>,
    /// Since when each activate of a whole image has failed.
    activate_since: Option<Instant>,
}

impl HostRefusals {
    /// Notes the attempt that the spec asks for. A new attempt forgets what happened in the one before.
    pub(super) fn begin_attempt(&mut self, attempt: Option<u64>) {
        if self.attempt != attempt {
            *self = Self {
                attempt,
                known_since: Some(Instant::now()),
                ..Self::default()
            };
        }
    }

    /// This process has claimed the reboot.
    pub(super) fn on_claim(&mut self) {
        self.claimed = true;
    }

    /// The host says that a command runs: it refuses others only until that one ends.
    pub(super) fn on_busy(&mut self) {
        self.command_since = None;
    }

    /// Whether an activate has failed in this attempt, and none succeeded since.
    pub(super) fn on_activates(&mut self, fail: bool) {
        self.activate_since = fail.then(|| self.activate_since.unwrap_or_else(Instant::now));
    }

    /// What the host said to a call.
    pub(super) fn on_answer(&mut self, call: HostCall, answer: &Result<CommandAnswer, HostError>) {
        let since = if call == HostCall::Reboot {
            &mut self.reboot_since
        } else {
            &mut self.command_since
        };
        match answer {
            // It was never asked.
            Err(HostError::Unreachable { .. }) => {}
            Ok(CommandAnswer::Begun) | Err(_) => {
                // It said yes, or nobody knows what it said.
                *since = None;
                if call == HostCall::Reboot {
                    self.reboot_accepted = Some(Instant::now());
                }
            }
            Ok(_) => {
                since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Has the host refused every request for a reboot for as long as `deadline`? A claim that this process found is
    /// older than its requests, so these have to be refused for longer.
    pub(super) fn reboot_for_good(&self, deadline: Duration) -> bool {
        let deadline = if self.claimed {
            deadline
        } else {
            deadline.max(OVER)
        };
        self.reboot_accepted.is_none()
            && self
                .reboot_since
                .is_some_and(|since| since.elapsed() >= deadline)
    }

    /// May a reboot still come that was asked for in this boot? Not that of a claim which this process made and for which it
    /// got nothing but refusals.
    pub(super) fn reboot_may_come(&self) -> bool {
        let inherited = self.known_since.filter(|_| !self.claimed);
        self.reboot_accepted
            .or(inherited)
            .is_some_and(|asked| asked.elapsed() < OVER)
    }

    /// Has the host refused every command for as long as `deadline`, although none runs? Or has it for as long failed to
    /// activate a whole image?
    pub(super) fn command_for_good(&self, deadline: Duration) -> bool {
        let since = [self.command_since, self.activate_since]
            .into_iter()
            .flatten()
            .min();
        since.is_some_and(|since| since.elapsed() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_agent_core::step::Command;

    const DEADLINE: Duration = Duration::from_secs(50);
    const PREPARE: HostCall = HostCall::Command(Command::Prepare);

    fn no() -> CommandAnswer {
        CommandAnswer::Refused("inhibited".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn only_refusals_make_a_reboot_refused_for_good() {
        for (claimed, accepted, waited, expected) in [
            (true, false, DEADLINE, true),
            (true, false, DEADLINE / 2, false),
            (true, true, DEADLINE, false),
            (false, false, DEADLINE, false),
            (false, false, OVER, true),
            (false, true, OVER, false),
        ] {
            let mut refusals = HostRefusals::default();
            refusals.begin_attempt(Some(1));
            if claimed {
                refusals.on_claim();
            }
            if accepted {
                refusals.on_answer(HostCall::Reboot, &Ok(CommandAnswer::Begun));
            }
            refusals.on_answer(HostCall::Reboot, &Ok(no()));
            tokio::time::advance(waited).await;
            refusals.on_answer(HostCall::Reboot, &Ok(no()));
            assert_eq!(
                refusals.reboot_for_good(DEADLINE),
                expected,
                "{claimed} {accepted} {waited:?}"
            );
            assert!(!refusals.command_for_good(DEADLINE));
            refusals.begin_attempt(Some(1));
            assert_eq!(refusals.reboot_for_good(DEADLINE), expected);
            refusals.begin_attempt(Some(2));
            assert!(!refusals.reboot_for_good(DEADLINE), "another attempt");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_or_inherited_reboot_may_still_come() {
        let mut refusals = HostRefusals::default();
        refusals.begin_attempt(Some(1));
        assert!(
            refusals.reboot_may_come(),
            "an earlier process may have asked for it"
        );
        refusals.on_claim();
        assert!(
            !refusals.reboot_may_come(),
            "nobody could ask before the claim"
        );
        refusals.on_answer(HostCall::Reboot, &Ok(no()));
        assert!(!refusals.reboot_may_come());
        refusals.on_answer(HostCall::Reboot, &Ok(CommandAnswer::Begun));
        assert!(refusals.reboot_may_come());
        tokio::time::advance(OVER).await;
        assert!(!refusals.reboot_may_come());
        refusals.begin_attempt(Some(2));
        assert!(refusals.reboot_may_come());
        tokio::time::advance(OVER).await;
        assert!(!refusals.reboot_may_come());
    }

    #[tokio::test(start_paused = true)]
    async fn commands_are_refused_for_good_while_none_runs() {
        let mut refusals = HostRefusals::default();
        refusals.begin_attempt(Some(1));
        refusals.on_answer(PREPARE, &Ok(no()));
        tokio::time::advance(DEADLINE).await;
        refusals.on_answer(PREPARE, &Ok(CommandAnswer::Busy));
        assert!(refusals.command_for_good(DEADLINE) && !refusals.reboot_for_good(DEADLINE));
        refusals.on_busy();
        assert!(!refusals.command_for_good(DEADLINE));
        refusals.on_answer(PREPARE, &Ok(no()));
        tokio::time::advance(DEADLINE).await;
        refusals.on_answer(PREPARE, &Ok(CommandAnswer::Begun));
        assert!(!refusals.command_for_good(DEADLINE));
    }
}
