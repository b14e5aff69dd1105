//! Pools: what people wrote, as rules; which pool owns a node; and whether a pool lets updates start now.

mod bound;

use std::fmt;

use crate::kept::weight;
use crate::policy::{Durations, FailureBudget, Limit};
use crate::window::{self, Schedule, Span, Starts, Until, time_zone};
pub(crate) use bound::bound;
use brupop_api::crds::{QUERY_MAX, is_dns_label};
use brupop_api::fleet::AcknowledgedHalt;
use brupop_api::item::{self, Readable, Unreadable};
use brupop_api::names::ZONE_LABEL;
use brupop_api::pool::{
    self, After, BottlerocketPoolSpec, FIVE_FIELDS, Freeze, GateType, NodeSelector, Operator, Topology,
    TopologyMode, Window,
};
use brupop_api::{BottlerocketPool, Item};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Expression, Selector};
use semver::Version;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest window.
const WINDOW_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Longest soak between two pools, and longest age that a version must have.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Longest drain, and so on: that of the environment's settings.
const STEP_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A pool as it is watched.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Namespace, name, UID, generation.
    pub metadata: ObjectMeta,
    /// The status, to tell what is stored already. No decision reads it.
    pub stored: brupop_api::BottlerocketPoolStatus,
    /// Which nodes it selects; `None` = nobody knows, so it holds all.
    pub selector: Option<Selector>,
    /// Of the pools that select a node, the one of the highest priority owns it.
    pub priority: u64,
    /// How many requirements the selector has.
    pub(crate) requirements: usize,
    /// A person paused it, as far as the spec can be read.
    pub paused: bool,
    /// What it says of these nodes; if that cannot be understood, why.
    pub rules: Result<Rules, Invalid>,
    /// What it takes in memory, roughly.
    pub bytes: usize,
    given_up: bool,
}

/// What a pool takes in memory beside what it says: a place, and sentences about it.
const BESIDE: usize = size_of::<Item<Pool>>() + 1024;
/// What a byte of a status takes in memory.
const IN_MEMORY: usize = 2;
/// Why a pool is given up.
const TOO_MUCH: &str = "there are more pools than are kept, or larger ones: 32 MiB in memory, and the largest are given up first. \
                        It holds the nodes that it selects; delete pools, or make this one smaller. \
                        They are looked at again every five minutes";
/// Why not even its selector is kept.
const TOO_MUCH_LEFT: &str = "there are more pools than are kept, or larger ones, and so many that the selectors of the largest are \
                             not kept either. It holds all nodes; delete pools, or make this one smaller. \
                             They are looked at again every five minutes";

impl Pool {
    /// Forgets what it says of its nodes; see [`crate::kept`].
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        self.bytes -= self.rules.as_ref().map_or(0, Rules::weight);
        self.rules = Err(Invalid::new("spec", TOO_MUCH));
    }

    /// Forgets which nodes it selects, too.
    pub(crate) fn forget_selector(&mut self) {
        self.bytes -= self.selector.take().into_iter().flatten().map(|it| weight_of(&it)).sum::<usize>();
        (self.requirements, self.priority) = (0, u64::MAX);
        self.rules = Err(Invalid::new("spec", TOO_MUCH_LEFT));
    }

    /// Is it forgotten what it says?
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Is this the same pool, and does it say the same of the same nodes? Its generation does not tell: once etcd was restored
    /// from a snapshot, another spec may have it.
    pub(crate) fn says_the_same(&self, before: &Self) -> bool {
        self.metadata.uid == before.metadata.uid
            && (&self.selector, self.priority) == (&before.selector, before.priority)
            && self.rules == before.rules
    }
}

impl Readable for Pool {
    type Kind = BottlerocketPool;

    /// A spec that cannot be read makes a pool that is not understood, and a status that cannot be read is written anew.
    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape<'j> {
            metadata: item::Metadata,
            #[serde(borrow, default)]
            spec: Option<&'j RawValue>,
            #[serde(borrow, default)]
            status: Option<&'j RawValue>,
        }
        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        // Nobody bounds its owners, and nothing is asked of them.
        let metadata = ObjectMeta { owner_references: None, ..metadata.into() };
        let spec: Result<BottlerocketPoolSpec, _> = serde_json::from_str(spec.map_or("null", RawValue::get));
        let selector: Option<Vec<_>> = spec.as_ref().ok().map(|spec| requirements(&spec.node_selector));
        let rules = spec
            .as_ref()
            .map_err(|error| Invalid::new("spec", Unreadable::from(error).to_string()))
            .and_then(Rules::of);
        let bytes = BESIDE
            + IN_MEMORY * status.map_or(0, |status| status.get().len())
            + selector.iter().flatten().map(weight_of).sum::<usize>()
            + rules.as_ref().map_or(0, Rules::weight);
        Ok(Self {
            metadata,
            stored: status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default(),
            requirements: selector.as_ref().map_or(0, Vec::len),
            selector: selector.map(Selector::from_iter),
            priority: spec.as_ref().map_or(u64::MAX, |spec| spec.priority),
            paused: spec.as_ref().is_ok_and(|spec| spec.paused),
            rules,
            bytes,
            given_up: false,
        })
    }
}

