//! The memory of this process between steps.

use brupop_api::State;
use brupop_api::shadow::{ShadowFacts, Staged};
use jiff::Timestamp;

use super::written::written_instead;
use super::{Command, EndedCommand, HostCall, HostFacts, LastCommand, Step, Updates};

/// The memory of this process. Losing it can cause repeated work, but no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each comes from elsewhere, and none excludes another"
)]
pub struct StepMemory {
    /// The command that was begun and whose end was not seen.
    pub asked: Option<BegunCommand>,
    /// The attempt that this process began. In any other attempt, an earlier process may have asked the host for something.
    pub began: Option<u64>,
    /// A refresh had begun, and the host never said how it ended. The shell sets it; the end of a refresh clears it.
    pub refresh_lost: bool,
    /// The attempt in which a refresh of ours has succeeded.
    pub refreshed: Option<u64>,
    /// The attempt in which a prepare of ours said that it wrote something else than what the host shows.
    pub wrote_instead: Option<u64>,
    /// The attempt in which an activate of ours failed. A prepare that ends, or an activate that succeeds, clears it.
    pub activate_failed: Option<u64>,
    /// A prepare of ours has failed because there is nowhere to write an update to.
    pub no_in_place_updates: bool,
    /// When the host's last command ended, the staging partition held an image that we downloaded and do not trust. It may be
    /// overwritten by a download ahead of the turn; somebody else's image may not.
    pub distrusted_at: Option<Timestamp>,
    /// Of the image that the status names: the time that the status has, and when the last command of ours after it ended.
    pub image_at: Option<(Timestamp, Timestamp)>,
    /// It is time to look for updates. The shell's timer sets it; the begin of the refresh clears it.
    pub refresh_due: bool,
    /// Whether to download ahead of the turn. The shell sets it; it becomes [`Prefetch::Later`] when a download begins.
    pub prefetch: Prefetch,
    /// The host refuses, for good, what the state of the spec needs: its commands, or its reboot. The shell sets it.
    pub refused: bool,
    /// The host has been busy for long, without interruption. The shell sets it.
    pub busy_for_long: bool,
    /// The host answered, but the last call that was to do something did not come off: what the status says of its API
    /// stays. The shell sets it.
    pub host_api_fails: bool,
    /// A reboot that was asked for in this boot may still come. The shell sets it.
    pub reboot_may_come: bool,
}

/// A command of ours that the host has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BegunCommand {
    pub command: Command,
    /// When the host's command before it had ended, by the host's clock; `None` if there was none since boot.
    pub before: Option<Timestamp>,
    /// The host's command before it was not a refresh that succeeded.
    pub is_first_look: bool,
}

/// Whether the chosen update is downloaded while the node waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prefetch {
    #[default]
    Off,
    /// Yes, but not yet (again).
    Later,
    Due,
}

/// The action that follows once there is nothing to report.
#[derive(Clone, Copy)]
pub(super) enum NextAction {
    Wait,
    Poll,
    Command(Command),
    Reboot,
}

impl StepMemory {
    /// Notes that the staging partition holds what is not to be trusted, although we downloaded it.
    pub(super) fn note_distrust(
        &mut self,
        host: &HostFacts<'_>,
        shadow: &ShadowFacts<'_>,
        ended: Option<EndedCommand<'_>>,
        our_image: Option<&Staged>,
    ) {
        self.no_in_place_updates |= ended.is_some_and(EndedCommand::finds_no_partition);
        if shadow.status.staged.is_some() && our_image.is_none() {
            self.distrusted_at = host.last().map(|last| last.at);
        }
        if written_instead(host, ended).is_some() {
            self.distrusted_at = ended.map(|ended| ended.last.at);
            if shadow.spec.state == State::StagedAndPerformedUpdate
                && shadow.status.attempt == shadow.spec.attempt
            {
                self.wrote_instead = shadow.spec.attempt;
            }
        }
    }

    /// The step toward what is wanted, once there is nothing to report.
    pub(super) fn next_step(&mut self, wanted: NextAction, host: &HostFacts<'_>) -> Step<'static> {
        match wanted {
            NextAction::Wait if self.asked.is_some() => Step::Poll,
            NextAction::Wait => Step::Wait,
            NextAction::Poll => Step::Poll,
            NextAction::Reboot => Step::Call(HostCall::Reboot),
            NextAction::Command(_) if self.asked.is_some() || host.updates == Updates::Busy => {
                Step::Poll
            }
            NextAction::Command(command) => {
                self.asked = Some(BegunCommand {
                    command,
                    before: host.last().map(|last| last.at),
                    is_first_look: !host.last().is_some_and(LastCommand::found_updates),
                });
                self.refresh_due &= command != Command::Refresh;
                if command == Command::Prepare && self.prefetch == Prefetch::Due {
                    self.prefetch = Prefetch::Later;
                }
                Step::Call(HostCall::Command(command))
            }
        }
    }

    /// Returns what to remember until the host has begun this call: what was seen, and not that the call was made.
    #[must_use]
    pub fn until_begun(self, call: HostCall, before: &Self) -> Self {
        match call {
            HostCall::Reboot => self,
            HostCall::Command(_) => Self {
                asked: None,
                refresh_due: before.refresh_due,
                prefetch: before.prefetch,
                ..self
            },
        }
    }

    /// Returns how the command that we asked for ended, if it has. Then it is no longer waited for.
    pub(super) fn ended<'a>(
        &mut self,
        host: &HostFacts<'a>,
        shadow: &ShadowFacts<'_>,
    ) -> Option<EndedCommand<'a>> {
        let BegunCommand {
            command,
            before,
            is_first_look,
        } = self.asked?;
        let last = host.last()?;
        // Not "later": a clock that was set back must not hide it.
        if last.kind != Some(command) || before == Some(last.at) {
            return None;
        }
        self.asked = None;
        match command {
            Command::Refresh => {
                self.refresh_lost = false;
                if last.success {
                    self.refreshed = Some(shadow.spec.attempt.unwrap_or(0));
                }
                if before.is_some() && self.distrusted_at == before {
                    self.distrusted_at = Some(last.at);
                }
            }
            Command::Activate if !last.success => self.activate_failed = shadow.spec.attempt,
            Command::Prepare | Command::Activate => self.activate_failed = None,
            Command::Deactivate => {}
        }
        Some(EndedCommand {
            command,
            before,
            is_first_look,
            last,
        })
    }
}
