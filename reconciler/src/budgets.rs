//! Budgets: which allow more than before, so that evictions they refused are tried again at once; and
//! which can never allow what a drain needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::drain::{Fate, fate, unmanaged};
use crate::objects::ready_condition;

/// How many disruptions each budget (namespace, name) allowed when it was last looked at.
#[derive(Debug, Default)]
pub struct Budgets {
    allowed: BTreeMap<(String, String), i32>,
}

impl Budgets {
    /// Looks at all budgets. Returns the namespaces in which a budget allows more than before, or was deleted.
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

/// Why the pods of one node can never all be evicted, as pods and budgets are now; `None` if they can. Either a pod has
/// no controller, or its budgets allow no disruption with as many pods as there are. The operator's own pods
/// (`is_operator_pod`) are exempt. `orphaned` finds pods whose `DaemonSet` is gone.
pub fn undrainable<'p>(
    pods: impl IntoIterator<Item = &'p Pod>,
    budgets: &[impl AsRef<PodDisruptionBudget>],
    is_operator_pod: impl Fn(&Pod) -> bool,
    orphaned: impl Fn(&Pod) -> bool,
) -> Option<String> {
    let mut why: Vec<String> = vec![];
    for pod in pods {
        if is_operator_pod(pod) {
            continue;
        }
        let namespace = pod.namespace().unwrap_or_default();
        match fate(pod, orphaned(pod)) {
            Fate::Unmanaged => why.push(unmanaged(&namespace, &pod.name_any())),
            // Other rules apply to pods that are not Ready, and finished pods can always be evicted.
            Fate::Evicted if ready_condition(pod).is_some() => {
                let selecting = budgets.iter().map(AsRef::as_ref).filter(|budget| selects(budget, pod));
                why.extend(forbidden(&namespace, &selecting.collect::<Vec<_>>()));
            }
            Fate::Evicted | Fate::Stays | Fate::Leaving => {}
        }
    }
    // The smallest one, so that the answer changes as rarely as possible.
    why.into_iter().min()
}

/// Why the budgets that select a pod never allow its eviction; `None` if they may.
fn forbidden(namespace: &str, selecting: &[&PodDisruptionBudget]) -> Option<String> {
    match selecting {
        [] => None,
        [budget] => {
            let status = budget.status.as_ref()?;
            let seen = status.observed_generation.is_none_or(|seen| Some(seen) == budget.metadata.generation);
            let never = seen && status.expected_pods > 0 && status.desired_healthy >= status.expected_pods;
            never.then(|| {
                format!(
                    "the PodDisruptionBudget {namespace}/{} wants all of its {} pods healthy: let it allow one \
                     disruption, or add a pod",
                    budget.name_any(),
                    status.expected_pods
                )
            })
        }
        [first, second, ..] => Some(format!(
            "the PodDisruptionBudgets {namespace}/{} and {} select the same pods, and Kubernetes evicts no pod of two \
             budgets",
            first.name_any(),
            second.name_any()
        )),
    }
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    // Most budgets are in another namespace, and this is the cheaper comparison.
    budget.metadata.namespace == pod.metadata.namespace
        && budget
            .spec
            .as_ref()
            .and_then(|spec| Selector::try_from(spec.selector.clone()?).ok())
            .is_some_and(|selector| selector.matches(pod.labels()))
}

/// Did this budget change in a way that matters to a drain?
pub fn matters(old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> bool {
    let shape = |budget: &PodDisruptionBudget| {
        let status = budget.status.as_ref();
        let seen =
            status.map(|status| (status.expected_pods, status.desired_healthy, status.observed_generation));
        (budget.metadata.generation, seen)
    };
    allowed(old) < allowed(new) || shape(old) != shape(new)
}

/// How many disruptions this budget allows now.
pub fn allowed(budget: &PodDisruptionBudget) -> i32 {
    budget.status.as_ref().map_or(0, |status| status.disruptions_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::json;
    use std::sync::Arc;

    fn budget(namespace: &str, name: &str, allowed: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    fn pod(name: &str, owner: Option<&str>, ready: &str) -> Pod {
        let owners = owner.map(|kind| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "cart", "uid": "o", "controller": true}]));
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": "cart"}, "ownerReferences": owners},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn over(name: &str, app: &str, expected: i32, desired: i32) -> Arc<PodDisruptionBudget> {
        let budget = json!({
            "metadata": {"namespace": "shop", "name": name, "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": expected,
                "desiredHealthy": desired, "expectedPods": expected},
        });
        Arc::new(serde_json::from_value(budget).unwrap())
    }

    #[test]
    fn what_can_never_be_evicted_is_found_and_named() {
        let of = |kind| pod("cart-0", Some(kind), "True");
        let cart = of("ReplicaSet");
        let unseen = || {
            let mut budget = over("all", "cart", 2, 2);
            Arc::make_mut(&mut budget).metadata.generation = Some(3);
            budget
        };
        let everything = || {
            let mut budget = over("everything", "cart", 2, 2);
            Arc::make_mut(&mut budget).spec.as_mut().unwrap().selector = Some(LabelSelector::default());
            budget
        };
        let nothing = || {
            let mut budget = over("nothing", "cart", 2, 2);
            Arc::make_mut(&mut budget).spec.as_mut().unwrap().selector = None;
            budget
        };
        for (says, pod, budgets, word) in [
            ("no budget", &cart, vec![], None),
            ("one that allows a disruption", &cart, vec![over("most", "cart", 2, 1)], None),
            (
                "one that allows none",
                &cart,
                vec![over("all", "cart", 2, 2)],
                Some("shop/all wants all of its 2"),
            ),
            ("of all pods", &cart, vec![everything()], Some("shop/everything")),
            ("of no pods", &cart, vec![nothing()], None),
            ("of other pods", &cart, vec![over("all", "mail", 2, 2)], None),
            ("without pods", &cart, vec![over("all", "cart", 0, 0)], None),
            ("not looked at since it changed", &cart, vec![unseen()], None),
            (
                "two",
                &cart,
                vec![over("a", "cart", 9, 1), over("b", "cart", 9, 1)],
                Some("shop/a and b select"),
            ),
            ("not Ready", &pod("cart-0", Some("ReplicaSet"), "False"), vec![over("all", "cart", 2, 2)], None),
            ("of a DaemonSet", &of("DaemonSet"), vec![over("all", "cart", 2, 2)], None),
            ("unmanaged", &pod("debug", None, "True"), vec![], Some("shop/debug has no controller")),
        ] {
            let why = undrainable([pod], &budgets, |_| false, |_| false);
            assert_eq!(
                why.as_deref().map(|why| word.is_some_and(|word| why.contains(word))),
                word.map(|_| true),
                "{says}: {why:?}"
            );
            assert_eq!(undrainable([pod], &budgets, |_| true, |_| false), None, "{says}, but ours");
        }
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
