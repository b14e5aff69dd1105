//! A Bottlerocket host's handling of update commands: partitions, states, boots. No sockets, no clock.

use std::collections::BTreeSet;

use anyhow::Context as _;
use jiff::Timestamp;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::json;

mod ending;
mod status;
#[cfg(test)]
mod tests;

pub use ending::Ending;
pub use status::{CommandResult, Image, Partition, Status, UpdateState};

/// A command of the update dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    Refresh,
    Prepare,
    Activate,
    Deactivate,
}

/// Reasons why the host does not do what it is asked; each has a status code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Status 404: there is no such thing.
    NotFound(&'static str),
    /// Status 409: the command is not allowed now.
    NotAllowed(&'static str),
    /// Status 423: another command holds the lock.
    Locked,
}

/// The content of a partition set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    version: Version,
    damaged: bool,
}

const ARCH: &str = "x86_64";

#[derive(Clone, Debug)]
pub struct Machine {
    variant: String,
    active: Version,
    inactive: Option<Content>,
    /// The boot loader tries the inactive set next.
    inactive_is_next: bool,
    /// The releases of the repository that the host looks for updates in.
    repository: BTreeSet<Version>,
    status: Option<Status>,
    running: Option<Command>,
    /// The image that the running prepare writes into the inactive set; one that finds no update succeeds without.
    writes: Option<Version>,
    boots: u64,
}

impl Machine {
    /// A host that has just booted for the first time.
    pub fn new(version: &str, variant: &str) -> anyhow::Result<Self> {
        Ok(Self {
            variant: variant.to_owned(),
            active: Version::parse(version)
                .with_context(|| format!("the host's version {version:?}"))?,
            inactive: None,
            inactive_is_next: false,
            repository: BTreeSet::new(),
            status: None,
            running: None,
            writes: None,
            boots: 1,
        })
    }

    pub fn version(&self) -> &Version {
        &self.active
    }

    /// The version that it boots next, if that is another image.
    pub fn next(&self) -> Option<&Version> {
        self.inactive
            .as_ref()
            .filter(|_| self.inactive_is_next)
            .map(|content| &content.version)
    }

    /// Returns how often the host has booted: a command that outlives its boot is lost.
    pub fn boots(&self) -> u64 {
        self.boots
    }

    /// `PRETTY_NAME` of os-release, which a Node shows as its `osImage`.
    pub fn pretty_name(&self) -> String {
        format!("Bottlerocket OS {} ({})", self.active, self.variant)
    }

    /// The answer of `GET /os`.
    pub fn os(&self) -> serde_json::Value {
        json!({
            "pretty_name": self.pretty_name(), "variant_id": self.variant, "version_id": self.active,
            "build_id": "5ed15786", "arch": ARCH,
        })
    }

    /// Publishes a release; the host learns of it by a refresh or a prepare.
    pub fn publish(&mut self, version: &str) -> anyhow::Result<()> {
        let version = Version::parse(version)
            .with_context(|| format!("the published version {version:?}"))?;
        self.repository.insert(version);
        Ok(())
    }

    /// Returns the newest release, if it is newer than what runs.
    fn choose(&self) -> Option<Version> {
        let newest = self.repository.last();
        newest.filter(|version| **version > self.active).cloned()
    }

    /// The answer of `GET /updates/status`.
    pub fn status(&self) -> Result<&Status, Refusal> {
        if self.running.is_some() {
            return Err(Refusal::Locked);
        }
        self.status.as_ref().ok_or(Refusal::NotFound(
            "No update status found; refresh updates first",
        ))
    }

    /// Starts a command; it holds the lock until [`Machine::finish`].
    ///
    /// A prepare asks the repository again, as `updog update-image` does: it writes what would be chosen now, whatever
    /// the status document says, or nothing.
    pub fn start(&mut self, command: Command, unreachable: bool) -> Result<(), Refusal> {
        if self.running.is_some() {
            return Err(Refusal::Locked);
        }
        let status = self.status.get_or_insert_with(Status::default);
        match (command, status.update_state) {
            (Command::Refresh, _)
            | (Command::Prepare, UpdateState::Available | UpdateState::Staged)
            | (Command::Activate, UpdateState::Staged)
            | (Command::Deactivate, UpdateState::Ready) => {}
            _ => {
                return Err(Refusal::NotAllowed(
                    "Update action not allowed according to update state",
                ));
            }
        }
        if command == Command::Prepare && status.chosen_update.is_none() {
            return Err(Refusal::NotFound("Chosen update does not exist"));
        }
        if command == Command::Activate && status.staging_partition.is_none() {
            return Err(Refusal::NotFound("No staged update found"));
        }
        if command == Command::Prepare && !unreachable {
            self.writes = self.choose();
            self.inactive_is_next = false;
            // From here on the inactive set is being written to, whatever the status document says of it.
            let content = self.writes.clone().map(|version| Content {
                version,
                damaged: true,
            });
            self.inactive = content.or_else(|| self.inactive.take());
        }
        self.running = Some(command);
        Ok(())
    }

