//! Evictions: what is asked of the API server, and what it answers.

mod due;

use std::borrow::Cow;
use std::time::Duration;

use brupop_api::printable::printable;
use brupop_runtime::errors::{describe, status_message};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::core::Status;

use brupop_core::drain::PodKey;
pub use due::Evictions;

/// Longest refusal that is quoted, in bytes.
const MAX_MESSAGE: usize = 300;

/// What the API server answered to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod will go.
    Accepted,
    /// There is no such pod any more.
    Gone,
    /// Its namespace is being deleted, and the pod with it, whenever that comes to it.
    Leaving,
    /// A budget allows no disruption now. Holds what the API server says about it, and the wait that it asks for.
    Blocked(String, Duration),
    /// Something else.
    Failed(String),
}

impl Answer {
    /// The word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::Leaving => "namespace-terminating",
            Self::Blocked(..) => "blocked",
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
                let of_budget = cause("DisruptionBudget").map(|cause| Cow::Borrowed(cause.message.as_str()));
                let why = of_budget.unwrap_or_else(|| status_message(status));
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self::Blocked(quoted(&why), Duration::from_secs(seconds.into()))
            }
            403 if cause("NamespaceTerminating").is_some() => Self::Leaving,
            // This includes 500: more than one budget matches, which the API server does not support.
            _ => Self::Failed(quoted(&status_message(status))),
        }
    }
}

/// What an API server says: it may be other people's words, such as those of a webhook.
fn quoted(message: &str) -> String {
    printable(message, MAX_MESSAGE).into_owned()
}

/// Evicts a pod, if it still has this UID. Use a client that returns 429 instead of trying again.
pub async fn evict(client: Client, pod: &PodKey) -> Answer {
    let (eviction, params) = (eviction(pod), PostParams::default());
    let pods = Api::<Pod>::namespaced(client, &pod.namespace);
    match pods.create_subresource::<_, Status>("eviction", &pod.name, &params, &eviction).await {
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) => Answer::of(&status),
        Err(error) => Answer::Failed(quoted(&describe(&error))),
    }
}

/// Deletes a pod, if it still has this UID. It keeps its termination grace period.
pub async fn delete(client: Client, pod: &PodKey) -> Answer {
    let preconditions = kube::api::Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    match Api::<Pod>::namespaced(client, &pod.namespace).delete(&pod.name, &params).await {
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) => Answer::of(&status),
        Err(error) => Answer::Failed(quoted(&describe(&error))),
    }
}

/// This does not use `Api::evict`: kube 5.0 names the field `delete_options`, and the API server drops unknown fields.
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn pod(name: &str) -> PodKey {
        PodKey { namespace: "shop".into(), name: name.into(), uid: format!("uid-{name}") }
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
                retry_after_seconds: 10,
            };
            Status { code, message: "the message".into(), details: Some(details), ..Status::default() }
        };
        for (code, cause, answer) in [
            (404, None, Answer::Gone),
            (409, None, Answer::Gone),
            (429, Some("DisruptionBudget"), Answer::Blocked("the cause".into(), Duration::from_secs(10))),
            (429, None, Answer::Blocked("the message".into(), Duration::from_secs(10))),
            (403, Some("NamespaceTerminating"), Answer::Leaving),
            (403, None, Answer::Failed("the message".into())),
            (500, None, Answer::Failed("the message".into())),
        ] {
            assert_eq!(Answer::of(&status(code, cause)), answer, "{code} {cause:?}");
        }
        let hostile = Status { code: 500, message: "\u{1b}[2J\n".repeat(200), ..Status::default() };
        let Answer::Failed(why) = Answer::of(&hostile) else { panic!("it failed") };
        assert!(why.starts_with("\\u{1b}[2J\\n\\u{1b}") && why.len() <= MAX_MESSAGE, "{why}");
    }
}
