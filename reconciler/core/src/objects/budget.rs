//! Budgets, as a drain needs them.

use std::collections::BTreeMap;

use brupop_api::item::{Metadata, Readable, Unreadable};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// Longest selector that is kept, in bytes of its JSON. Anybody with a namespace can make one of more than a megabyte.
const SELECTOR_MAX: usize = 4 * 1024;
/// Most keys and values of a selector.
const REQUIREMENTS_MAX: usize = 64;
/// Reason that the disruption controller writes when it cannot compute a budget, for example because it does not know the
/// controller of one of its pods.
const SYNC_FAILED: &str = "SyncFailed";

/// The part of a budget that a drain needs.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Budget {
    /// The pods that it covers; `None` = no pods.
    pub selector: Option<Selector>,
    /// Number of keys and values that the selector has.
    pub requirements: usize,
    /// Whether pods that are not Ready are evicted whatever it allows.
    pub spares_ready_only: bool,
    /// Whether as many pods are healthy as must be, and any must be. Then pods that are not Ready are evicted, too.
    pub enough_healthy: bool,
    /// Number of disruptions that it allows now.
    pub allowed: i32,
    /// The change that would make it allow one.
    pub remedy: BudgetRemedy,
    /// Whether its controller has seen its latest version.
    pub observed: bool,
}

/// The change that would make a closed budget allow a disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRemedy {
    /// Its `maxUnavailable` is zero, or its `minAvailable` is 100%: no number of pods is enough.
    Change,
    /// It wants as many healthy pods as there are.
    AddPod,
    /// Its controller cannot compute it.
    Repair,
    Wait,
}

#[derive(Deserialize)]
struct BudgetShape {
    metadata: Metadata,
    #[serde(default)]
    spec: BudgetSpec,
    #[serde(default)]
    status: Option<PodDisruptionBudgetStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetSpec {
    selector: Option<Box<RawValue>>,
    max_unavailable: Option<IntOrString>,
    min_available: Option<IntOrString>,
    unhealthy_pod_eviction_policy: Option<String>,
}

impl Readable for Budget {
    type Kind = PodDisruptionBudget;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let BudgetShape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let status = status.unwrap_or_default();
        let (selector, requirements) = spec
            .selector
            .map(|selector| read_selector(&selector))
            .transpose()?
            .unzip();
        Ok(Self {
            selector,
            requirements: requirements.unwrap_or(0),
            spares_ready_only: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            enough_healthy: status.desired_healthy > 0
                && status.current_healthy >= status.desired_healthy,
            allowed: status.disruptions_allowed,
            remedy: remedy(
                spec.max_unavailable.as_ref(),
                spec.min_available.as_ref(),
                &status,
            ),
            observed: status
                .observed_generation
                .is_none_or(|seen| Some(seen) == ObjectMeta::from(metadata).generation),
        })
    }
}

fn remedy(
    max_unavailable: Option<&IntOrString>,
    min_available: Option<&IntOrString>,
    status: &PodDisruptionBudgetStatus,
) -> BudgetRemedy {
    let percent = |percent: &str| IntOrString::String(percent.to_owned());
    let zero =
        max_unavailable.is_some_and(|most| [IntOrString::Int(0), percent("0%")].contains(most));
    if status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.reason == SYNC_FAILED)
    {
        BudgetRemedy::Repair
    } else if zero || min_available == Some(&percent("100%")) {
        BudgetRemedy::Change
    } else if status.expected_pods > 0 && status.desired_healthy >= status.expected_pods {
        BudgetRemedy::AddPod
    } else {
        BudgetRemedy::Wait
    }
}

fn read_selector(json: &RawValue) -> Result<(Selector, usize), Unreadable> {
    if json.get().len() > SELECTOR_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    let selector: LabelSelector = serde_json::from_str(json.get())?;
    let expressions = selector.match_expressions.iter().flatten();
    let of_expressions: usize = expressions
        .map(|expression| 1 + expression.values.as_ref().map_or(0, Vec::len))
        .sum();
    let requirements = selector.match_labels.as_ref().map_or(0, BTreeMap::len) + of_expressions;
    if requirements > REQUIREMENTS_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    match Selector::try_from(selector) {
        Ok(selector) => Ok((selector, requirements)),
        Err(error) => Err(serde_json::Error::custom(error).into()),
    }
}
