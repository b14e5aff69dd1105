//! Evictions: which are due, what is asked of the API server, what it answers, and what holds a drain up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::printable::printable;
use brupop_core::drain::{DrainPlan, LATE, PodKey, overdue};
use brupop_runtime::errors::{describe, status_message};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::core::Status;
use tokio::task::JoinError;

use crate::lease::leads_now;
use crate::run::Reconciler;
use crate::run::Wake;

/// The most evictions that are under way at once, in addition to other requests.
const MAX_EVICTIONS: usize = 32;
/// The reason why a pod is not evicted whose namespace is being deleted.
const LEAVING: &str = "its namespace is being deleted, and the pod with it";
/// Longest refusal that is quoted, in bytes.
const MAX_MESSAGE: usize = 300;

/// The API server's answer to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionAnswer {
    Accepted,
    /// There is no such pod any more.
    Gone,
    /// Its namespace is being deleted, and the pod with it, whenever that comes to it.
    Leaving,
    /// A budget allows no disruption now. Holds what the API server says about it, and the wait that it asks for.
    Blocked(String, Duration),
    /// It is refused for another reason, such as an admission rule.
    Refused(String),
    /// There is no answer that says more.
    Failed(String),
}

impl EvictionAnswer {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::Leaving => "namespace-terminating",
            Self::Blocked(..) => "blocked",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns what a refusal means.
    fn of(status: &Status) -> Self {
        let details = status.details.as_ref();
        let cause = |reason: &str| details?.causes.iter().find(|cause| cause.reason == reason);
        match status.code {
            // 409: the pod of this name has another UID.
            404 | 409 => Self::Gone,
            429 if let Some(budget) = cause("DisruptionBudget") => {
                let seconds = details.map_or(0, |details| details.retry_after_seconds);
                Self::Blocked(quoted(&budget.message), Duration::from_secs(seconds.into()))
            }
            403 if cause("NamespaceTerminating").is_some() => Self::Leaving,
            // The API server, or a webhook that it asks, is overloaded or away; or more than one budget selects the pod.
            429 | 500.. => Self::Failed(quoted(&status_message(status))),
            _ => Self::Refused(quoted(&status_message(status))),
        }
    }
}

/// Returns what an API server says: it may be other people's words, such as those of a webhook.
fn quoted(message: &str) -> String {
    printable(message, MAX_MESSAGE).into_owned()
}

/// Evicts a pod, or deletes it, if it still has this UID. It keeps its termination grace period. Use a client that returns 429
/// instead of trying again.
pub async fn remove(client: Client, pod: &PodKey, by_eviction: bool) -> EvictionAnswer {
    let pods = Api::<Pod>::namespaced(client, &pod.namespace);
    let result = if by_eviction {
        let (eviction, params) = (eviction(pod), PostParams::default());
        let evicted =
            pods.create_subresource::<_, Status>("eviction", &pod.name, &params, &eviction);
        evicted.await.map(drop)
    } else {
        let preconditions = kube::api::Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        pods.delete(&pod.name, &params).await.map(drop)
    };
    match result {
        Ok(()) => EvictionAnswer::Accepted,
        Err(kube::Error::Api(status)) => EvictionAnswer::of(&status),
        Err(error) => EvictionAnswer::Failed(quoted(&describe(&error))),
    }
}

/// This does not use `Api::evict`: kube 5.0 names the field `delete_options`, and the API server drops unknown fields.
fn eviction(pod: &PodKey) -> Eviction {
    let preconditions = Preconditions {
        uid: Some(pod.uid.clone()),
        ..Preconditions::default()
    };
    Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        }),
    }
}

/// Wait after a refusal, unless the API server asks for more. It ends when a budget allows more.
const RETRY: Duration = Duration::from_secs(5);
/// Longest wait after refusals that are no budget's, each of which doubles it.
const RETRY_MAX: Duration = Duration::from_secs(40);
/// A pod that has so much time left to end is named, too: its drain may end by its deadline before that.
const LONG: SignedDuration = SignedDuration::from_mins(2);
/// A refusal that lasts as long is worth a warning. Most end sooner, when another pod of the budget is Ready.
const LASTING: Duration = Duration::from_secs(30);
/// The time that an evicted pod may take to be seen terminating, before it is evicted once more.
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
    /// The reason why it was refused, if it was.
    why: Option<String>,
    /// The time since which it has been refused.
    since: Option<Duration>,
    /// Number of consecutive answers that neither named a budget nor evicted the pod.
    failures: u32,
}

