//! The status document: a file in `/run`, gone after a boot.

use jiff::Timestamp;
use semver::Version;
use serde::Serialize;

use super::Command;

/// `update_state` of the status document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum UpdateState {
    #[default]
    Idle,
    Available,
    Staged,
    Ready,
}

/// An image as the API names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    pub arch: &'static str,
    pub version: Version,
    pub variant: String,
}

/// One of the two partition sets as the status document shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    pub image: Image,
    pub next_to_boot: bool,
}

/// `most_recent_command` of the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandResult {
    pub cmd_type: Command,
    pub cmd_status: &'static str,
    pub timestamp: Timestamp,
    pub exit_status: Option<i32>,
    pub stderr: Option<String>,
}

/// The status document: a file in `/run`, gone after a boot. A new one is there when the first command after a boot is asked
/// for, whether or not that command is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    pub update_state: UpdateState,
    pub available_updates: Vec<Version>,
    pub chosen_update: Option<Image>,
    pub active_partition: Option<Partition>,
    pub staging_partition: Option<Partition>,
    pub most_recent_command: Option<CommandResult>,
}
