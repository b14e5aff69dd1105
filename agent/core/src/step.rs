//! The agent's next step: a pure function of the host's state and the shadow's spec.
//!
//! The shell gathers [`HostFacts`], keeps [`StepMemory`] (which a crash may take), calls [`step`] and carries out what it
//! returns. The model checker runs the very same function.

mod goals;
mod image;
mod input;
mod memory;
mod prefetch;
mod problem;
mod refresh;
mod report;
mod staging;
#[cfg(test)]
mod tests;
mod written;

use brupop_api::shadow::ShadowFacts;
use brupop_api::{Problem, State, Write};
use jiff::Timestamp;
use serde::Deserialize;

pub use memory::{BegunCommand, Prefetch, StepMemory};
use report::Report;
pub use report::{host_silence, host_trouble};
pub use written::has_no_in_place_updates;

/// The host, as it answers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFacts<'a> {
    pub boot_id: &'a str,
    /// The version that runs (`GET /os`).
    pub version: &'a str,
    /// Its answer to `GET /updates/status`.
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
    /// Status 200, with an answer that is understood.
    Known(UpdateFacts<'a>),
}

/// The status document, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateFacts<'a> {
    pub state: UpdateState,
    pub chosen: Option<&'a str>,
    /// The newest of `available_updates`. Older ones and the running one may be among them.
    pub newest: Option<&'a str>,
    /// Version of the image in the staging partition, as the last refresh before its prepare had chosen it.
    pub staged_version: Option<&'a str>,
    pub last: Option<LastCommand<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum UpdateState {
    Idle,
    Available,
    /// An image is in the staging partition.
    Staged,
    /// The staging partition is next to boot.
    Ready,
}

/// The `most_recent_command` of the status document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCommand<'a> {
    /// `cmd_type`; `None` for one that this agent does not know.
    pub kind: Option<Command>,
    pub success: bool,
    pub at: Timestamp,
    pub exit_status: Option<i32>,
    pub stderr: &'a str,
}

brupop_api::words! {
    /// A command of the host's updater, by its name in the host's API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Command {
        Refresh => "refresh",
        /// Download the chosen update into the staging partition.
        Prepare => "prepare",
        /// Make the staging partition next to boot.
        Activate => "activate",
        Deactivate => "deactivate",
    }
}

/// Something to ask of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostCall {
    /// An update command: 204 means that it has begun.
    Command(Command),
    Reboot,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Ask this of the host. If the host accepts, keep the memory that came with the step, else the old one.
    Call(HostCall),
    /// Patch the shadow's status. If the patch is accepted, keep the memory that came with the step, else the old one.
    Report(Write<'a>),
    /// The host is busy: look again soon.
    Poll,
    /// Nothing, until the shadow changes or a timer sets [`StepMemory::refresh_due`].
    Wait,
}

/// Returns what to do next, and what to remember when it is done.
pub fn step<'a>(
    host: &HostFacts<'a>,
    shadow: &ShadowFacts<'a>,
    memory: &StepMemory,
) -> (Step<'a>, StepMemory) {
    let mut memory = *memory;
    let ended = memory.ended(host, shadow);
    let our_image = image::our_image_after(shadow, host, ended, &mut memory)
        .filter(|image| !image::is_unfit(image, host, shadow, &memory));
    memory.note_distrust(host, shadow, ended, our_image.as_ref());
    let input = input::StepInput {
        host,
        shadow,
        memory: &memory,
        ended,
        our_image,
    };
    let mut report = Report::of(shadow, host.now);
    report.current_version(host.version);
    report.boot_id(host.boot_id);
    if shadow.status.problem.is_some_and(Problem::is_of_host_api) && !input.host_api_fails() {
        report.no_problem();
    }
    let wanted = match shadow.spec.state {
        _ if shadow.is_of_other_operator() => memory::NextAction::Wait,
        State::Idle | State::ErrorReset => input.toward_idle(&mut report),
        State::StagedAndPerformedUpdate => input.toward_staged(&mut report),
        State::RebootedIntoUpdate => input.toward_rebooted(&mut report),
        State::MonitoringUpdate => input.toward_monitoring(&mut report),
    };
    let activate = Command::Activate;
    let activates = matches!(wanted, memory::NextAction::Command(command) if command == activate)
        || memory.asked.is_some_and(|asked| asked.command == activate);
    // The time alone is remembered: how the activate ends is reported in a moment, with its own time.
    if !(activates && report.is_time_alone())
        && let Some(write) = report.write()
    {
        if shadow.spec.state != State::Idle && shadow.status.attempt != shadow.spec.attempt {
            memory.began = shadow.spec.attempt;
        }
        return (Step::Report(write), memory);
    }
    (memory.next_step(wanted, host), memory)
}

/// The result of a command of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndedCommand<'a> {
    command: Command,
    /// When the host's command before it had ended.
    before: Option<Timestamp>,
    /// As in [`BegunCommand::is_first_look`], copied when it ends.
    is_first_look: bool,
    last: LastCommand<'a>,
}

impl EndedCommand<'_> {
    /// Whether it is a prepare that failed because there is nowhere to write an update to.
    fn finds_no_partition(self) -> bool {
        self.command == Command::Prepare
            && !self.last.success
            && has_no_in_place_updates(self.last.stderr)
    }
}

impl LastCommand<'_> {
    /// Whether it is a refresh that succeeded.
    fn found_updates(self) -> bool {
        self.kind == Some(Command::Refresh) && self.success
    }
}

impl HostCall {
    /// The name as the host's API has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command(command) => command.as_str(),
            Self::Reboot => "reboot",
        }
    }
}

impl<'a> HostFacts<'a> {
    /// The status document, if there is one now.
    pub fn known(&self) -> Option<UpdateFacts<'a>> {
        if let Updates::Known(known) = self.updates {
            Some(known)
        } else {
            None
        }
    }

    fn last(&self) -> Option<LastCommand<'a>> {
        self.known().and_then(|known| known.last)
    }
}
