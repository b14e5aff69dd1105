//! What the agent does next: a pure function from what the host says and what the shadow wants.
//!
//! The shell gathers [`HostFacts`], keeps [`Memory`] (which a crash may take), calls [`step`] and carries out what it
//! returns. The model checker runs the very same function.

mod goals;
mod image;
mod look;
mod prefetch;
mod problem;
mod report;
mod staging;
#[cfg(test)]
mod tests;
mod view;
mod written;

use brupop_api::facts::ShadowFacts;
use brupop_api::{Problem, State, Write};
use jiff::Timestamp;

use report::Report;
pub use report::host_trouble;

/// The host, as it answers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFacts<'a> {
    /// The boot it is in.
    pub boot_id: &'a str,
    /// The version that runs (`GET /os`).
    pub version: &'a str,
    /// What it says of updates (`GET /updates/status`).
    pub updates: Updates<'a>,
    /// The time as it is written into the status; nothing is decided on it.
    pub now: &'a str,
}

/// The answer to `GET /updates/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates<'a> {
    /// 404: no update command has run since boot.
    Unknown,
    /// 423: an update command runs.
    Busy,
    /// 200.
    Known(UpdateFacts<'a>),
}

/// The status document, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateFacts<'a> {
    /// `update_state`.
    pub state: UpdateState,
    /// Version of `chosen_update`.
    pub chosen: Option<&'a str>,
    /// The newest of `available_updates`. Older ones and the running one may be among them.
    pub newest: Option<&'a str>,
    /// Version of the image in the staging partition, as the last refresh before its prepare had chosen it.
    pub staged_version: Option<&'a str>,
    /// `most_recent_command`.
    pub last: Option<LastCommand<'a>>,
}

/// `update_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpdateState {
    /// No update is known.
    Idle,
    /// An update is chosen.
    Available,
    /// An image is in the staging partition.
    Staged,
    /// The staging partition is next to boot.
    Ready,
}

/// `most_recent_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCommand<'a> {
    /// `cmd_type`; `None` for one that this agent does not know.
    pub kind: Option<Command>,
    /// Did it succeed?
    pub success: bool,
    /// `timestamp`.
    pub at: Timestamp,
    /// `exit_status`.
    pub exit_status: Option<i32>,
    /// `stderr`.
    pub stderr: &'a str,
}

/// A command of the host's updater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    /// Look for updates.
    Refresh,
    /// Download the chosen update into the staging partition.
    Prepare,
    /// Make the staging partition next to boot.
    Activate,
    /// Undo that.
    Deactivate,
}

/// Something to ask of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostCall {
    /// An update command: 204 means that it has begun.
    Command(Command),
    /// Reboot.
    Reboot,
}

