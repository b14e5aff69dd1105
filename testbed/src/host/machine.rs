//! What a Bottlerocket host does with update commands: partitions, states, boots. No sockets, no clock.

use anyhow::Context as _;
use jiff::Timestamp;
use semver::Version;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// A command of the update dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "named after the API's actions")]
pub enum Command {
    Refresh,
    Prepare,
    Activate,
    Deactivate,
}

/// How a command ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Success,
    /// With exit status 1 and these words.
    Failed(String),
    /// Nobody knows: neither exit status nor words.
    Unknown,
    /// Killed, before it could say anything: the status document stays as it was.
    Lost,
}

/// `update_state` of the status document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the API's states")]
pub enum UpdateState {
    Idle,
    Available,
    Staged,
    Ready,
}

/// An image as the API names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the API's fields")]
pub struct Image {
    pub arch: String,
    pub version: Version,
    pub variant: String,
}

/// One of the two partition sets as the status document shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the API's fields")]
pub struct Partition {
    pub image: Image,
    pub next_to_boot: bool,
}

/// `most_recent_command` of the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the API's fields")]
pub struct CommandResult {
    pub cmd_type: Command,
    pub cmd_status: &'static str,
    pub timestamp: Timestamp,
    pub exit_status: Option<i32>,
    pub stderr: Option<String>,
}

/// The status document: a file in `/run`, gone after a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the API's fields")]
pub struct Status {
    pub update_state: UpdateState,
    pub available_updates: Vec<Version>,
    pub chosen_update: Option<Image>,
    pub active_partition: Option<Partition>,
    pub staging_partition: Option<Partition>,
    pub most_recent_command: Option<CommandResult>,
}

/// Why the host does not do what it is asked; each has a status code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 404
    NotFound(&'static str),
    /// 409
    NotAllowed(&'static str),
    /// 423
    Locked,
}

/// What the host's own settings let it choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `settings.updates.version-lock`: a version, or `None` for `latest`.
    pub version_lock: Option<String>,
    /// The host's wave has not started: nothing is available yet.
    pub before_wave: bool,
}

/// What a partition set holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    version: Version,
    damaged: bool,
}

/// The host.
#[derive(Clone, Debug)]
pub struct Machine {
    arch: String,
    variant: String,
    active: Version,
    inactive: Option<Content>,
    /// The boot loader tries the inactive set next.
    inactive_is_next: bool,
    published: Vec<Version>,
    status: Option<Status>,
    running: Option<Command>,
    /// The running prepare writes the inactive set; one that finds no update succeeds without.
    writes: bool,
    boots: u64,
}

impl Machine {
    /// A host that has just booted for the first time.
    ///
    /// # Errors
    /// The version is not semver.
    pub fn new(version: &str, variant: &str, arch: &str) -> anyhow::Result<Self> {
        Ok(Self {
            arch: arch.to_owned(),
            variant: variant.to_owned(),
            active: Version::parse(version).with_context(|| format!("the host's version {version:?}"))?,
            inactive: None,
            inactive_is_next: false,
            published: vec![],
            status: None,
            running: None,
            writes: false,
            boots: 1,
        })
    }

    /// The version that runs.
    pub fn version(&self) -> &Version {
        &self.active
    }

    /// How often the host has booted: a command that outlives its boot is lost.
    pub fn boots(&self) -> u64 {
        self.boots
    }

    /// `PRETTY_NAME` of os-release, which a Node shows as its `osImage`.
    pub fn pretty_name(&self) -> String {
        format!("Bottlerocket OS {} ({})", self.active, self.variant)
    }

