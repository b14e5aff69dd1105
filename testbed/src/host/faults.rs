//! What can go wrong with a simulated host, adjustable while it runs.

use std::collections::BTreeMap;

use super::machine::{Choice, Command};

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// 423
    Locked,
    /// 200 with this body, whatever was asked.
    Nonsense(String),
    /// A head that announces more than follows, then the end.
    Half,
    /// The connection is taken, and nothing ever comes.
    Hang,
}

/// All that goes wrong, until it is set anew.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// False answers, by call.
    pub answers: BTreeMap<Call, Answer>,
    /// Commands that are started and fail, with what they write to stderr.
    pub failing: BTreeMap<Command, String>,
    /// The new image does not come up: the boot loader falls back.
    pub falls_back_on_boot: bool,
    /// The reboot is requested (204), and nothing happens.
    pub reboot_ignored: bool,
    /// What the host's settings let it choose.
    pub choice: Choice,
}

impl Faults {
    /// One false answer.
    pub fn answer(call: Call, answer: Answer) -> Self {
        Self { answers: BTreeMap::from([(call, answer)]), ..Self::default() }
    }

    /// One command that fails.
    pub fn failing(command: Command, stderr: &str) -> Self {
        Self { failing: BTreeMap::from([(command, stderr.to_owned())]), ..Self::default() }
    }
}
