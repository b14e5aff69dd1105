//! What a host chooses among the images in the repository.

/// What the host's own settings let it choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `settings.updates.version-lock`: a version, or `None` for `latest`.
    pub version_lock: Option<String>,
    /// `settings.updates.max-version`: nothing newer is chosen. If what runs is newer, the host goes down.
    pub max_version: Option<String>,
    /// The host's wave has not started: nothing is available yet.
    pub before_wave: bool,
    /// The version lock in the configuration of the updater, which a prepare obeys, if it is not that of the settings.
    pub updater_lock: Option<String>,
    /// What comes of a refresh that is recorded as a success and whose result is then not used.
    pub unused: Option<Unused>,
    /// The repository cannot be reached. Each command loads it first, also those that change nothing but the partition table.
    pub unreachable: bool,
}

/// A refresh is recorded as a success as soon as its command has ended. What follows may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// What the command wrote cannot be read: the document stays as it was.
    Output,
    /// `settings.updates` cannot be read: what is available is new, what is chosen is not.
    Settings,
}