    /// The answer of `GET /os`.
    pub fn os(&self) -> serde_json::Map<String, serde_json::Value> {
        [
            ("pretty_name", self.pretty_name()),
            ("variant_id", self.variant.clone()),
            ("version_id", self.active.to_string()),
            ("build_id", "5ed15786".to_owned()),
            ("arch", self.arch.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
    }

    /// A new image in the repository; hosts learn of it by a refresh.
    ///
    /// # Errors
    /// The version is not semver.
    pub fn publish(&mut self, version: &str) -> anyhow::Result<()> {
        let version =
            Version::parse(version).with_context(|| format!("the published version {version:?}"))?;
        if !self.published.contains(&version) {
            self.published.push(version);
            self.published.sort_by(|a, b| b.cmp(a));
        }
        Ok(())
    }

    /// An image is taken out of the repository.
    pub fn withdraw(&mut self, version: &str) {
        self.published.retain(|published| published.to_string() != version);
    }

    /// The answer of `GET /updates/status`.
    ///
    /// # Errors
    /// 423 while a command runs, 404 if none has run since boot.
    pub fn status(&self) -> Result<&Status, Refusal> {
        if self.running.is_some() {
            return Err(Refusal::Locked);
        }
        self.status.as_ref().ok_or(Refusal::NotFound("No update status found; refresh updates first"))
    }

    /// Starts a command; it holds the lock until [`Machine::finish`].
    ///
    /// A prepare asks the repository anew, as `updog update-image` does: it writes what would be chosen now, whatever
    /// the status document says, or nothing.
    ///
    /// # Errors
    /// As the API refuses it; then nothing has changed.
    pub fn start(&mut self, command: Command, choice: &Choice) -> Result<(), Refusal> {
        if self.running.is_some() {
            return Err(Refusal::Locked);
        }
        let state = self.status.as_ref().map_or(UpdateState::Idle, |status| status.update_state);
        match (command, state) {
            (Command::Refresh, _)
            | (Command::Prepare, UpdateState::Available | UpdateState::Staged)
            | (Command::Activate, UpdateState::Staged)
            | (Command::Deactivate, UpdateState::Ready) => {}
            _ => return Err(Refusal::NotAllowed("Update action not allowed according to update state")),
        }
        let status = self.status.as_ref();
        if command == Command::Prepare && status.is_none_or(|status| status.chosen_update.is_none()) {
            return Err(Refusal::NotFound("Chosen update does not exist"));
        }
        if command == Command::Activate && status.is_none_or(|status| status.staging_partition.is_none()) {
            return Err(Refusal::NotFound("No staged update found"));
        }
        if command == Command::Prepare {
            let found = self.choose(choice);
            self.writes = found.is_some();
            // From here on the inactive set is being written to, whatever the status document says of it.
            let content = found.map(|version| Content { version, damaged: true });
            self.inactive = content.or_else(|| self.inactive.take());
        }
        self.running = Some(command);
        Ok(())
    }

    /// The running command ends, and the lock is released.
    pub fn finish(&mut self, ending: Ending, choice: &Choice, now: Timestamp) {
        let Some(command) = self.running.take().filter(|_| ending != Ending::Lost) else { return };
        let mut status = self.status.take().unwrap_or(Status {
            update_state: UpdateState::Idle,
            available_updates: vec![],
            chosen_update: None,
            active_partition: None,
            staging_partition: None,
            most_recent_command: None,
        });
        let success = ending == Ending::Success;
        match command {
            Command::Refresh if success => {
                status.available_updates = self.available(choice);
                status.chosen_update = self.choose(choice).map(|version| self.image(version));
                if matches!(status.update_state, UpdateState::Idle | UpdateState::Available) {
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
                if let Some(content) = self.inactive.as_mut().filter(|_| self.writes) {
                    content.damaged = false;
                }
                // The label is the choice of the last refresh, as thar-be-updates has it.
                let label = status.chosen_update.clone();
                status.staging_partition = label.map(|image| Partition { image, next_to_boot: false });
                status.update_state = UpdateState::Staged;
            }
            Command::Activate | Command::Deactivate if success => {
                self.inactive_is_next = command == Command::Activate;
                if let Some(staging) = status.staging_partition.as_mut() {
                    staging.next_to_boot = self.inactive_is_next;
                }
                status.update_state =
                    if self.inactive_is_next { UpdateState::Ready } else { UpdateState::Staged };
            }
            _ => {}
        }
        status.active_partition =
            Some(Partition { image: self.image(self.active.clone()), next_to_boot: !self.inactive_is_next });
        status.most_recent_command = Some(CommandResult {
            cmd_type: command,
            cmd_status: match ending {
                Ending::Success => "Success",
                Ending::Failed(_) => "Failed",
                Ending::Unknown | Ending::Lost => "Unknown",
            },
            timestamp: now,
            exit_status: match ending {
                Ending::Success => Some(0),
                Ending::Failed(_) => Some(1),
                Ending::Unknown | Ending::Lost => None,
            },
            stderr: match ending {
                Ending::Success => Some(String::new()),
                Ending::Failed(stderr) => Some(stderr),
                Ending::Unknown | Ending::Lost => None,
            },
        });
        self.status = Some(status);
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
        Image { arch: self.arch.clone(), version, variant: self.variant.clone() }
    }

    /// Newest first.
    fn available(&self, choice: &Choice) -> Vec<Version> {
        let newer = self.published.iter().filter(|version| !choice.before_wave && **version > self.active);
        newer.cloned().collect()
    }

    fn choose(&self, choice: &Choice) -> Option<Version> {
        let available = self.available(choice);
        match &choice.version_lock {
            None => available.into_iter().next(),
            Some(lock) => available.into_iter().find(|version| version.to_string() == *lock),
        }
    }
}
