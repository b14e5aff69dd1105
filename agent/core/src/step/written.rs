//! Reads which image a prepare wrote into the staging partition, in the words of Bottlerocket's updater.
//!
//! The status document labels the image with what the last refresh had chosen. On stderr, which the document keeps, the
//! updater says for what it decided itself. A prepare that says neither of its sentences proves nothing.

use std::fmt;

use semver::Version;

use super::{Command, EndedCommand, HostFacts, LastCommand};

/// Begins the line that names what is written.
const STARTING: &str = "Starting update to ";
/// Stands in the line that says that nothing is written.
const NOTHING: &str = "No update required";

/// In the API server's sentence if the image has no updater, and in the updater's if the disk has no second partition set.
const NO_IN_PLACE_UPDATES: [&str; 2] = [
    "Unable to start the update dispatcher",
    "Could not find inactive partition set",
];

/// Whether these words of the host mean that its image has no in-place updates.
pub fn has_no_in_place_updates(words: &str) -> bool {
    NO_IN_PLACE_UPDATES
        .iter()
        .any(|sentence| words.contains(sentence))
}

/// An image that was written in place of the requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    Nothing,
    Other(Version),
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "prepare wrote no image: it found no update"),
            Self::Other(version) => write!(f, "prepare wrote {version}"),
        }
    }
}

impl LastCommand<'_> {
    /// Whether it is a prepare that succeeded and names no other version than this one.
    pub(super) fn prepared(&self, version: &str) -> bool {
        self.kind == Some(Command::Prepare)
            && self.success
            && self.wrote_instead_of(version).is_none()
    }

    /// Is it a prepare that went well, and says itself that it wrote this version? So it is known without having asked for it.
    pub(super) fn says_it_prepared(&self, version: &str) -> bool {
        let begins = |line: &str| {
            line.split_once(STARTING)
                .map(|(_, rest)| rest.split_whitespace().next() == Some(version))
        };
        self.prepared(version) && self.stderr.lines().any(|line| begins(line) == Some(true))
    }

    /// Returns what a prepare says that it wrote, if not this version.
    fn wrote_instead_of(&self, version: &str) -> Option<Instead> {
        self.stderr
            .lines()
            .find_map(|line| match line.split_once(STARTING) {
                Some((_, rest)) => {
                    let written: Version = rest.split_whitespace().next()?.parse().ok()?;
                    (written.to_string() != version).then_some(Instead::Other(written))
                }
                None => line.contains(NOTHING).then_some(Instead::Nothing),
            })
    }
}

/// Returns what a prepare of ours, which has just gone well, wrote in place of the image that the host shows.
pub(super) fn written_instead(
    host: &HostFacts<'_>,
    ended: Option<EndedCommand<'_>>,
) -> Option<Instead> {
    let ended = ended.filter(|ended| ended.command == Command::Prepare && ended.last.success)?;
    ended.last.wrote_instead_of(host.known()?.staged_version?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::tests::saying;

    #[test]
    fn the_updaters_sentences_are_found_among_others() {
        for (stderr, instead) in [
            ("", None),
            ("Starting update to 1.20.1\n", None),
            ("12:00 [INFO] Starting update to 1.20.1\n", None),
            (
                "Starting update to 1.20.2\n",
                Some(Instead::Other(Version::new(1, 20, 2))),
            ),
            (
                "12:00 [INFO] a\r\n12:00 [INFO] Starting update to 1.20.2 now\r\nb\r\n",
                Some(Instead::Other(Version::new(1, 20, 2))),
            ),
            (
                "Starting update to 1.20.1\nStarting update to 1.20.2\n",
                Some(Instead::Other(Version::new(1, 20, 2))),
            ),
            ("\0\u{1b}[2J\nNo update required\n", Some(Instead::Nothing)),
            ("Starting update to the newest\n", None),
            ("Starting update to ", None),
            ("Update required\n", None),
        ] {
            let last = saying(stderr, 5);
            assert_eq!(last.wrote_instead_of("1.20.1"), instead, "{stderr:?}");
            assert_eq!(last.prepared("1.20.1"), instead.is_none(), "{stderr:?}");
            let says = instead.is_none() && stderr.contains("1.20.1");
            assert_eq!(last.says_it_prepared("1.20.1"), says, "{stderr:?}");
        }
    }
}
