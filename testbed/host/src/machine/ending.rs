//! Ends commands as Bottlerocket's updater does.

use semver::Version;

use super::Command;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Success,
    /// With exit status 1 and these words.
    Failed(String),
    /// By this signal, after what it had to do was done: the status document knows nothing of that, and shows the signal's
    /// number as the exit status.
    KilledLate(i32),
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
            Self::Failed(stderr) => ("Failed", Some(1), Some(stderr)),
            Self::KilledLate(signal) => ("Failed", Some(signal), Some(String::new())),
            Self::Lost => ("Unknown", None, None),
        }
    }
}
