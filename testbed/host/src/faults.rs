//! Faults of a simulated host, adjustable while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::{Command, Ending};

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    Os,
    Status,
    Action(Command),
    Reboot,
}

/// The answer in place of a call's true one; the host does nothing, unless that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Status 500, with this sentence as its body.
    Refused(String),
    /// Status 404, with this sentence as its body.
    NotFound(String),
    /// Status 409, with this sentence as its body.
    NotAllowed(String),
    /// Status 423: another command holds the lock.
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
pub struct Faults {
    /// False answers of the host, by call.
    pub answers: BTreeMap<Call, Answer>,
    /// The results of started commands; those that are not named here end well.
    pub endings: BTreeMap<Command, Ending>,
    /// Commands that take so much longer once they are started, and hold the lock for as long.
    pub lasting: BTreeMap<Command, Duration>,
    /// Versions whose image comes up nowhere: the boot loader falls back.
    pub bad_images: BTreeSet<String>,
    /// A host that goes down does not come back.
    pub stays_down: bool,
    /// The reboot is requested (204), and nothing happens.
    pub reboot_ignored: bool,
    /// The repository cannot be reached. Each command loads it first, also those that change nothing but the partition table.
    pub unreachable: bool,
}

impl Faults {
    pub fn answer(call: Call, answer: Answer) -> Self {
        Self {
            answers: BTreeMap::from([(call, answer)]),
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
