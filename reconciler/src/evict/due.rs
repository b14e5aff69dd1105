//! Which evictions are due, and what holds a drain up. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Answer;
use brupop_core::drain::{DrainPlan, PodKey};

/// Wait after a refusal, unless the API server asks for more. It ends when a budget allows more.
const RETRY: Duration = Duration::from_secs(5);
/// A pod that is still there so long after its grace period is reported.
const LATE: SignedDuration = SignedDuration::from_secs(10);
/// A pod that has so much time left to end is named, too: its drain may end by its deadline before that.
const LONG: SignedDuration = SignedDuration::from_mins(2);
/// How long an evicted pod may take to be seen terminating, before it is evicted once more.
const ACCEPTED_WAIT: Duration = Duration::from_secs(30);

/// The evictions that were tried; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub struct Evictions {
    tried: BTreeMap<PodKey, Tried>,
}

#[derive(Debug, Default)]
struct Tried {
    /// `None` while the call is on its way.
    not_before: Option<Duration>,
    /// Why it was refused, if it was.
    why: Option<String>,
}

impl Evictions {
    /// The pods of the plan to evict now.
    pub fn due<'p>(&self, plan: &'p DrainPlan, now: Duration) -> Vec<&'p PodKey> {
        plan.evict.iter().filter(|pod| self.is_due(pod, now)).collect()
    }

    fn is_due(&self, pod: &PodKey, now: Duration) -> bool {
        let waits = |tried: &Tried| tried.not_before.is_none_or(|not_before| now < not_before);
        !self.tried.get(pod).is_some_and(waits)
    }

    /// The earliest instant at which another of these pods is due.
    pub fn next(&self, plan: &DrainPlan, now: Duration) -> Option<Duration> {
        let instants = plan.evict.iter().filter_map(|pod| self.tried.get(pod)?.not_before);
        instants.filter(|not_before| *not_before > now).min()
    }

    /// A call begins.
    pub fn begin(&mut self, pod: PodKey) {
        self.tried.entry(pod).or_default().not_before = None;
    }

    /// A call was answered. Returns whether the answer is news.
    pub fn answered(&mut self, pod: &PodKey, answer: &Answer, now: Duration) -> bool {
        let Some(tried) = self.tried.get_mut(pod) else { return false };
        let (wait, why) = match answer {
            Answer::Accepted | Answer::Gone => (ACCEPTED_WAIT, None),
            Answer::Leaving => {
                let why = "its namespace is being deleted, and the pod with it";
                (ACCEPTED_WAIT, Some(why.to_owned()))
            }
            Answer::Blocked(why, asked_for) => (RETRY.max(*asked_for), Some(why.clone())),
            Answer::Failed(why) => (RETRY, Some(why.clone())),
        };
        tried.not_before = Some(now + wait);
        std::mem::replace(&mut tried.why, why) != tried.why
    }

    /// Budgets of this namespace allow more than before, so evictions that were refused there are due now. A call under
    /// way may still be refused on the old count; it is then made again after the usual wait.
    pub fn retry(&mut self, namespace: &str, now: Duration) {
        for (pod, tried) in &mut self.tried {
            if pod.namespace == namespace && tried.why.is_some() {
                tried.not_before = tried.not_before.map(|not_before| not_before.min(now));
            }
        }
    }

    /// The first pod of this drain whose eviction is refused, and why.
    pub fn refusal<'p>(&self, plan: &'p DrainPlan) -> Option<(&'p PodKey, &str)> {
        plan.evict.iter().find_map(|pod| Some((pod, self.tried.get(pod)?.why.as_deref()?)))
    }

    /// What holds this drain up at this time, as a sentence. It stays the same as long as the cause does.
    pub fn held_up_by(&self, plan: &DrainPlan, time: Timestamp) -> Option<String> {
        let refused = self
            .refusal(plan)
            .map(|(pod, why)| format!("{}/{} is not evicted: {why}", pod.namespace, pod.name));
        let left = || plan.for_people().next();
        let stuck = || {
            let (by, PodKey { namespace, name, .. }) = plan.leaving.first()?;
            let late = time.duration_since(*by) >= LATE;
            late.then(|| {
                format!(
                    "{namespace}/{name} should have ended by {by}: see its finalizers, and its node's kubelet"
                )
            })
        };
        let slow = || {
            let (by, PodKey { namespace, name, .. }) = plan.leaving.last()?;
            let long = by.duration_since(time) >= LONG;
            long.then(|| format!("{namespace}/{name} is terminating, and has until {by} to end"))
        };
        refused.or_else(left).or_else(stuck).or_else(slow)
    }

    /// Forgets pods that are in no plan any more.
    pub fn retain<'p>(&mut self, plans: impl Iterator<Item = &'p DrainPlan>) {
        let removable = |plan: &'p DrainPlan| {
            let unreadable = plan.unreadable.iter().map(|(pod, _)| pod);
            plan.evict.iter().chain(&plan.unmanaged).chain(unreadable).chain(&plan.last)
        };
        let pods: BTreeSet<&PodKey> = plans.flat_map(removable).collect();
        self.tried.retain(|pod, tried| tried.not_before.is_none() || pods.contains(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodKey {
        PodKey { namespace: "shop".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn plan(names: &[&str]) -> DrainPlan {
        DrainPlan { evict: names.iter().map(|name| pod(name)).collect(), ..DrainPlan::default() }
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn blocked() -> Answer {
        Answer::Blocked("budget cart needs 2".into(), Duration::ZERO)
    }

    #[test]
    fn a_blocked_pod_is_tried_again_and_holds_up_no_other() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a", "b"]);
        assert_eq!(evictions.due(&plan, ms(0)), [&pod("a"), &pod("b")]);
        evictions.begin(pod("a"));
        assert_eq!(evictions.due(&plan, ms(0)), [&pod("b")]);
        assert!(evictions.answered(&pod("a"), &blocked(), ms(0)));
        assert_eq!(evictions.next(&plan, ms(0)), Some(RETRY));
        assert_eq!(evictions.due(&plan, ms(4999)), [&pod("b")]);
        let now = RETRY;
        assert_eq!(evictions.due(&plan, now).len(), 2);
        evictions.begin(pod("a"));
        assert!(!evictions.answered(&pod("a"), &blocked(), now), "the same again is no news");
        assert_eq!(evictions.next(&plan, now), Some(now + RETRY));
        assert_eq!(
            evictions.held_up_by(&plan, Timestamp::MIN).unwrap(),
            "shop/a is not evicted: budget cart needs 2"
        );
        evictions.begin(pod("a"));
        assert!(evictions.answered(&pod("a"), &Answer::Accepted, now), "that it goes now is news");
        assert_eq!(evictions.held_up_by(&plan, Timestamp::MIN), None);
    }

    #[test]
    fn a_budget_that_allows_more_ends_the_wait_of_what_was_refused() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            evictions.begin(pod(name));
        }
        evictions.answered(&pod("a"), &blocked(), ms(0));
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
        let mut now = ms(0);
        for _ in 0..8 {
            evictions.begin(pod("a"));
            evictions.answered(&pod("a"), &blocked(), now);
            now = evictions.next(&plan, now).unwrap();
        }
        evictions.begin(pod("a"));
        evictions.retry("shop", now);
        assert!(evictions.due(&plan, now).is_empty(), "its call is on its way");
        evictions.answered(&pod("a"), &blocked(), now);
        assert_eq!(evictions.next(&plan, now), Some(now + RETRY));
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
    fn a_pod_that_does_not_go_is_named_when_it_should_be_gone() {
        let by: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        let plan = DrainPlan { leaving: vec![(by, pod("cart"))], ..DrainPlan::default() };
        let said = |seconds| Evictions::default().held_up_by(&plan, by + SignedDuration::from_secs(seconds));
        assert_eq!((said(9), said(-119)), (None, None));
        assert_eq!(
            said(-120).unwrap(),
            "shop/cart is terminating, and has until 2026-11-21T04:00:00Z to end"
        );
        assert!(said(10).unwrap().starts_with("shop/cart should have ended by 2026-11-21T04:00:00Z"));
        assert_eq!(said(10), said(1000), "the same words as long as it stands");
    }

    #[test]
    fn an_unmanaged_pod_is_named() {
        let plan = DrainPlan { unmanaged: vec![pod("debug")], ..DrainPlan::default() };
        assert!(
            Evictions::default()
                .held_up_by(&plan, Timestamp::MIN)
                .unwrap()
                .contains("shop/debug has no controller")
        );
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let mut evictions = Evictions::default();
        for name in ["a", "b"] {
            evictions.begin(pod(name));
        }
        evictions.answered(&pod("a"), &blocked(), ms(0));
        evictions.retain([].into_iter());
        assert_eq!(evictions.tried.keys().collect::<Vec<_>>(), [&pod("b")], "a call on its way is kept");
    }

    #[test]
    fn the_wait_that_the_api_server_asks_for_is_kept() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a"]);
        evictions.begin(pod("a"));
        let wait = Duration::from_secs(10);
        evictions.answered(&pod("a"), &Answer::Blocked("the budget is being counted".into(), wait), ms(0));
        assert_eq!(evictions.next(&plan, ms(0)), Some(wait));
    }
}
