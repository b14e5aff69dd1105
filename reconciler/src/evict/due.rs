//! Which evictions are due, how many at a time, and what holds a drain up. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use brupop_runtime::waits::doubled;
use jiff::{SignedDuration, Timestamp};

use super::Answer;
use brupop_core::drain::{DrainPlan, PodKey};

/// Wait after the first refusal; doubled with each further one. It starts again when a budget allows more.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait after refusals. It covers changes that no budget's count shows: another selector, a pod that is no
/// longer Ready.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A pod that is still there so long after its grace period is reported.
const LATE: SignedDuration = SignedDuration::from_secs(10);
/// A pod that has so much time left to end is named, too: its drain may end by its deadline before that.
const LONG: SignedDuration = SignedDuration::from_mins(2);
/// How long an evicted pod may take to be seen terminating, before it is evicted once more.
const ACCEPTED_WAIT: Duration = Duration::from_secs(30);
/// At most so many evictions begin within [`RATE_WINDOW`], all drains together: each makes work for the API server, the
/// scheduler and the pod's controller.
const MAX_RATE: usize = 20;
/// The same for pods whose eviction was refused before. It is lower, so that blocked pods do not hold up others.
const MAX_RATE_AGAIN: usize = 10;
/// The time for which [`MAX_RATE`] counts evictions.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The evictions that were tried; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub struct Evictions {
    tried: BTreeMap<PodKey, Tried>,
    /// When the last evictions began.
    begun: VecDeque<Duration>,
}

#[derive(Debug)]
struct Tried {
    /// `None` while the call is on its way.
    not_before: Option<Duration>,
    refusals: u32,
    why: Option<String>,
}

impl Tried {
    fn refused(&mut self, why: &str, asked_for: Duration, now: Duration) -> String {
        let wait = doubled(FIRST_WAIT, self.refusals, LONGEST_WAIT);
        self.refusals = (self.refusals + 1).min(31);
        self.not_before = Some(now + wait.max(asked_for));
        why.to_owned()
    }
}

