//! The rules for updating a fleet, and those of a pool, from its spec or from the settings.

use brupop_api::names::DEFAULT_POOL;
use brupop_api::pool::{
    BottlerocketPoolSpec, DependsOn, FIVE_FIELDS, Freeze, Gate, Limit, MAX_UNAVAILABLE_HINT,
    OnTimeout, Topology, TopologyMode, VERSION_HINT, WRITTEN_TIME_HINT, Window,
};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use semver::Version;

use crate::window::{self, Schedule, Span, Starts, Until, time_zone};

/// The rules for updating a fleet.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The rules of the default pool, whose nodes no `BottlerocketPool` selects.
    pub default_pool: Rules,
    /// The time that download and activation may take.
    pub stage: SignedDuration,
    pub reboot: SignedDuration,
    /// For short steps: the agent's first and last report of an update, a node that becomes Ready again.
    pub settle: SignedDuration,
    /// Time for which a node waits after its first failure.
    pub back_off_base: SignedDuration,
    /// The age that a node must have before it is updated.
    pub min_node_age: SignedDuration,
    /// Time for which a node that somebody else has cordoned takes a place of the limit.
    pub others_cordon: SignedDuration,
    /// Whether nodes that run Bottlerocket and have no label of ours are opted in.
    pub auto_label: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_pool: Rules::default(),
            stage: SignedDuration::from_hours(4),
            reboot: SignedDuration::from_mins(30),
            settle: SignedDuration::from_mins(10),
            back_off_base: SignedDuration::from_mins(2),
            min_node_age: SignedDuration::from_mins(5),
            others_cordon: SignedDuration::from_hours(1),
            auto_label: false,
        }
    }
}

/// The rules of a pool, from its spec or, for the default pool, from the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    paused: bool,
    /// Number of its nodes that may be unavailable at once.
    pub(crate) limit: Limit,
    /// When updates may start; at any time if there are none.
    pub(crate) windows: Vec<Schedule>,
    freezes: Vec<(Timestamp, Timestamp)>,
    at_least: Option<Version>,
    below: Option<Version>,
    /// The age that a version must have.
    pub(crate) min_age: SignedDuration,
    /// The pools that go first, and for how long they must have been done.
    pub depends_on: Vec<(String, SignedDuration)>,
    topology: Topology,
    /// The durations of the steps that it decides on.
    pub durations: StepDurations,
    /// Whether pods are respected that ask not to be disrupted.
    pub respect_do_not_disrupt: bool,
    /// Whether pods that are left at the drain's deadline are deleted, if the reconciler may do so.
    pub wants_force: bool,
    /// The gates that must be open.
    pub gates: Vec<Gate>,
}

impl Rules {
    /// The time zone of its first window.
    pub fn time_zone(&self) -> Option<&TimeZone> {
        self.windows.first().map(|window| &window.zone)
    }

    /// The label that says in which zone a node is.
    pub(crate) fn topology_key(&self) -> &str {
        &self.topology.topology_key
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

/// The durations of the steps of an update that pools decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDurations {
    /// Between a node's exclusion from load balancers and its drain; zero = no exclusion.
    pub exclusion: SignedDuration,
    pub drain: SignedDuration,
    /// Time for which a node is watched after its update.
    pub verify: SignedDuration,
    /// Time for which the node then waits for evicted workloads; zero = it does not look at them.
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

/// The state of a gate; the later ones are worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateState {
    /// All is well, and has been for a while.
    Open,
    /// Nobody knows, because it was not asked often enough yet, or its answers have not failed for long.
    Awaited,
    #[default]
    Unknown,
    /// Something is wrong, or was so not long ago.
    Closed,
}

impl GateState {
    /// All that have a name of their own.
    pub const ALL: [Self; 3] = [Self::Open, Self::Closed, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Closed => "Closed",
            Self::Awaited | Self::Unknown => "Unknown",
        }
    }
}

const WINDOW_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Longest soak between two pools, and longest age that a version must have.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Longest drain, and so on: that of the environment's settings.
const STEP_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Rules {
    /// The rules that this spec means, once the schema has let it in. The webhook asks this, too, before a pool is stored.
    ///
    /// # Errors
    /// The first field that cannot be understood.
    pub fn of(spec: &BottlerocketPoolSpec) -> Result<Self, String> {
        let versions = spec.versions.clone().unwrap_or_default();
        let (drain, verify) = (&spec.drain, &spec.verify);
        let at_least = version("spec.versions.atLeast", versions.at_least.as_deref())?;
        let below = version("spec.versions.below", versions.below.as_deref())?;
        if let Some((least, bound)) = at_least
            .as_ref()
            .zip(below.as_ref())
            .filter(|(least, bound)| least >= bound)
        {
            let why = format!(
                "spec.versions: no version is at least {least} and below {bound}: write a lower atLeast, or a higher below"
            );
            return Err(why);
        }
        Ok(Self {
            paused: spec.paused,
            limit: limit(&spec.max_unavailable)
                .map_err(|why| format!("spec.maxUnavailable: {why}"))?,
            windows: each(&spec.windows, schedule)?,
            freezes: each(&spec.freezes, span)?,
            at_least,
            below,
            min_age: duration(
                "spec.versions.minAge",
                &versions.min_age,
                SignedDuration::ZERO,
                AGE_MAX,
            )?,
            depends_on: each(&spec.depends_on, soak)?,
            topology: spec.topology.clone(),
            durations: StepDurations {
                exclusion: step("spec.drain.loadBalancerDelay", &drain.load_balancer_delay)?,
                drain: duration(
                    "spec.drain.timeout",
                    &drain.timeout,
                    SignedDuration::from_secs(1),
                    STEP_MAX,
                )?,
                verify: step("spec.verify.readyFor", &verify.ready_for)?,
                workloads: step("spec.verify.workloadsTimeout", &verify.workloads_timeout)?,
            },
            respect_do_not_disrupt: drain.respect_do_not_disrupt,
            wants_force: drain.on_timeout == OnTimeout::Force,
            gates: each(&spec.gates, gate)?,
        })
    }
}