/// What a requirement takes in memory, roughly.
fn weight_of(requirement: &Expression) -> usize {
    let (key, values): (_, Vec<&str>) = match requirement {
        Expression::In(key, values) | Expression::NotIn(key, values) => {
            (key, values.iter().map(String::as_str).collect())
        }
        Expression::Equal(key, value) | Expression::NotEqual(key, value) => (key, vec![value]),
        Expression::Exists(key) | Expression::DoesNotExist(key) => (key, vec![]),
    };
    size_of::<Expression>() + weight(values.into_iter().chain([key.as_str()]))
}

fn requirements(selector: &NodeSelector) -> Vec<Expression> {
    let labels =
        selector.match_labels.iter().map(|(key, value)| Expression::Equal(key.clone(), value.clone()));
    let expressions = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (requirement.key.clone(), requirement.values.iter().cloned().collect());
        match requirement.operator {
            Operator::In => Expression::In(key, values),
            Operator::NotIn => Expression::NotIn(key, values),
            Operator::Exists => Expression::Exists(key),
            Operator::DoesNotExist => Expression::DoesNotExist(key),
        }
    });
    labels.chain(expressions).collect()
}

/// What a pool says of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    paused: bool,
    limit: Limit,
    windows: Vec<Schedule>,
    freezes: Vec<(Timestamp, Timestamp)>,
    at_least: Option<Version>,
    below: Option<Version>,
    /// How old versions must be.
    pub(crate) min_age: SignedDuration,
    /// The pools that go first, and for how long they must have been done.
    pub(crate) after: Vec<(String, SignedDuration)>,
    /// After how many failures of its workloads a version is halted in the pool.
    pub(crate) failures: FailureBudget,
    /// The halts of the pool that a person lifts.
    pub(crate) acknowledged: Vec<AcknowledgedHalt>,
    topology: Topology,
    drain: SignedDuration,
    exclusion: SignedDuration,
    respect_do_not_disrupt: bool,
    soak: SignedDuration,
    workloads: SignedDuration,
    /// What has to be well.
    pub(crate) gates: Vec<Gate>,
}

/// What cannot be understood: the field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The path of the field.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

