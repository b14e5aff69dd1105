//! Reads the host's answers. Whatever comes, the result is a value or a sentence.

#[cfg(test)]
mod tests;

use brupop_api::crds::{VERSION_MAX, is_boot_id};
use brupop_api::item::Unreadable;
use brupop_api::printable::printable;
use jiff::Timestamp;
use semver::Version;
use serde::Deserialize;

use crate::step::{Command, LastCommand, UpdateFacts, UpdateState};

/// Longest text of the host that is quoted, in bytes.
const QUOTED_MAX: usize = 80;

/// A fault of an answer, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonsense(pub String);

/// The status document, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateStatus {
    state: UpdateState,
    chosen: Option<String>,
    newest: Option<String>,
    staged_version: Option<String>,
    last: Option<Last>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    kind: Option<Command>,
    success: bool,
    at: Timestamp,
    exit_status: Option<i32>,
    stderr: String,
}

#[derive(Deserialize)]
struct OsDocument {
    version_id: String,
}

#[derive(Deserialize)]
struct StatusDocument {
    update_state: UpdateState,
    available_updates: Option<Vec<String>>,
    chosen_update: Option<Image>,
    staging_partition: Option<Partition>,
    most_recent_command: Option<CommandDocument>,
}

#[derive(Deserialize)]
struct Image {
    version: String,
}

#[derive(Deserialize)]
struct Partition {
    image: Option<Image>,
}

#[derive(Deserialize)]
struct CommandDocument {
    cmd_type: String,
    cmd_status: String,
    timestamp: String,
    exit_status: Option<i32>,
    stderr: Option<String>,
}

/// The version that runs, as semver, from the answer to `GET /os`.
///
/// # Errors
/// It makes no sense: says why.
pub fn parse_os(body: &[u8]) -> Result<String, Nonsense> {
    let document: OsDocument = read(body)?;
    version(document.version_id)
}

impl UpdateStatus {
    /// Reads the answer.
    ///
    /// # Errors
    /// It makes no sense: says why.
    pub fn parse(body: &[u8]) -> Result<Self, Nonsense> {
        let document: StatusDocument = read(body)?;
        let image = |image: Option<Image>| image.map(|image| version(image.version)).transpose();
        Ok(Self {
            state: document.update_state,
            chosen: image(document.chosen_update)?,
            newest: newest(&document.available_updates.unwrap_or_default()),
            staged_version: image(
                document
                    .staging_partition
                    .and_then(|partition| partition.image),
            )?,
            last: document.most_recent_command.map(Last::of).transpose()?,
        })
    }

    /// Returns what decisions see of it.
    pub fn facts(&self) -> UpdateFacts<'_> {
        UpdateFacts {
            state: self.state,
            chosen: self.chosen.as_deref(),
            newest: self.newest.as_deref(),
            staged_version: self.staged_version.as_deref(),
            last: self.last.as_ref().map(|last| LastCommand {
                kind: last.kind,
                success: last.success,
                at: last.at,
                exit_status: last.exit_status,
                stderr: &last.stderr,
            }),
        }
    }
}

impl Last {
    fn of(document: CommandDocument) -> Result<Self, Nonsense> {
        let at = document.timestamp.parse();
        Ok(Self {
            kind: Command::ALL
                .into_iter()
                .find(|command| command.as_str() == document.cmd_type),
            success: document.cmd_status == "Success",
            at: at
                .map_err(|_| Nonsense(format!("{} is not a time", quote(&document.timestamp))))?,
            exit_status: document.exit_status,
            stderr: document.stderr.unwrap_or_default(),
        })
    }
}

/// The boot id from the text of its file.
///
/// # Errors
/// A sentence, if the text is no boot id.
pub fn parse_boot_id(text: &str) -> Result<String, String> {
    let boot_id = text.trim();
    if is_boot_id(boot_id) {
        Ok(boot_id.to_owned())
    } else {
        Err(format!("{} is not a boot id", quote(boot_id)))
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Nonsense> {
    serde_json::from_slice(body).map_err(|error| Nonsense(Unreadable::from(error).to_string()))
}

/// The newest of a list of versions. What is no version is passed over, for nothing but a message rests on it.
fn newest(available: &[String]) -> Option<String> {
    let versions = available.iter().filter_map(|text| short_version(text));
    versions.max().map(|newest| newest.to_string())
}

fn short_version(text: &str) -> Option<Version> {
    Version::parse(text)
        .ok()
        .filter(|_| text.len() <= VERSION_MAX)
}

/// A version that the shadow's schema takes.
fn version(text: String) -> Result<String, Nonsense> {
    if short_version(&text).is_some() {
        Ok(text)
    } else {
        Err(Nonsense(format!("{} is not a version", quote(&text))))
    }
}

/// The beginning of a text, in quotes.
fn quote(text: &str) -> String {
    format!("\"{}\"", printable(text, QUOTED_MAX))
}
