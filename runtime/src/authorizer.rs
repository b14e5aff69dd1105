//! Who calls: the API server judges bearer tokens (`TokenReview`, `SubjectAccessReview`), and its answers are remembered for a
//! short time.

mod review_cache;

use crate::errors::describe;
use crate::{FailureLog, Peer};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use review_cache::{Digest, Judgement, Lookup, ReviewCache};
use ring::digest::{SHA256, digest};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Longest time for both reviews. An API server that asks the webhook waits 3 seconds for its answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// What a caller must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A token that the API server knows.
    Token,
    /// A token, and the right to `get` this `nonResourceURL`.
    Get(&'static str),
}

/// Callers that were not let in, by why. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Family<[(&'static str, &'static str); 1], Counter>);

impl Refusals {
    /// All reasons there are.
    const REASONS: [&str; 4] = ["unauthenticated", "forbidden", "unavailable", "limited"];

    /// Refusals by reason, zeroes included, for a registry.
    pub fn family(&self) -> impl prometheus_client::registry::Metric + use<> {
        for reason in Self::REASONS {
            drop(self.0.get_or_create(&[("reason", reason)]));
        }
        self.0.clone()
    }

    fn count(&self, reason: &'static str) {
        self.0.get_or_create(&[("reason", reason)]).inc();
    }
}

/// Decides by their tokens which callers are let in.
pub struct Authorizer {
    client: Client,
    requirement: Requirement,
    /// Counts those who are refused.
    pub refusals: Refusals,
    cache: Mutex<ReviewCache>,
    /// Something new is in the cache.
    answered: Notify,
    failures: Mutex<FailureLog>,
}

impl Authorizer {
    /// Lets callers in that have this. The API server is asked about a limited number of unknown tokens. The client should
    /// not retry by itself: there is no time for that.
    pub fn new(client: Client, requirement: Requirement, refusals: Refusals) -> Arc<Self> {
        let cache = Mutex::new(ReviewCache::default());
        let (answered, failures) = (Notify::new(), Mutex::default());
        Arc::new(Self {
            client,
            requirement,
            refusals,
            cache,
            answered,
            failures,
        })
    }

    /// Lets a request in by its headers.
    ///
    /// # Errors
    /// The status to answer with: 401 without a valid token, 403 without the right, 503 if the API server does not tell, 429
    /// if it is not asked, because there are too many unknown tokens.
    pub async fn admit(self: &Arc<Self>, peer: Peer, headers: HeaderMap) -> Result<(), StatusCode> {
        let token = bearer(&headers).map(str::to_owned);
        // Nobody waits with all of them in memory.
        drop(headers);
        let outcome = match token {
            Some(token) => self.outcome(peer, &token).await,
            None => Judgement::Unauthenticated,
        };
        let (reason, status) = match outcome {
            Judgement::Allowed => return Ok(()),
            Judgement::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Judgement::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            Judgement::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
            Judgement::Limited => ("limited", StatusCode::TOO_MANY_REQUESTS),
        };
        self.refusals.count(reason);
        Err(status)
    }

    /// What the API server says of a token, or has said a moment ago. Callers with the same token wait for the same answer.
    async fn outcome(self: &Arc<Self>, peer: Peer, token: &str) -> Judgement {
        let mut key = Digest::default();
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        loop {
            let answered = self.answered.notified();
            let found = self.cache().look_up(key, peer, Instant::now().into_std());
            match found {
                Lookup::Known(outcome) => return outcome,
                Lookup::Ask => self.ask(key, token.to_owned()),
                Lookup::Pending => {}
            }
            answered.await;
        }
    }

    /// Asks in a separate task: if a caller goes away, the others still get the answer.
    fn ask(self: &Arc<Self>, key: Digest, token: String) {
        let authorizer = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = match timeout(REVIEW_TIMEOUT, authorizer.review(token)).await {
                Ok(Ok(outcome)) => authorizer.on_answer(outcome),
                Ok(Err(error)) => authorizer.on_failure(&error),
                Err(elapsed) => authorizer.on_failure(&elapsed),
            };
            authorizer
                .cache()
                .store(&key, outcome, Instant::now().into_std());
            authorizer.answered.notify_waiters();
        });
    }

    async fn review(&self, token: String) -> Result<Judgement, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let answer = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = answer.status.unwrap_or_default();
        let user = match status.user {
            Some(user) if status.authenticated == Some(true) => user,
            _ => return Ok(Judgement::Unauthenticated),
        };
        let Requirement::Get(path) = self.requirement else {
            return Ok(Judgement::Allowed);
        };
        let review = access_review(user, path);
        let answer = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let allowed = answer
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed {
            Judgement::Allowed
        } else {
            Judgement::Forbidden
        })
    }

    /// A token that nobody knows says nothing of the second review, which may be the one that fails.
    fn on_answer(&self, outcome: Judgement) -> Judgement {
        if outcome != Judgement::Unauthenticated && self.failures().resolved() {
            tracing::info!("the API server answers again whose token a caller has");
        }
        outcome
    }

    fn on_failure(&self, error: &(dyn Error + 'static)) -> Judgement {
        if self.failures().is_new(&describe(error)) {
            tracing::warn!(
                error,
                "the API server could not be asked whose token a caller has"
            );
        }
        Judgement::Unavailable
    }

    fn failures(&self) -> MutexGuard<'_, FailureLog> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, ReviewCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn access_review(user: UserInfo, path: &str) -> SubjectAccessReview {
    let asks = NonResourceAttributes {
        path: Some(path.to_owned()),
        verb: Some("get".to_owned()),
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            non_resource_attributes: Some(asks),
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}

/// The token of an `Authorization: Bearer` header, if there is exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
