//! What a host chooses among the images in the repository.

/// What the host's own settings let it choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `settings.updates.max-version`: nothing newer is chosen. If what runs is newer, the host goes down.
    pub max_version: Option<String>,
    /// The repository cannot be reached. Each command loads it first, also those that change nothing but the partition table.
    pub unreachable: bool,
}