/// What this process remembers. If it is lost, something may be done twice, and nothing worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::struct_excessive_bools, reason = "each comes from elsewhere, and none excludes another")]
pub struct Memory {
    /// The command that was begun and whose end was not seen.
    pub asked: Option<Asked>,
    /// The attempt that this process began. In any other attempt, an earlier process may have asked the host for something.
    pub began: Option<u64>,
    /// A refresh had begun, and the host never said how it ended. The shell sets it; the end of a refresh clears it.
    pub refresh_lost: bool,
    /// The attempt in which a refresh of ours has succeeded.
    pub refreshed: Option<u64>,
    /// The attempt in which a prepare of ours said that it wrote something else than what the host shows.
    pub wrote_instead: Option<u64>,
    /// When the host's last command ended, the staging partition held an image that we downloaded and do not trust. It may be
    /// overwritten by a download ahead of the turn; somebody else's image may not.
    pub distrusted_at: Option<Timestamp>,
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
pub struct Asked {
    /// The command.
    pub command: Command,
    /// When the host's command before it had ended, by the host's clock; `None` if there was none since boot.
    pub before: Option<Timestamp>,
    /// The host's command before it was not a refresh that succeeded.
    pub is_first_look: bool,
}

/// Is the chosen update downloaded while the node waits for its turn?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prefetch {
    /// No.
    #[default]
    Off,
    /// Yes, but not yet (again).
    Later,
    /// Yes, now.
    Due,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Ask this of the host. If the host accepts, keep the memory that came with the step, else the old one.
    Call(HostCall),
    /// Patch the shadow's status. If the patch is accepted, keep the memory that came with the step, else the old one.
    Report(Write<'a>),
    /// The host is busy: look again soon.
    Poll,
    /// Nothing, until the shadow changes or a timer sets [`Memory::refresh_due`].
    Wait,
}

/// What to do next, and what to remember when it is done.
pub fn step<'a>(host: &HostFacts<'a>, shadow: &ShadowFacts<'a>, memory: &Memory) -> (Step<'a>, Memory) {
    let mut memory = *memory;
    let ended = memory.ended(host, shadow);
    let mut report = Report::of(shadow);
    report.current_version(host.version);
    report.boot_id(host.boot_id);

    let our_image = image::our_image_after(shadow, host, ended);
    if shadow.status.staged.is_some() && our_image.is_none() {
        memory.distrusted_at = ended.map(|ended| ended.last.at);
    }
    if written::written_instead(host, ended).is_some() {
        memory.distrusted_at = ended.map(|ended| ended.last.at);
        if shadow.spec.state == State::StagedAndPerformedUpdate
            && shadow.status.attempt == shadow.spec.attempt
        {
            memory.wrote_instead = shadow.spec.attempt;
        }
    }
    let view = view::View { host, shadow, memory: &memory, ended, our_image };
    if shadow.status.problem.is_some_and(Problem::is_of_host_api) && !view.host_api_fails() {
        report.no_problem();
    }
    let wanted = match shadow.spec.state {
        State::Idle | State::ErrorReset => view.toward_idle(&mut report),
        State::StagedAndPerformedUpdate => view.toward_staged(&mut report),
        State::RebootedIntoUpdate => view.toward_rebooted(&mut report),
        State::MonitoringUpdate => view.toward_monitoring(&mut report),
    };
    if let Some(write) = report.write() {
        if shadow.spec.state != State::Idle && shadow.status.attempt != shadow.spec.attempt {
            memory.began = shadow.spec.attempt;
        }
        return (Step::Report(write), memory);
    }
    let step = match wanted {
        goals::Next::Wait if memory.asked.is_some() => Step::Poll,
        goals::Next::Wait => Step::Wait,
        goals::Next::Poll => Step::Poll,
        goals::Next::Reboot => Step::Call(HostCall::Reboot),
        goals::Next::Command(_) if memory.asked.is_some() || host.updates == Updates::Busy => Step::Poll,
        goals::Next::Command(command) => {
            memory.asked = Some(Asked {
                command,
                before: host.last().map(|last| last.at),
                is_first_look: !host.last().is_some_and(LastCommand::found_updates),
            });
            memory.refresh_due &= command != Command::Refresh;
            if command == Command::Prepare && memory.prefetch == Prefetch::Due {
                memory.prefetch = Prefetch::Later;
            }
            Step::Call(HostCall::Command(command))
        }
    };
    (step, memory)
}

/// How a command of ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended<'a> {
    command: Command,
    /// When the host's command before it had ended.
    before: Option<Timestamp>,
    /// See [`Asked::is_first_look`].
    is_first_look: bool,
    last: LastCommand<'a>,
}

impl Memory {
    /// How the command that we asked for ended, if it has. Then it is no longer waited for.
    fn ended<'a>(&mut self, host: &HostFacts<'a>, shadow: &ShadowFacts<'_>) -> Option<Ended<'a>> {
        let Asked { command, before, is_first_look } = self.asked?;
        let last = host.last()?;
        // Not "later": a clock that was set back must not hide it.
        if last.kind != Some(command) || before == Some(last.at) {
            return None;
        }
        self.asked = None;
        if command == Command::Refresh {
            self.refresh_lost = false;
            if last.success {
                self.refreshed = Some(shadow.spec.attempt.unwrap_or(0));
            }
            if before.is_some() && self.distrusted_at == before {
                self.distrusted_at = Some(last.at);
            }
        }
        Some(Ended { command, before, is_first_look, last })
    }
}

impl LastCommand<'_> {
    /// Is it a refresh that succeeded?
    fn found_updates(self) -> bool {
        self.kind == Some(Command::Refresh) && self.success
    }
}

impl HostCall {
    /// The name as the host's API has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command(command) => command.name(),
            Self::Reboot => "reboot",
        }
    }
}

impl<'a> HostFacts<'a> {
    /// The status document, if there is one now.
    pub fn known(&self) -> Option<UpdateFacts<'a>> {
        if let Updates::Known(known) = self.updates { Some(known) } else { None }
    }

    fn last(&self) -> Option<LastCommand<'a>> {
        self.known().and_then(|known| known.last)
    }
}