    /// The running command ends, and the lock is released.
    pub fn finish(&mut self, ending: Ending, unreachable: bool, now: Timestamp) {
        let Some(command) = self.running.take().filter(|_| ending != Ending::Lost) else {
            return;
        };
        let ending = self
            .failing_by_itself(command, unreachable)
            .unwrap_or(ending);
        if matches!(
            (command, &ending),
            (
                Command::Activate | Command::Deactivate,
                Ending::KilledLate(_)
            )
        ) {
            self.inactive_is_next = command == Command::Activate;
        }
        let mut status = self.status.take().unwrap_or_default();
        let success = ending == Ending::Success;
        match command {
            Command::Refresh if success => {
                // Also what is older than what runs.
                status.available_updates = self.repository.iter().rev().cloned().collect();
                let chosen = self.choose();
                status.chosen_update = chosen.map(|version| self.image(version));
                if matches!(
                    status.update_state,
                    UpdateState::Idle | UpdateState::Available
                ) {
                    status.update_state = match status.chosen_update {
                        Some(_) => UpdateState::Available,
                        None => UpdateState::Idle,
                    };
                }
            }
            Command::Refresh if status.update_state == UpdateState::Available => {
                status.update_state = UpdateState::Idle;
            }
            Command::Prepare if success => {
                if let Some(content) = self.inactive.as_mut().filter(|_| self.writes.is_some()) {
                    content.damaged = false;
                }
                // The label is the choice of the last refresh, as thar-be-updates has it.
                let label = status.chosen_update.clone();
                status.staging_partition = label.map(|image| Partition {
                    image,
                    next_to_boot: false,
                });
                status.update_state = UpdateState::Staged;
            }
            Command::Activate | Command::Deactivate if success => {
                self.inactive_is_next = command == Command::Activate;
                if let Some(staging) = status.staging_partition.as_mut() {
                    staging.next_to_boot = self.inactive_is_next;
                }
                status.update_state = if self.inactive_is_next {
                    UpdateState::Ready
                } else {
                    UpdateState::Staged
                };
            }
            _ => {}
        }
        status.active_partition = Some(Partition {
            image: self.image(self.active.clone()),
            next_to_boot: !self.inactive_is_next,
        });
        let (cmd_status, exit_status, stderr) = ending.told(command, self.writes.as_ref());
        status.most_recent_command = Some(CommandResult {
            cmd_type: command,
            cmd_status,
            timestamp: now,
            exit_status,
            stderr,
        });
        self.status = Some(status);
    }

    /// Returns how this command ends, if it cannot end well: the updater loads the repository, and it arms no set that is
    /// damaged or armed already.
    fn failing_by_itself(&self, command: Command, unreachable: bool) -> Option<Ending> {
        let damaged = || self.inactive.as_ref().is_none_or(|content| content.damaged);
        let words = match command {
            _ if unreachable => "Failed to fetch https://updates.example/root.json",
            Command::Activate if self.inactive_is_next => {
                "Inactive partition is already marked for upgrade"
            }
            Command::Activate if damaged() => {
                "Inactive partition has not been marked valid for upgrade"
            }
            _ => return None,
        };
        Some(Ending::Failed(words.to_owned()))
    }

    /// The host boots: into the set that is next, or, if that one does not come up, back into the one that ran.
    /// A running command is lost; what it wrote stays half written.
    pub fn boot(&mut self, falls_back: bool) {
        if std::mem::take(&mut self.inactive_is_next)
            && let Some(content) = self.inactive.as_mut()
            && !content.damaged
            && !falls_back
        {
            std::mem::swap(&mut content.version, &mut self.active);
        }
        self.status = None;
        self.running = None;
        self.boots += 1;
    }

    fn image(&self, version: Version) -> Image {
        Image {
            arch: ARCH,
            version,
            variant: self.variant.clone(),
        }
    }
}
