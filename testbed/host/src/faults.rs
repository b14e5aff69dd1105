//! What can go wrong with a simulated host, adjustable while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::{Choice, Command, Ending};

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    Os,
    Status,
    Action(Command),
    Reboot,
}

/// What a call gets in place of its true answer; the host does nothing, unless that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// The call is carried out, and its answer never comes.
    Lost,
}

/// All that goes wrong, until it is set again.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Faults {
    /// False answers, by call.
    pub answers: BTreeMap<Call, Answer>,
    /// How commands end that are started; those that are not named here end well.
    pub endings: BTreeMap<Command, Ending>,
    /// Commands that take so much longer once they are started, and hold the lock for as long.
    pub lasting: BTreeMap<Command, Duration>,
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
    /// What the host's settings let it choose.
    pub choice: Choice,
}

impl Faults {
    pub fn answer(call: Call, answer: Answer) -> Self {
        Self {
            answers: BTreeMap::from([(call, answer)]),
            ..Self::default()
        }
    }

    /// Returns what the host's settings let it choose.
    pub fn choice(choice: Choice) -> Self {
        Self {
            choice,
            ..Self::default()
        }
    }

    /// One command that ends so.
    pub fn ending(command: Command, ending: Ending) -> Self {
        Self {
            endings: BTreeMap::from([(command, ending)]),
            ..Self::default()
        }
    }

    pub fn failing(command: Command, stderr: &str) -> Self {
        Self::ending(command, Ending::Failed(stderr.to_owned()))
    }
}