impl Invalid {
    fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl Rules {
    /// The rules that this spec means. The webhook asks this, too, before a pool is stored.
    ///
    /// # Errors
    /// The first field that cannot be understood.
    pub fn of(spec: &BottlerocketPoolSpec) -> Result<Self, Invalid> {
        let windows = spec.windows.iter().enumerate().map(|(nth, window)| schedule(nth, window));
        let freezes = spec.freezes.iter().enumerate().map(|(nth, freeze)| span(nth, freeze));
        let after = spec.after.iter().enumerate().map(|(nth, after)| soak(nth, after));
        let versions = spec.versions.clone().unwrap_or_default();
        let (drain, soak) = (&spec.drain, &spec.soak);
        let gates = spec.gates.iter().enumerate().map(|(nth, gate)| self::gate(nth, gate));
        Ok(Self {
            paused: spec.paused,
            limit: limit(&spec.max_unavailable).map_err(|why| Invalid::new("spec.maxUnavailable", why))?,
            windows: windows.collect::<Result<_, _>>()?,
            freezes: freezes.collect::<Result<_, _>>()?,
            at_least: version("spec.versions.atLeast", versions.at_least.as_deref())?,
            below: version("spec.versions.below", versions.below.as_deref())?,
            min_age: duration("spec.versions.minAge", &versions.min_age, SignedDuration::ZERO, AGE_MAX)?,
            after: after.collect::<Result<_, _>>()?,
            failures: FailureBudget {
                unproven: Some(spec.failure_threshold.unproven),
                proven: Some(spec.failure_threshold.proven),
            },
            acknowledged: spec.acknowledged_halts.clone(),
            topology: spec.topology.clone(),
            drain: duration("spec.drain.timeout", &drain.timeout, SignedDuration::from_secs(1), STEP_MAX)?,
            exclusion: step("spec.drain.loadBalancerDelay", &drain.load_balancer_delay)?,
            respect_do_not_disrupt: drain.respect_do_not_disrupt,
            soak: step("spec.soak.readyFor", &soak.ready_for)?,
            workloads: step("spec.soak.workloadsTimeout", &soak.workloads_timeout)?,
            gates: gates.collect::<Result<_, _>>()?,
        })
    }

    /// What they take in memory beside themselves, roughly.
    fn weight(&self) -> usize {
        let after = self.after.iter().map(|(pool, _)| pool);
        let halts = self.acknowledged.iter().flat_map(|halt| [&halt.version, &halt.halted_at]);
        let gates = self.gates.iter().flat_map(|Gate { name, question }| {
            [name, &question.source, &question.query].into_iter().chain(&question.requires)
        });
        let texts = after.chain(halts).chain(gates).chain([&self.topology.topology_key]);
        self.windows.iter().map(Schedule::weight).sum::<usize>()
            + size_of_val(self.freezes.as_slice())
            + weight(texts.map(String::as_str))
    }

    /// How long things may take, where nothing else is said than this.
    pub(crate) fn durations(&self, others: Durations) -> Durations {
        let Self { drain, exclusion, soak, workloads, .. } = *self;
        Durations { exclusion, soak, workloads, drain, ..others }
    }

    /// Are pods respected that ask not to be disrupted?
    pub(crate) fn respect_do_not_disrupt(&self) -> bool {
        self.respect_do_not_disrupt
    }

    /// The label that says in which zone a node is, if it is not the well-known one.
    pub(crate) fn topology_key(&self) -> Option<&str> {
        Some(self.topology.topology_key.as_str()).filter(|key| *key != ZONE_LABEL)
    }

    /// Do updates start in one zone only?
    pub(crate) fn one_zone_at_a_time(&self) -> bool {
        self.topology.mode == TopologyMode::OneAtATime
    }

    /// How many of so many nodes may be unavailable at once.
    pub(crate) fn limit(&self, nodes: u64) -> u64 {
        self.limit.of(nodes)
    }

    /// May updates start now, if so much of the window must be left? That is the open one, or else the next one.
    pub(crate) fn starts(
        &self,
        now: Timestamp,
        remaining: SignedDuration,
        window: Option<Span>,
    ) -> Starts<'static> {
        if self.paused {
            Starts::Paused
        } else if let Some(end) = self.frozen_until(now) {
            Starts::Frozen(Until::At(end))
        } else if self.windows.is_empty() || window.is_some_and(|span| window::is_open(span, now, remaining))
        {
            Starts::Open
        } else {
            Starts::OutsideWindow(window::opens(&self.windows, now).map_or(Until::Never, Until::At))
        }
    }

    /// When the freeze, or freezes that follow each other without a gap, is over.
    fn frozen_until(&self, now: Timestamp) -> Option<Timestamp> {
        let after = |at: Timestamp| {
            let covers = self.freezes.iter().filter(|(start, end)| *start <= at && at < *end);
            covers.map(|(_, end)| *end).max()
        };
        let mut until = after(now)?;
        while let Some(later) = after(until) {
            until = later;
        }
        Some(until)
    }

    /// The next time after this one at which the clock alone changes the gate.
    pub(crate) fn next_change(
        &self,
        now: Timestamp,
        remaining: SignedDuration,
        window: Option<Span>,
    ) -> Option<Timestamp> {
        let of_freezes = self.freezes.iter().flat_map(|(start, end)| [*start, *end]);
        let of_window = window.into_iter().flat_map(|(start, end)| {
            // With exactly so much left, updates still start.
            let last = end.checked_sub(remaining).ok();
            let too_late = last.and_then(|last| last.checked_add(SignedDuration::from_nanos(1)).ok());
            [Some(start), too_late.filter(|at| *at < end), Some(end)].into_iter().flatten()
        });
        of_freezes.chain(of_window).filter(|at| *at > now).min()
    }

    /// The window that is open, or the first that opens. Windows that overlap or touch are one.
    pub(crate) fn window(&self, now: Timestamp) -> Option<Span> {
        window::span(&self.windows, now)
    }

    /// Why no update would ever start, if so much of a window must be left.
    pub(crate) fn too_short(&self, remaining: SignedDuration, now: Timestamp) -> Option<String> {
        let fits = self.windows.is_empty() || window::leave(&self.windows, remaining, now);
        (!fits).then(|| {
            let seconds = remaining.as_secs();
            format!(
                "spec.windows: no window is as long as SCHEDULER_MIN_REMAINING_SECONDS of the reconciler, which is \
                 {seconds}, so no update would ever start; make one of them longer"
            )
        })
    }

    /// May nodes be updated to this version? One that is no semantic version is allowed only where nothing is said.
    pub(crate) fn allow(&self, version: &str) -> bool {
        if self.at_least.is_none() && self.below.is_none() {
            return true;
        }
        let Ok(version) = Version::parse(version) else { return false };
        self.at_least.as_ref().is_none_or(|least| version >= *least)
            && self.below.as_ref().is_none_or(|bound| version < *bound)
    }
}