impl Evictions {
    /// The pods of the plan to evict now.
    pub fn due<'p>(&self, plan: &'p DrainPlan, now: Duration) -> Vec<&'p PodKey> {
        let waits = |tried: &Tried| tried.not_before.is_none_or(|not_before| now < not_before);
        let is_due = |pod: &&PodKey| !self.tried.get(*pod).is_some_and(waits);
        plan.evict.iter().filter(is_due).collect()
    }

    /// The earliest instant at which another of these pods is due.
    pub fn next(&self, plan: &DrainPlan, now: Duration) -> Option<Duration> {
        let pods = plan.evict.iter();
        let instants = pods.filter_map(|pod| self.tried.get(pod)?.not_before);
        instants.filter(|not_before| *not_before > now).min()
    }

    pub fn begin(&mut self, pod: PodKey) {
        self.tried.entry(pod).or_default().not_before = None;
    }

    /// A call was answered. Returns whether the answer is news.
    pub fn answered(&mut self, pod: &PodKey, answer: &EvictionAnswer, now: Duration) -> bool {
        let Some(tried) = self.tried.get_mut(pod) else {
            return false;
        };
        let (wait, why) = match answer {
            EvictionAnswer::Accepted | EvictionAnswer::Gone => (ACCEPTED_WAIT, None),
            EvictionAnswer::Leaving => (ACCEPTED_WAIT, Some(LEAVING.to_owned())),
            EvictionAnswer::Blocked(why, asked_for) => (RETRY.max(*asked_for), Some(why.clone())),
            EvictionAnswer::Refused(why) | EvictionAnswer::Failed(why) => (
                RETRY_MAX.min(RETRY * 2_u32.saturating_pow(tried.failures)),
                Some(why.clone()),
            ),
        };
        tried.failures = match answer {
            EvictionAnswer::Refused(_) | EvictionAnswer::Failed(_) => {
                tried.failures.saturating_add(1)
            }
            _ => 0,
        };
        tried.not_before = Some(now + wait);
        tried.since = why.as_ref().map(|_| tried.since.unwrap_or(now));
        let is_news = tried.why != why;
        tried.why = why;
        is_news
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

    /// The first pod of this drain whose eviction has been refused for long, and why.
    pub fn lasting_refusal<'p>(
        &self,
        plan: &'p DrainPlan,
        now: Duration,
    ) -> Option<(&'p PodKey, &str)> {
        let lasts = |since| now.saturating_sub(since) >= LASTING;
        self.refusals(plan)
            .find(|(_, tried, _)| tried.since.is_some_and(lasts))
            .map(|(pod, _, why)| (pod, why))
    }

    fn refusals<'p>(
        &self,
        plan: &'p DrainPlan,
    ) -> impl Iterator<Item = (&'p PodKey, &Tried, &str)> {
        let refused = |pod| {
            let tried = self.tried.get(pod)?;
            Some((pod, tried, tried.why.as_deref()?))
        };
        plan.evict.iter().filter_map(refused)
    }

    /// Returns what holds this drain up at this time, as a sentence. It stays the same as long as the cause does.
    pub fn held_up_by(&self, plan: &DrainPlan, time: Timestamp) -> Option<String> {
        let refused = self
            .refusals(plan)
            // A budget's refusal says more than a server error.
            .min_by_key(|(_, tried, _)| tried.failures > 0)
            .map(|(pod, _, why)| format!("{}/{} is not evicted: {why}", pod.namespace, pod.name));
        let left = || plan.for_people().next();
        let stuck = || {
            let (by, pod) = plan.leaving.first()?;
            let late = time.duration_since(*by) >= LATE;
            late.then(|| overdue(&pod.namespace, &pod.name, *by))
        };
        let slow = || {
            let (by, pod) = plan.leaving.last()?;
            let (namespace, name) = (&pod.namespace, &pod.name);
            let long = by.duration_since(time) >= LONG;
            long.then(|| format!("{namespace}/{name} is terminating, and has until {by} to end"))
        };
        refused.or_else(left).or_else(stuck).or_else(slow)
    }

    /// Forgets pods that are in no plan any more.
    pub fn retain<'p>(&mut self, plans: impl Iterator<Item = &'p DrainPlan>) {
        let removable = |plan: &'p DrainPlan| {
            let stuck = plan.stuck.iter().map(|(pod, _)| pod);
            plan.evict.iter().chain(stuck).chain(&plan.last)
        };
        let pods: BTreeSet<&PodKey> = plans.flat_map(removable).collect();
        self.tried
            .retain(|pod, tried| tried.not_before.is_none() || pods.contains(pod));
    }
}

impl Reconciler {
    /// Evicts the pods of this plan that are due, or deletes them, as far as there is room.
    pub(crate) fn remove_pods(&mut self, plan: &DrainPlan, by_eviction: bool, wake: &mut Wake) {
        let now = self.now();
        let room = MAX_EVICTIONS.saturating_sub(self.evicting.len());
        let evictions = &mut self.leading.drainer.evictions;
        let due = evictions.due(plan, now).into_iter().take(room).cloned();
        for pod in due.collect::<Vec<PodKey>>() {
            evictions.begin(pod.clone());
            let (client, elected) = (self.api.client.clone(), self.elected.clone());
            self.evicting.spawn(async move {
                let answer = if leads_now(&elected).is_none() {
                    // The loop was held up since this was decided.
                    EvictionAnswer::Failed("this process no longer leads".to_owned())
                } else {
                    remove(client, &pod, by_eviction).await
                };
                (pod, answer)
            });
        }
        wake.by(evictions.next(plan, now));
    }

    /// Takes in the answer to a removal.
    pub(crate) fn evicted(&mut self, joined: Result<(PodKey, EvictionAnswer), JoinError>) {
        // These tasks are neither cancelled nor do they panic, so there is no error.
        let Ok((pod, answer)) = joined else { return };
        let now = self.now();
        let labels = [("result", answer.as_str())];
        self.metrics.count("brupop_evictions", &labels);
        if !self.leading.drainer.evictions.answered(&pod, &answer, now) {
            return;
        }
        let tried = self.leading.drainer.evictions.tried.get(&pod);
        let why = tried.and_then(|tried| tried.why.as_deref());
        let (namespace, name, answer) = (pod.namespace, pod.name, answer.as_str());
        tracing::info!(
            namespace,
            name,
            answer,
            why,
            "an eviction got another answer"
        );
    }
}

#[cfg(test)]
mod tests;