impl Evictions {
    /// The pods of the plan to evict now, as far as the rate of all evictions allows.
    pub fn due<'p>(&self, plan: &'p DrainPlan, now: Duration) -> Vec<&'p PodKey> {
        let mut lately = self.begun.iter().filter(|begun| **begun + RATE_WINDOW > now).count();
        let has_room = |pod: &&PodKey| {
            let most = if self.is_refused(pod) { MAX_RATE_AGAIN } else { MAX_RATE };
            let has_room = lately < most;
            lately += usize::from(has_room);
            has_room
        };
        plan.evict.iter().filter(|pod| self.is_due(pod, now)).filter(has_room).collect()
    }

    fn is_refused(&self, pod: &PodKey) -> bool {
        self.tried.get(pod).is_some_and(|tried| tried.why.is_some())
    }

    fn is_due(&self, pod: &PodKey, now: Duration) -> bool {
        let waits = |tried: &Tried| tried.not_before.is_none_or(|not_before| now < not_before);
        !self.tried.get(pod).is_some_and(waits)
    }

    /// The earliest instant at which another of these pods is due.
    pub fn next(&self, plan: &DrainPlan, now: Duration) -> Option<Duration> {
        let instants = plan.evict.iter().filter_map(|pod| self.tried.get(pod)?.not_before);
        let held_back = plan.evict.iter().any(|pod| self.is_due(pod, now));
        let lately = self.begun.iter().map(|begun| *begun + RATE_WINDOW).find(|room| *room > now);
        let room = lately.filter(|_| held_back);
        instants.chain(room).filter(|not_before| *not_before > now).min()
    }

    /// A call begins.
    pub fn begin(&mut self, pod: PodKey, now: Duration) {
        self.begun.push_back(now);
        if self.begun.len() > MAX_RATE {
            self.begun.pop_front();
        }
        let tried = self.tried.entry(pod).or_insert(Tried { not_before: None, refusals: 0, why: None });
        tried.not_before = None;
    }

    /// A call was answered. Returns whether the answer is news.
    pub fn answered(&mut self, pod: &PodKey, answer: &Answer, now: Duration) -> bool {
        let Some(tried) = self.tried.get_mut(pod) else { return false };
        let why = match answer {
            Answer::Accepted | Answer::Gone => {
                (tried.refusals, tried.not_before) = (0, Some(now + ACCEPTED_WAIT));
                None
            }
            Answer::Leaving => {
                let why = "its namespace is being deleted, and goes when all in it has gone";
                Some(tried.refused(why, ACCEPTED_WAIT, now))
            }
            Answer::Blocked(why, asked_for) => Some(tried.refused(why, *asked_for, now)),
            Answer::Failed(why) => Some(tried.refused(why, Duration::ZERO, now)),
        };
        std::mem::replace(&mut tried.why, why) != tried.why
    }

    /// Budgets of this namespace allow more than before, so evictions that were refused there are due now. A call under
    /// way may still be refused on the old count; it is then made again soon.
    pub fn retry(&mut self, namespace: &str, now: Duration) {
        for (pod, tried) in &mut self.tried {
            if pod.namespace == namespace && tried.why.is_some() {
                tried.refusals = 0;
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
                    "{namespace}/{name} should be gone since {by}: see its finalizers, and its node's kubelet"
                )
            })
        };
        let slow = || {
            let (by, PodKey { namespace, name, .. }) = plan.leaving.last()?;
            let long = by.duration_since(time) >= LONG;
            long.then(|| format!("{namespace}/{name} is on its way out, and has until {by} for that"))
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
        evictions.begin(pod("a"), ms(0));
        assert_eq!(evictions.due(&plan, ms(0)), [&pod("b")]);
        assert!(evictions.answered(&pod("a"), &blocked(), ms(0)));
        assert_eq!(evictions.next(&plan, ms(0)), Some(ms(500)));
        assert_eq!(evictions.due(&plan, ms(499)), [&pod("b")]);
        let mut now = ms(500);
        for wait in [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(evictions.due(&plan, now).len(), 2);
            evictions.begin(pod("a"), ms(0));
            assert!(!evictions.answered(&pod("a"), &blocked(), now), "the same again is no news");
            now += ms(wait);
            assert_eq!(evictions.next(&plan, now.saturating_sub(ms(1))), Some(now));
        }
        assert_eq!(
            evictions.held_up_by(&plan, Timestamp::MIN).unwrap(),
            "shop/a is not evicted: budget cart needs 2"
        );
        evictions.begin(pod("a"), ms(0));
        assert!(evictions.answered(&pod("a"), &Answer::Accepted, now), "that it goes now is news");
        assert_eq!(evictions.held_up_by(&plan, Timestamp::MIN), None);
    }

    #[test]
    fn a_budget_that_allows_more_ends_the_wait_of_what_was_refused() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            evictions.begin(pod(name), ms(0));
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
            evictions.begin(pod("a"), ms(0));
            evictions.answered(&pod("a"), &blocked(), now);
            now = evictions.next(&plan, now).unwrap();
        }
        evictions.begin(pod("a"), ms(0));
        evictions.retry("shop", now);
        assert!(evictions.due(&plan, now).is_empty(), "its call is on its way");
        evictions.answered(&pod("a"), &blocked(), now);
        assert_eq!(evictions.next(&plan, now), Some(now + ms(500)));
    }

    #[test]
    fn an_accepted_eviction_is_not_repeated_while_the_pod_leaves() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a"]);
        evictions.begin(pod("a"), ms(0));
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
            "shop/cart is on its way out, and has until 2026-11-21T04:00:00Z for that"
        );
        assert!(said(10).unwrap().starts_with("shop/cart should be gone since 2026-11-21T04:00:00Z"));
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
            evictions.begin(pod(name), ms(0));
        }
        evictions.answered(&pod("a"), &blocked(), ms(0));
        evictions.retain([].into_iter());
        assert_eq!(evictions.tried.keys().collect::<Vec<_>>(), [&pod("b")], "a call on its way is kept");
    }

    #[test]
    fn the_wait_that_the_api_server_asks_for_is_kept() {
        let mut evictions = Evictions::default();
        let plan = plan(&["a"]);
        evictions.begin(pod("a"), ms(0));
        let wait = Duration::from_secs(10);
        evictions.answered(&pod("a"), &Answer::Blocked("the budget is being counted".into(), wait), ms(0));
        assert_eq!(evictions.next(&plan, ms(0)), Some(wait));
    }

    #[test]
    fn so_many_begin_within_a_second_and_the_rest_in_the_next() {
        let mut evictions = Evictions::default();
        let names: Vec<String> = (0..50).map(|number| format!("pod-{number:02}")).collect();
        let plan = plan(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut begun = Vec::new();
        for now in [0, 400, 1000, 1400, 2000].map(ms) {
            let due: Vec<PodKey> = evictions.due(&plan, now).into_iter().cloned().collect();
            begun.push(due.len());
            for pod in due {
                evictions.begin(pod, now);
            }
            if begun.len() < 5 {
                assert!(evictions.next(&plan, now).is_some_and(|next| next <= now + RATE_WINDOW), "{now:?}");
            }
        }
        assert_eq!(begun, [20, 0, 20, 0, 10]);
    }

    #[test]
    fn what_is_blocked_leaves_room_for_what_was_not_tried() {
        let mut evictions = Evictions::default();
        let names: Vec<String> = (0..40).map(|number| format!("a-{number:02}")).collect();
        let blocked_ones = plan(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for pod in &blocked_ones.evict {
            evictions.begin(pod.clone(), ms(0));
            evictions.answered(pod, &blocked(), ms(0));
        }
        let again: Vec<PodKey> = evictions.due(&blocked_ones, ms(5000)).into_iter().cloned().collect();
        assert_eq!(again.len(), 10);
        for pod in again {
            evictions.begin(pod, ms(5000));
        }
        assert!(evictions.due(&blocked_ones, ms(5000)).is_empty());
        assert_eq!(evictions.next(&blocked_ones, ms(5000)), Some(ms(5000) + RATE_WINDOW));
        assert_eq!(evictions.due(&plan(&["z"]), ms(5000)), [&pod("z")]);
    }
}
