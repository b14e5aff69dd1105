//! The updates that a repository offers to a host, and the host's choice.

use std::collections::BTreeMap;

use anyhow::Context as _;
use jiff::Timestamp;
use semver::Version;

/// The host's own settings (`settings.updates`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `seed`: decides the host's wave.
    pub seed: u32,
    pub ignore_waves: bool,
    /// `version-lock`; `None` is `latest`.
    pub version_lock: Option<Version>,
    /// The repository cannot be reached. Each command loads it first, also those that change nothing but the partition table.
    pub unreachable: bool,
}

/// A release in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub version: Version,
    /// When each wave begins, by its lowest seed. Without waves the release is offered to all hosts at once.
    pub waves: BTreeMap<u32, Timestamp>,
    /// The repository has no migrations to it.
    pub without_migrations: bool,
}

impl Release {
    /// A release for all hosts.
    pub fn new(version: &str) -> anyhow::Result<Self> {
        let version = Version::parse(version)
            .with_context(|| format!("the published version {version:?}"))?;
        Ok(Self {
            version,
            waves: BTreeMap::new(),
            without_migrations: false,
        })
    }

    /// Whether the wave of this host has come.
    fn is_offered(&self, choice: &Choice, now: Timestamp) -> bool {
        let wave = self.waves.range(..=choice.seed).next_back();
        choice.ignore_waves
            || self.waves.is_empty()
            || wave.is_some_and(|(_, starts)| *starts <= now)
    }
}

/// An update repository with its manifest.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    /// All releases of the repository, the newest first.
    releases: Vec<Release>,
    max_version: Option<Version>,
}

impl Repository {
    /// A new release, or another manifest of one.
    pub fn publish(&mut self, release: Release) {
        self.releases
            .retain(|published| published.version != release.version);
        self.releases.push(release);
        self.releases.sort_by(|a, b| b.version.cmp(&a.version));
    }

    /// An image is taken out.
    pub fn withdraw(&mut self, version: &str) {
        self.releases
            .retain(|published| published.version.to_string() != version);
    }

    /// The manifest's `max_version`: nothing newer is offered, and hosts that run something newer go down.
    pub fn set_max_version(&mut self, max: Option<Version>) {
        self.max_version = max;
    }

    pub(super) fn lacks_migrations(&self, version: &Version) -> bool {
        self.releases
            .iter()
            .any(|release| release.version == *version && release.without_migrations)
    }

    /// Returns what a host is offered, the newest first.
    pub(super) fn offered(
        &self,
        choice: &Choice,
        now: Timestamp,
    ) -> impl Iterator<Item = &Release> {
        let is_allowed =
            |version: &Version| self.max_version.as_ref().is_none_or(|max| version <= max);
        self.releases
            .iter()
            .filter(move |release| is_allowed(&release.version) && release.is_offered(choice, now))
    }

    /// Returns what a host that runs this version chooses of that: the version that it is locked to; else the newest, if that
    /// is newer, or what runs is above the highest that is allowed.
    pub(super) fn choose(
        &self,
        choice: &Choice,
        runs: &Version,
        now: Timestamp,
    ) -> Option<Version> {
        let is_too_high = self.max_version.as_ref().is_some_and(|max| runs > max);
        let is_chosen = |version: &&Version| match &choice.version_lock {
            Some(lock) => *version == lock && lock != runs,
            None => *version > runs || is_too_high,
        };
        self.offered(choice, now)
            .map(|release| &release.version)
            .find(is_chosen)
            .cloned()
    }
}
