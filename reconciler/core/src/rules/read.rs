//! Rules from the spec of a pool, field by field.

use std::fmt;

use brupop_api::names::DEFAULT_POOL;
use brupop_api::pool::{
    self, BottlerocketPoolSpec, DependsOn, FIVE_FIELDS, Freeze, OnTimeout, Window,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use semver::Version;

use super::{GateQuery, Limit, PoolGate, Rules, StepDurations};
use crate::window::{Schedule, time_zone};

/// Longest window.
const WINDOW_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Longest soak between two pools, and longest age that a version must have.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Longest drain, and so on: that of the environment's settings.
const STEP_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What cannot be understood: the field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The path of the field.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl Rules {
    /// The rules that this spec means, once the schema has let it in. The webhook asks this, too, before a pool is stored.
    ///
    /// # Errors
    /// The first field that cannot be understood.
    pub fn of(spec: &BottlerocketPoolSpec) -> Result<Self, Invalid> {
        let windows = spec
            .windows
            .iter()
            .enumerate()
            .map(|(nth, window)| schedule(nth, window));
        let freezes = spec
            .freezes
            .iter()
            .enumerate()
            .map(|(nth, freeze)| span(nth, freeze));
        let after = spec
            .depends_on
            .iter()
            .enumerate()
            .map(|(nth, after)| soak(nth, after));
        let versions = spec.versions.clone().unwrap_or_default();
        let (drain, verify) = (&spec.drain, &spec.verify);
        let gates = spec
            .gates
            .iter()
            .enumerate()
            .map(|(nth, gate)| self::gate(nth, gate));
        let at_least = version("spec.versions.atLeast", versions.at_least.as_deref())?;
        let below = version("spec.versions.below", versions.below.as_deref())?;
        if let Some((least, bound)) = at_least
            .as_ref()
            .zip(below.as_ref())
            .filter(|(least, bound)| least >= bound)
        {
            let why = format!(
                "no version is at least {least} and below {bound}: write a lower atLeast, or a higher below"
            );
            return Err(Invalid::new("spec.versions", why));
        }
        Ok(Self {
            paused: spec.paused,
            limit: limit(&spec.max_unavailable)
                .map_err(|why| Invalid::new("spec.maxUnavailable", why))?,
            windows: windows.collect::<Result<_, _>>()?,
            freezes: freezes.collect::<Result<_, _>>()?,
            at_least,
            below,
            min_age: duration(
                "spec.versions.minAge",
                &versions.min_age,
                SignedDuration::ZERO,
                AGE_MAX,
            )?,
            depends_on: after.collect::<Result<_, _>>()?,
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
            gates: gates.collect::<Result<_, _>>()?,
        })
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
        "write a number from 1, such as 2, or a percentage from 1% to 100%, such as \"10%\""
            .to_owned()
    })
}

fn version(field: &str, text: Option<&str>) -> Result<Option<Version>, Invalid> {
    text.map(|text| {
        Version::parse(text)
            .map_err(|_| Invalid::new(field, "write a semantic version, such as 1.20.0"))
    })
    .transpose()
}

fn span(nth: usize, freeze: &Freeze) -> Result<(Timestamp, Timestamp), Invalid> {
    let time = |field: &str, text: &str| {
        text.parse::<Timestamp>().map_err(|_| {
            let field = format!("spec.freezes[{nth}].{field}");
            Invalid::new(
                field,
                "write a time with its offset, such as 2026-12-20T00:00:00+01:00",
            )
        })
    };
    Ok((time("start", &freeze.start)?, time("end", &freeze.end)?))
}

fn soak(nth: usize, after: &DependsOn) -> Result<(String, SignedDuration), Invalid> {
    if after.pool == DEFAULT_POOL {
        let why = "no pool can depend on the pool default; give its nodes a pool of their own";
        return Err(Invalid::new(format!("spec.dependsOn[{nth}].pool"), why));
    }
    let field = format!("spec.dependsOn[{nth}].soak");
    Ok((
        after.pool.clone(),
        duration(field, &after.soak, SignedDuration::ZERO, AGE_MAX)?,
    ))
}

fn gate(nth: usize, gate: &pool::Gate) -> Result<PoolGate, Invalid> {
    let asks = |of: &str, query: &str| {
        if query.trim().is_empty() {
            let field = format!("spec.gates[{nth}].prometheus.{of}");
            return Err(Invalid::new(field, "write an expression of PromQL"));
        }
        Ok(query.to_owned())
    };
    let prometheus = &gate.prometheus;
    let requires = prometheus.requires.as_deref();
    Ok(PoolGate {
        name: gate.name.clone(),
        query: GateQuery {
            source: prometheus.source.clone(),
            expression: asks("query", &prometheus.query)?,
            requires: requires.map(|it| asks("requires", it)).transpose()?,
        },
    })
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
    duration
        .filter(|duration| (least..=most).contains(duration))
        .ok_or_else(|| {
            let (hours, from) = (
                most.as_hours(),
                if least.is_zero() { "" } else { " from 1s" },
            );
            Invalid::new(
                field,
                format!(
                    "write hours, minutes and seconds{from} up to {hours}h, such as 24h or 1h30m"
                ),
            )
        })
}

fn schedule(nth: usize, window: &Window) -> Result<Schedule, Invalid> {
    let field = |field: &str| format!("spec.windows[{nth}].{field}");
    let zone = time_zone(&window.time_zone).map_err(|why| Invalid::new(field("timeZone"), why))?;
    let fields = window.schedule.split_whitespace().count();
    if fields != 5 {
        return Err(Invalid::new(
            field("schedule"),
            format!("it has {fields} fields: {FIVE_FIELDS}"),
        ));
    }
    let length = duration(
        field("duration"),
        &window.duration,
        SignedDuration::from_secs(1),
        WINDOW_MAX,
    )?;
    Schedule::new(&window.schedule, zone, Some(length))
        .map_err(|why| Invalid::new(field("schedule"), why))
}

#[cfg(test)]
pub(super) mod tests;
