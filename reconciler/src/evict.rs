//! Evictions: which are due, what the API server answered, and what holds a drain up. Pure but for [`evict`] and [`delete`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::core::Status;

use crate::drain::{Plan, PodKey, unmanaged};

/// Wait after a first refusal; doubled with each further one. A budget that allows more starts anew.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait after refusals. It is for what no budget's count tells of: another selector, a pod no longer Ready.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Wait for an evicted pod to be seen leaving, before it is evicted once more.
const ACCEPTED_WAIT: Duration = Duration::from_secs(30);
/// Longest sentence kept of a refusal.
const MAX_MESSAGE: usize = 300;

/// What the API server answered to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod will go.
    Accepted,
    /// There is no such pod any more.
    Gone,
    /// A budget allows no disruption now; its name and state.
    Blocked(String),
    /// Something else.
    Failed(String),
}

impl Answer {
    /// The word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::Blocked(_) => "blocked",
            Self::Failed(_) => "failed",
        }
    }

    /// What a refusal means.
    fn of(status: &Status) -> Self {
        let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
        let cause = |reason: &str| causes.iter().find(|cause| cause.reason == reason);
        match status.code {
            // 409: the pod of this name has another UID.
            404 | 409 => Self::Gone,
            429 => {
                let why = cause("DisruptionBudget").map_or(&status.message, |cause| &cause.message);
                Self::Blocked(bounded(why))
            }
            // Its namespace is being deleted, and the pod with it.
            403 if cause("NamespaceTerminating").is_some() => Self::Accepted,
            // 500, too: more than one budget matches, which the API server does not support.
            _ => Self::Failed(bounded(&status.message)),
        }
    }
}

fn bounded(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

/// Evicts a pod, if it is still the one of this UID. The client should hand over 429 rather than try again.
pub async fn evict(client: Client, pod: &PodKey) -> Answer {
    let (eviction, params) = (eviction(pod), PostParams::default());
    let pods = Api::<Pod>::namespaced(client, &pod.namespace);
    match pods.create_subresource::<_, Status>("eviction", &pod.name, &params, &eviction).await {
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) => Answer::of(&status),
        Err(error) => Answer::Failed(bounded(&error.to_string())),
    }
}

/// Deletes a pod, if it is still the one of this UID; it has its termination grace period all the same.
pub async fn delete(client: Client, pod: &PodKey) -> Answer {
    let preconditions = kube::api::Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    match Api::<Pod>::namespaced(client, &pod.namespace).delete(&pod.name, &params).await {
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) => Answer::of(&status),
        Err(error) => Answer::Failed(bounded(&error.to_string())),
    }
}

/// Not by `Api::evict`: in kube 5.0 it calls the field `delete_options`, and the API server drops what it does not know.
fn eviction(pod: &PodKey) -> Eviction {
    let preconditions = Preconditions { uid: Some(pod.uid.clone()), ..Preconditions::default() };
    Eviction {
        metadata: ObjectMeta { name: Some(pod.name.clone()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions {
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        }),
    }
}

/// The evictions that were tried; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub struct Evictions {
    tried: BTreeMap<PodKey, Tried>,
}

#[derive(Debug)]
struct Tried {
    /// `None` while the call is on its way.
    not_before: Option<Duration>,
    refusals: u32,
    why: Option<String>,
}

