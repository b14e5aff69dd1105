//! Budgets that allow more than they did: what they held up is asked for again at once. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

/// How many disruptions each budget (namespace, name) allowed when it was last looked at.
#[derive(Debug, Default)]
pub struct Budgets {
    allowed: BTreeMap<(String, String), i32>,
}

impl Budgets {
    /// Looks at all budgets. Returns the namespaces in which one allows more than before, or is there no more.
    pub fn relaxed<'b>(
        &mut self,
        budgets: impl Iterator<Item = &'b PodDisruptionBudget>,
    ) -> BTreeSet<String> {
        let now: BTreeMap<(String, String), i32> = budgets
            .map(|budget| ((budget.namespace().unwrap_or_default(), budget.name_any()), allowed(budget)))
            .collect();
        let more = |(key, before): (&(String, String), &i32)| {
            now.get(key).is_none_or(|now| now > before).then(|| key.0.clone())
        };
        let relaxed = self.allowed.iter().filter_map(more).collect();
        self.allowed = now;
        relaxed
    }
}

/// How many disruptions this budget allows now.
pub fn allowed(budget: &PodDisruptionBudget) -> i32 {
    budget.status.as_ref().map_or(0, |status| status.disruptions_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn budget(namespace: &str, name: &str, allowed: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    #[test]
    fn only_what_allows_more_than_before_is_asked_again() {
        let mut budgets = Budgets::default();
        let mut look =
            |found: &[PodDisruptionBudget]| budgets.relaxed(found.iter()).into_iter().collect::<Vec<_>>();
        assert!(look(&[budget("a", "x", 1), budget("b", "x", 0)]).is_empty(), "the first look");
        assert_eq!(look(&[budget("a", "x", 1), budget("b", "x", 1)]), ["b"]);
        assert!(look(&[budget("a", "x", 0), budget("b", "x", 1)]).is_empty());
        assert_eq!(look(&[budget("b", "x", 1)]), ["a"], "it is gone");
        assert!(look(&[budget("b", "x", 1)]).is_empty());
    }
}