/// Parses each of these items, which has this number in its list.
fn each<T, U>(
    items: &[T],
    parse: impl Fn(usize, &T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    let items = items.iter().enumerate();
    items.map(|(nth, item)| parse(nth, item)).collect()
}

/// Parses the limit of unavailable nodes, a number or a percentage.
///
/// # Errors
/// What to write instead.
pub fn limit(text: &IntOrString) -> Result<Limit, String> {
    let text = match text {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let limit = text.parse().ok().filter(|limit| *limit != Limit::Unlimited);
    limit.ok_or_else(|| MAX_UNAVAILABLE_HINT.to_owned())
}

fn version(field: &str, text: Option<&str>) -> Result<Option<Version>, String> {
    text.map(|text| Version::parse(text).map_err(|_| format!("{field}: {VERSION_HINT}")))
        .transpose()
}

fn span(nth: usize, freeze: &Freeze) -> Result<(Timestamp, Timestamp), String> {
    let time = |field: &str, text: &str| {
        text.parse::<Timestamp>()
            .map_err(|_| format!("spec.freezes[{nth}].{field}: {WRITTEN_TIME_HINT}"))
    };
    Ok((time("start", &freeze.start)?, time("end", &freeze.end)?))
}

fn soak(nth: usize, after: &DependsOn) -> Result<(String, SignedDuration), String> {
    if after.pool == DEFAULT_POOL {
        return Err(format!(
            "spec.dependsOn[{nth}].pool: no pool can depend on the pool default; give its nodes a pool of their own"
        ));
    }
    let field = format!("spec.dependsOn[{nth}].soak");
    Ok((
        after.pool.clone(),
        duration(&field, &after.soak, SignedDuration::ZERO, AGE_MAX)?,
    ))
}

fn gate(nth: usize, gate: &Gate) -> Result<Gate, String> {
    let Gate { prometheus, .. } = gate;
    let queries = [
        ("query", Some(&prometheus.query)),
        ("requires", prometheus.requires.as_ref()),
    ];
    let is_blank = |query: Option<&String>| query.is_some_and(|query| query.trim().is_empty());
    match queries.into_iter().find(|(_, query)| is_blank(*query)) {
        None => Ok(gate.clone()),
        Some((field, _)) => Err(format!(
            "spec.gates[{nth}].prometheus.{field}: write an expression of PromQL"
        )),
    }
}

fn step(field: &str, text: &str) -> Result<SignedDuration, String> {
    duration(field, text, SignedDuration::ZERO, STEP_MAX)
}

/// Parses a duration between these bounds.
fn duration(
    field: &str,
    text: &str,
    least: SignedDuration,
    most: SignedDuration,
) -> Result<SignedDuration, String> {
    let duration: Option<SignedDuration> = text.parse().ok();
    duration
        .filter(|duration| (least..=most).contains(duration))
        .ok_or_else(|| {
            let (hours, from) = (
                most.as_hours(),
                if least.is_zero() { "" } else { " from 1s" },
            );
            format!(
                "{field}: write hours, minutes and seconds{from} up to {hours}h, such as 24h or 1h30m"
            )
        })
}

fn schedule(nth: usize, window: &Window) -> Result<Schedule, String> {
    let of = format!("spec.windows[{nth}]");
    let zone = time_zone(&window.time_zone).map_err(|why| format!("{of}.timeZone: {why}"))?;
    let fields = window.schedule.split_whitespace().count();
    if fields != 5 {
        return Err(format!(
            "{of}.schedule: it has {fields} fields: {FIVE_FIELDS}"
        ));
    }
    let length = duration(
        &format!("{of}.duration"),
        &window.duration,
        SignedDuration::from_secs(1),
        WINDOW_MAX,
    )?;
    Schedule::new(&window.schedule, zone, Some(length))
        .map_err(|why| format!("{of}.schedule: {why}"))
}

/// The default policy, for tests to borrow from.
#[cfg(test)]
pub(crate) static USUAL: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(Policy::default);

#[cfg(test)]
mod tests;
