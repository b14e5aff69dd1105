//! Budgets (`PodDisruptionBudget`) as drains need them.

use brupop_api::item::{Readable, Unreadable};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// Longest selector that is kept, in bytes of its JSON. Anybody with a namespace can make one of more than a megabyte.
const SELECTOR_MAX: usize = 16 * 1024;

/// What a drain needs of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Which pods it covers; `None` = no pods.
    pub selector: Option<Selector>,
    /// How many disruptions it allows now.
    pub allowed: i32,
    /// How many pods it covers.
    pub expected_pods: i32,
    /// How many of them must be healthy.
    pub desired_healthy: i32,
    /// Has its controller seen its latest version?
    pub observed: bool,
}

#[derive(Deserialize)]
struct Shape {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    generation: Option<i64>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    selector: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    disruptions_allowed: i32,
    expected_pods: i32,
    desired_healthy: i32,
}

impl Readable for Budget {
    type Kind = PodDisruptionBudget;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        let status = status.unwrap_or_default();
        Ok(Self {
            selector: spec.selector.map(|selector| read_selector(&selector)).transpose()?,
            allowed: status.disruptions_allowed,
            expected_pods: status.expected_pods,
            desired_healthy: status.desired_healthy,
            observed: status.observed_generation.is_none_or(|seen| Some(seen) == metadata.generation),
        })
    }
}

fn read_selector(json: &RawValue) -> Result<Selector, Unreadable> {
    if json.get().len() > SELECTOR_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    let selector: LabelSelector = serde_json::from_str(json.get())?;
    Selector::try_from(selector).map_err(|error| serde_json::Error::custom(error).into())
}