impl Evictions {
    /// Pods of the plan that are to be evicted now.
    pub fn due<'p>(&self, plan: &'p Plan, now: Duration) -> Vec<&'p PodKey> {
        let due = |pod: &&PodKey| {
            self.tried
                .get(pod)
                .is_none_or(|tried| tried.not_before.is_some_and(|not_before| now >= not_before))
        };
        plan.evict.iter().filter(due).collect()
    }

    /// The earliest instant at which another of these pods is due.
    pub fn next(&self, plan: &Plan, now: Duration) -> Option<Duration> {
        let instants = plan.evict.iter().filter_map(|pod| self.tried.get(pod)?.not_before);
        instants.filter(|not_before| *not_before > now).min()
    }

    /// A call begins.
    pub fn begin(&mut self, pod: PodKey) {
        let tried = self.tried.entry(pod).or_insert(Tried { not_before: None, refusals: 0, why: None });
        tried.not_before = None;
    }

    /// A call was answered. True if that is news to be told.
    pub fn answered(&mut self, pod: &PodKey, answer: &Answer, now: Duration) -> bool {
        let Some(tried) = self.tried.get_mut(pod) else { return false };
        let why = match answer {
            Answer::Accepted | Answer::Gone => {
                (tried.refusals, tried.not_before) = (0, Some(now + ACCEPTED_WAIT));
                None
            }
            Answer::Blocked(why) | Answer::Failed(why) => {
                let factor = 1_u32.checked_shl(tried.refusals).unwrap_or(u32::MAX);
                let wait = FIRST_WAIT.checked_mul(factor).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
                tried.refusals = (tried.refusals + 1).min(31);
                tried.not_before = Some(now + wait);
                Some(why.clone())
            }
        };
        std::mem::replace(&mut tried.why, why) != tried.why
    }

    /// Budgets of this namespace allow more than before: what was refused there is due. What is being asked right now
    /// may be refused on the old count, and is then asked again soon.
    pub fn retry(&mut self, namespace: &str, now: Duration) {
        for (pod, tried) in &mut self.tried {
            if pod.namespace == namespace && tried.why.is_some() {
                tried.refusals = 0;
                tried.not_before = tried.not_before.map(|not_before| not_before.min(now));
            }
        }
    }

    /// The first pod of this drain whose eviction is refused, and why.
    pub fn refusal<'p>(&self, plan: &'p Plan) -> Option<(&'p PodKey, &str)> {
        plan.evict.iter().find_map(|pod| Some((pod, self.tried.get(pod)?.why.as_deref()?)))
    }

    /// What holds this drain up, in a sentence that stays as long as that does.
    pub fn held_up_by(&self, plan: &Plan) -> Option<String> {
        let refused = self
            .refusal(plan)
            .map(|(pod, why)| format!("{}/{} is not evicted: {why}", pod.namespace, pod.name));
        let left = || plan.unmanaged.first().map(|pod| unmanaged(&pod.namespace, &pod.name));
        refused.or_else(left)
    }

    /// Forgets pods that no drain is about any more.
    pub fn retain<'p>(&mut self, plans: impl Iterator<Item = &'p Plan>) {
        let pods: BTreeSet<&PodKey> =
            plans.flat_map(|plan| plan.evict.iter().chain(&plan.unmanaged).chain(&plan.last)).collect();
        self.tried.retain(|pod, tried| tried.not_before.is_none() || pods.contains(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn pod(name: &str) -> PodKey {
        PodKey { namespace: "shop".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn plan(names: &[&str]) -> Plan {
        Plan { evict: names.iter().map(|name| pod(name)).collect(), ..Plan::default() }
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_pod_is_evicted_by_its_uid_in_the_words_of_the_api() {
        let eviction = serde_json::to_value(eviction(&pod("a"))).unwrap();
        assert_eq!(eviction["deleteOptions"], serde_json::json!({"preconditions": {"uid": "uid-a"}}));
        assert_eq!((&eviction["apiVersion"], &eviction["kind"]), (&"policy/v1".into(), &"Eviction".into()));
    }

    #[test]
    fn each_answer_is_understood() {
        let status = |code, cause: Option<&str>| {
            let causes = cause.map(|reason| StatusCause {
                reason: reason.into(),
                message: "the cause".into(),
                field: String::new(),
            });
            let details = StatusDetails {
                causes: causes.into_iter().collect(),
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                retry_after_seconds: 0,
            };
            Status { code, message: "the message".into(), details: Some(details), ..Status::default() }
        };
        for (code, cause, answer) in [
            (404, None, Answer::Gone),
            (409, None, Answer::Gone),
            (429, Some("DisruptionBudget"), Answer::Blocked("the cause".into())),
            (429, None, Answer::Blocked("the message".into())),
            (403, Some("NamespaceTerminating"), Answer::Accepted),
            (403, None, Answer::Failed("the message".into())),
            (500, None, Answer::Failed("the message".into())),
        ] {
            assert_eq!(Answer::of(&status(code, cause)), answer, "{code} {cause:?}");
        }
    }

    #[test]
    fn a_blocked_pod_is_tried_again_and_holds_up_no_other() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a", "b"]);
        assert_eq!(evictions.due(&plan, ms(0)), [&pod("a"), &pod("b")]);
        evictions.begin(pod("a"));
        assert_eq!(evictions.due(&plan, ms(0)), [&pod("b")]);
        let blocked = Answer::Blocked("budget cart needs 2".into());
        assert!(evictions.answered(&pod("a"), &blocked, ms(0)));
        assert_eq!(evictions.next(&plan, ms(0)), Some(ms(500)));
        assert_eq!(evictions.due(&plan, ms(499)), [&pod("b")]);
        let mut now = ms(500);
        for wait in [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(evictions.due(&plan, now).len(), 2);
            evictions.begin(pod("a"));
            assert!(!evictions.answered(&pod("a"), &blocked, now), "the same again is no news");
            now += ms(wait);
            assert_eq!(evictions.next(&plan, now.saturating_sub(ms(1))), Some(now));
        }
        assert_eq!(evictions.held_up_by(&plan).unwrap(), "shop/a is not evicted: budget cart needs 2");
        evictions.begin(pod("a"));
        assert!(evictions.answered(&pod("a"), &Answer::Accepted, now), "that it goes now is news");
        assert_eq!(evictions.held_up_by(&plan), None);
    }

    #[test]
    fn a_budget_that_allows_more_ends_the_wait_of_what_was_refused() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            evictions.begin(pod(name));
        }
        evictions.answered(&pod("a"), &Answer::Blocked("x".into()), ms(0));
        evictions.answered(&pod("b"), &Answer::Accepted, ms(0));
        evictions.retry("elsewhere", ms(100));
        assert!(evictions.due(&plan, ms(100)).is_empty());
        evictions.retry("shop", ms(100));
        assert_eq!(evictions.due(&plan, ms(100)), [&pod("a")]);
    }

    #[test]
    fn a_refusal_that_crosses_a_budget_that_allows_more_is_not_waited_on_for_long() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a"]);
        let blocked = Answer::Blocked("x".into());
        let mut now = ms(0);
        for _ in 0..8 {
            evictions.begin(pod("a"));
            evictions.answered(&pod("a"), &blocked, now);
            now = evictions.next(&plan, now).unwrap();
        }
        evictions.begin(pod("a"));
        evictions.retry("shop", now);
        assert!(evictions.due(&plan, now).is_empty(), "its call is on its way");
        evictions.answered(&pod("a"), &blocked, now);
        assert_eq!(evictions.next(&plan, now), Some(now + ms(500)));
    }

    #[test]
    fn an_accepted_eviction_is_not_repeated_while_the_pod_leaves() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a"]);
        evictions.begin(pod("a"));
        evictions.answered(&pod("a"), &Answer::Accepted, ms(0));
        assert!(evictions.due(&plan, ms(29_999)).is_empty());
        assert_eq!(evictions.due(&plan, ms(30_000)).len(), 1);
    }

    #[test]
    fn an_unmanaged_pod_is_named() {
        let plan = Plan { unmanaged: vec![pod("debug")], ..Plan::default() };
        assert!(Evictions::default().held_up_by(&plan).unwrap().contains("shop/debug has no controller"));
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let mut evictions = Evictions::default();
        for name in ["a", "b"] {
            evictions.begin(pod(name));
        }
        evictions.answered(&pod("a"), &Answer::Blocked("x".into()), ms(0));
        evictions.retain([].into_iter());
        assert_eq!(evictions.tried.keys().collect::<Vec<_>>(), [&pod("b")], "a call on its way is kept");
    }
}
