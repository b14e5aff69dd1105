//! What can go wrong with a simulated host, adjustable while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::{Choice, Command, Ending};

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// `GET /os`
    Os,
    /// `GET /updates/status`
    Status,
    /// `POST /actions/<command>…`
    Action(Command),
    /// `POST /actions/reboot`
    Reboot,
}

/// What a call gets in place of its true answer; the host does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 500 with this sentence.
    Refused(String),
    /// 404 with this sentence.
    NotFound(String),
    /// 409 with this sentence.
    NotAllowed(String),
    /// 423
    Locked,
    /// 200 with this body, whatever was asked.
    Nonsense(String),
    /// A head that announces more than follows, then the end.
    Half,
    /// The connection is taken, and nothing ever comes.
    Hang,
}

/// All that goes wrong, until it is set again.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Faults {
    /// False answers, by call.
    pub answers: BTreeMap<Call, Answer>,
    /// Commands that are started and fail, with what they write to stderr.
    pub failing: BTreeMap<Command, String>,
    /// Commands that go well, with what they write to stderr in place of the updater's own words.
    pub saying: BTreeMap<Command, String>,
    /// Commands that are started and end by this signal.
    pub killed: BTreeMap<Command, i32>,
    /// Commands that are started, do what they have to do, and end by this signal before they can say so.
    pub killed_late: BTreeMap<Command, i32>,
    /// Commands that are started and end without a word of how.
    pub vanishing: BTreeSet<Command>,
    /// Commands that are started and never end for the host: it never says that they have run.
    pub lost: BTreeSet<Command>,
    /// Commands that take so much longer once they are started, and hold the lock for as long.
    pub lasting: BTreeMap<Command, Duration>,
    /// Calls that are carried out, and whose answer never comes.
    pub unanswered: BTreeSet<Call>,
    /// The new image does not come up: the boot loader falls back.
    pub falls_back_on_boot: bool,
    /// Versions whose image comes up nowhere: the boot loader falls back.
    pub bad_images: BTreeSet<String>,
    /// A host that goes down does not come back.
    pub stays_down: bool,
    /// The reboot is requested (204), and nothing happens.
    pub reboot_ignored: bool,
    /// The reboot is requested (204), and comes so much later. Until then further requests are refused.
    pub reboot_delay: Duration,
    /// An image without in-place updates: no command can be started.
    pub no_dispatcher: bool,
    /// What the host's settings let it choose.
    pub choice: Choice,
}

impl Faults {
    /// One false answer.
    pub fn answer(call: Call, answer: Answer) -> Self {
        Self { answers: BTreeMap::from([(call, answer)]), ..Self::default() }
    }

    /// What the host's settings let it choose.
    pub fn choice(choice: Choice) -> Self {
        Self { choice, ..Self::default() }
    }

    /// One command that fails.
    pub fn failing(command: Command, stderr: &str) -> Self {
        Self { failing: BTreeMap::from([(command, stderr.to_owned())]), ..Self::default() }
    }

    /// How this command ends.
    pub(super) fn ending(&self, command: Command) -> Ending {
        if let Some(stderr) = self.failing.get(&command) {
            Ending::Failed(stderr.clone())
        } else if let Some(signal) = self.killed.get(&command) {
            Ending::Killed(*signal)
        } else if let Some(signal) = self.killed_late.get(&command) {
            Ending::KilledLate(*signal)
        } else if let Some(stderr) = self.saying.get(&command) {
            Ending::Saying(stderr.clone())
        } else if self.lost.contains(&command) {
            Ending::Lost
        } else if self.vanishing.contains(&command) {
            Ending::Unknown
        } else {
            Ending::Success
        }
    }
}
