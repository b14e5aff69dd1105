//! Ends commands as Bottlerocket's updater does.

use semver::Version;

use super::Command;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Success,
    /// As it should, with these words on stderr in place of the updater's own.
    Saying(String),
    /// With exit status 1 and these words.
    Failed(String),
    /// By this signal; the status document shows its number as the exit status.
    Killed(i32),
    /// The same, after what it had to do was done: the status document knows nothing of that.
    KilledLate(i32),
    /// Nobody knows: neither exit status nor words.
    Unknown,
    /// Killed, before it could say anything: the status document stays as it was.
    Lost,
}

impl Ending {
    /// Returns what the status document says of how a command ended. The updater says on stderr what its prepare `wrote`.
    pub(super) fn told(
        self,
        command: Command,
        wrote: Option<&Version>,
    ) -> (&'static str, Option<i32>, Option<String>) {
        match self {
            Self::Success if command == Command::Prepare => {
                let wrote = wrote.map_or_else(
                    || "No update required\n".to_owned(),
                    |version| format!("Starting update to {version}\n"),
                );
                ("Success", Some(0), Some(wrote))
            }
            Self::Success => ("Success", Some(0), Some(String::new())),
            Self::Saying(stderr) => ("Success", Some(0), Some(stderr)),
            Self::Failed(stderr) => ("Failed", Some(1), Some(stderr)),
            Self::Killed(signal) | Self::KilledLate(signal) => {
                ("Failed", Some(signal), Some(String::new()))
            }
            Self::Unknown | Self::Lost => ("Unknown", None, None),
        }
    }
}