/// What is asked of a source. Gates that ask the same share the answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Name of the source.
    pub source: String,
    /// What has to find nothing.
    pub query: String,
    /// What has to find something.
    pub requires: Option<String>,
}

/// A gate of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// What it asks.
    pub question: Question,
}

/// How a gate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateState {
    /// All is well, and has been for a while.
    Open,
    /// Something is wrong, or was so not long ago.
    Closed,
    /// Nobody knows, because it was not asked often enough yet, or its answers have not failed for long.
    Awaited,
    /// Nobody knows.
    #[default]
    Unknown,
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

/// How many nodes may be unavailable, from a number or a percentage.
///
/// # Errors
/// What to write instead.
pub fn limit(text: &IntOrString) -> Result<Limit, String> {
    let text = match text {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let limit = text.parse().ok().filter(|limit| *limit != Limit::Unlimited);
    limit.ok_or_else(|| {
        "write a number from 1, such as 2, or a percentage from 1% to 100%, such as \"10%\"".to_owned()
    })
}

fn version(field: &str, text: Option<&str>) -> Result<Option<Version>, Invalid> {
    text.map(|text| {
        Version::parse(text).map_err(|_| Invalid::new(field, "write a semantic version, such as 1.20.0"))
    })
    .transpose()
}

fn span(nth: usize, freeze: &Freeze) -> Result<(Timestamp, Timestamp), Invalid> {
    let time = |field: &str, text: &str| {
        text.parse::<Timestamp>().map_err(|_| {
            let field = format!("spec.freezes[{nth}].{field}");
            Invalid::new(field, "write a time with its offset, such as 2026-12-20T00:00:00+01:00")
        })
    };
    Ok((time("start", &freeze.start)?, time("end", &freeze.end)?))
}

fn soak(nth: usize, after: &After) -> Result<(String, SignedDuration), Invalid> {
    let field = format!("spec.after[{nth}].soak");
    Ok((after.pool.clone(), duration(field, &after.soak, SignedDuration::ZERO, AGE_MAX)?))
}

fn gate(nth: usize, gate: &pool::Gate) -> Result<Gate, Invalid> {
    let field = |field: &str| format!("spec.gates[{nth}].{field}");
    let named = |of: &str, name: &str| {
        let why = "write a name of letters in lower case, digits and -, such as main";
        if is_dns_label(name) { Ok(name.to_owned()) } else { Err(Invalid::new(field(of), why)) }
    };
    let asks = |of: &str, query: &str| {
        let why = "write an expression of PromQL, of at most 1,024 characters";
        let is_query = !query.trim().is_empty() && query.chars().count() <= QUERY_MAX;
        if is_query { Ok(query.to_owned()) } else { Err(Invalid::new(field(of), why)) }
    };
    let GateType::Prometheus = gate.type_;
    let prometheus = gate.prometheus.as_ref().ok_or_else(|| {
        Invalid::new(field("prometheus"), "say which source is asked, and what: {source: main, query: ...}")
    })?;
    let question = Question {
        source: named("prometheus.source", &prometheus.source)?,
        query: asks("prometheus.query", &prometheus.query)?,
        requires: prometheus
            .requires
            .as_deref()
            .map(|requires| asks("prometheus.requires", requires))
            .transpose()?,
    };
    Ok(Gate { name: named("name", &gate.name)?, question })
}

fn step(field: &str, text: &str) -> Result<SignedDuration, Invalid> {
    duration(field, text, SignedDuration::ZERO, STEP_MAX)
}

/// A duration between these.
fn duration(
    field: impl Into<String>,
    text: &str,
    least: SignedDuration,
    most: SignedDuration,
) -> Result<SignedDuration, Invalid> {
    let duration: Option<SignedDuration> = text.parse().ok();
    duration.filter(|duration| (least..=most).contains(duration)).ok_or_else(|| {
        let (hours, from) = (most.as_hours(), if least.is_zero() { "" } else { " from 1s" });
        Invalid::new(
            field,
            format!("write hours, minutes and seconds{from} up to {hours}h, such as 24h or 1h30m"),
        )
    })
}

fn schedule(nth: usize, window: &Window) -> Result<Schedule, Invalid> {
    let field = |field: &str| format!("spec.windows[{nth}].{field}");
    let zone = time_zone(&window.time_zone).map_err(|why| Invalid::new(field("timeZone"), why))?;
    let fields = window.schedule.split_whitespace().count();
    if fields != 5 {
        return Err(Invalid::new(field("schedule"), format!("it has {fields} fields: {FIVE_FIELDS}")));
    }
    let length = duration(field("duration"), &window.duration, SignedDuration::from_secs(1), WINDOW_MAX)?;
    Schedule::new(&window.schedule, zone, Some(length)).map_err(|why| Invalid::new(field("schedule"), why))
}

#[cfg(test)]
mod tests;
