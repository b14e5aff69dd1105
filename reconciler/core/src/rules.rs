//! What a pool, or the environment, says of its nodes.

mod limit;
mod read;

use brupop_api::names::ZONE_LABEL;
use brupop_api::pool::{Topology, TopologyMode};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use semver::Version;

use crate::window::{self, Schedule, Span, Starts, Until};
pub use limit::Limit;
pub use read::{Invalid, limit};

/// What a pool says of its nodes, or what the settings say of the nodes of the default pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    paused: bool,
    /// How many of its nodes may be unavailable at once.
    pub(crate) limit: Limit,
    /// When updates may start; at any time if there are none.
    pub(crate) windows: Vec<Schedule>,
    freezes: Vec<(Timestamp, Timestamp)>,
    at_least: Option<Version>,
    below: Option<Version>,
    /// How old versions must be.
    pub(crate) min_age: SignedDuration,
    /// The pools that go first, and for how long they must have been done.
    pub depends_on: Vec<(String, SignedDuration)>,
    topology: Topology,
    /// How long the steps may take that it decides on.
    pub durations: StepDurations,
    /// Whether pods are respected that ask not to be disrupted.
    pub respect_do_not_disrupt: bool,
    /// Whether pods that are left at the drain's deadline are deleted, if the reconciler may do so.
    pub wants_force: bool,
    /// What has to be well.
    pub gates: Vec<PoolGate>,
}

impl Rules {
    /// The time zone of its first window.
    pub fn time_zone(&self) -> Option<&TimeZone> {
        self.windows.first().map(|window| &window.zone)
    }

    /// The label that says in which zone a node is, if it is not the well-known one.
    pub(crate) fn topology_key(&self) -> Option<&str> {
        Some(self.topology.topology_key.as_str()).filter(|key| *key != ZONE_LABEL)
    }

    /// Whether updates start in one zone only.
    pub(crate) fn one_zone_at_a_time(&self) -> bool {
        self.topology.mode == TopologyMode::OneAtATime
    }

    /// The rules of the default pool.
    pub fn of_settings(limit: Limit, windows: Vec<Schedule>, durations: StepDurations) -> Self {
        Self {
            limit,
            windows,
            durations,
            ..Self::default()
        }
    }

    /// Whether an update will ever be allowed to start, at this time or later. It will not if each expression names only years gone by.
    pub fn open_ever(&self, now: Timestamp) -> bool {
        self.windows.is_empty() || self.window(now).is_some()
    }

    /// Whether updates may start now, if this is [`Self::window`].
    pub(crate) fn starts(&self, now: Timestamp, window: Option<Span>) -> Starts<'static> {
        if self.paused {
            return Starts::Paused;
        }
        if let Some(end) = self.frozen_until(now) {
            return Starts::Frozen(Until::At(end));
        }
        match window {
            Some(window) if now < window.start => Starts::OutsideWindow(Until::At(window.start)),
            None if !self.windows.is_empty() => Starts::OutsideWindow(Until::Never),
            _ => Starts::Open,
        }
    }

    /// When the freeze, or freezes that follow each other without a gap, is over.
    fn frozen_until(&self, now: Timestamp) -> Option<Timestamp> {
        let after = |at: Timestamp| {
            let covers = self
                .freezes
                .iter()
                .filter(|(start, end)| *start <= at && at < *end);
            covers.map(|(_, end)| *end).max()
        };
        let mut until = after(now)?;
        while let Some(later) = after(until) {
            until = later;
        }
        Some(until)
    }

    /// The next time after this one at which the clock alone may change whether updates start, or the window.
    pub(crate) fn next_change(&self, now: Timestamp, window: Option<Span>) -> Option<Timestamp> {
        let window = window.map(|window| (window.start, window.end));
        let spans = self.freezes.iter().copied().chain(window);
        spans
            .flat_map(|(start, end)| [start, end])
            .filter(|at| *at > now)
            .min()
    }

    /// The window that is open, or the first that opens.
    pub(crate) fn window(&self, now: Timestamp) -> Option<Span> {
        window::span(&self.windows, now)
    }

    /// Whether this is older than each version that it allows.
    pub(crate) fn asks_for_more_than(&self, version: &Version) -> bool {
        self.at_least.as_ref().is_some_and(|least| version < least)
    }

    /// Whether nodes may be updated to this version. One that is no semantic version is allowed only where nothing is said.
    pub(crate) fn allow(&self, version: &str) -> bool {
        if self.at_least.is_none() && self.below.is_none() {
            return true;
        }
        let Ok(version) = Version::parse(version) else {
            return false;
        };
        self.at_least.as_ref().is_none_or(|least| version >= *least)
            && self.below.as_ref().is_none_or(|bound| version < *bound)
    }
}

/// How long the steps of an update may take on which pools decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDurations {
    /// Between a node's exclusion from load balancers and its drain; zero = no exclusion.
    pub exclusion: SignedDuration,
    pub drain: SignedDuration,
    /// How long a node is watched after its update.
    pub verify: SignedDuration,
    /// For how long after that the node waits for evicted workloads; zero = they are not looked at.
    pub workloads: SignedDuration,
}

impl Default for StepDurations {
    fn default() -> Self {
        Self {
            exclusion: SignedDuration::ZERO,
            drain: SignedDuration::from_mins(15),
            verify: SignedDuration::from_mins(1),
            workloads: SignedDuration::from_mins(15),
        }
    }
}

/// A query to a source. Gates with equal queries share the answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateQuery {
    /// Name of the source.
    pub source: String,
    /// What has to find nothing.
    pub expression: String,
    /// What has to find something.
    pub requires: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolGate {
    pub name: String,
    /// What it asks.
    pub query: GateQuery,
}

/// How a gate is; the later ones are worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateState {
    /// All is well, and has been for a while.
    Open,
    /// Nobody knows, because it was not asked often enough yet, or its answers have not failed for long.
    Awaited,
    /// Nobody knows.
    #[default]
    Unknown,
    /// Something is wrong, or was so not long ago.
    Closed,
}

impl GateState {
    /// All that have a name of their own.
    pub const ALL: [Self; 3] = [Self::Open, Self::Closed, Self::Unknown];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Closed => "Closed",
            Self::Awaited | Self::Unknown => "Unknown",
        }
    }
}

#[cfg(test)]
mod tests;
