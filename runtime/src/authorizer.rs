//! Authorizes callers: the API server judges bearer tokens (`TokenReview`, `SubjectAccessReview`), and its answers are remembered for a
//! short time.

mod cache;

use crate::errors::describe;
use crate::{FailureLog, locked};
use cache::{Cache, Judgement, TRY_AGAIN};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest time for both reviews and the wait for them. An API server that asks the webhook waits 3 seconds for its answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);
/// Most tokens that are reviewed at a time and were not let in before.
const REVIEWS_MAX: usize = 8;

/// A requirement on a caller.
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
    /// Refusals by reason, zeroes included, for a registry.
    pub fn family(&self) -> impl prometheus_client::registry::Metric + use<> {
        for reason in ["unauthenticated", "forbidden", "unavailable"] {
            drop(self.0.get_or_create(&[("reason", reason)]));
        }
        self.0.clone()
    }
}

/// Decides by their tokens which callers are let in.
pub struct Authorizer {
    client: Client,
    requirement: Requirement,
    /// Counts those who are refused.
    pub refusals: Refusals,
    cache: Mutex<Cache>,
    reviews: Semaphore,
    failures: Mutex<FailureLog>,
}

impl Authorizer {
    /// Lets callers in that have this. The client should not retry by itself: there is no time for that.
    pub fn new(client: Client, requirement: Requirement, refusals: Refusals) -> Arc<Self> {
        Arc::new(Self {
            client,
            requirement,
            refusals,
            cache: Mutex::default(),
            reviews: Semaphore::new(REVIEWS_MAX),
            failures: Mutex::default(),
        })
    }

    /// Lets a request in by its headers.
    ///
    /// # Errors
    /// The status to answer with: 401 without a valid token, 403 without the right, 503 if the API server does not tell in time.
    pub async fn admit(&self, headers: HeaderMap) -> Result<(), StatusCode> {
        let token = bearer(&headers).map(str::to_owned);
        // Nobody waits with all of them in memory.
        drop(headers);
        let judgement = match token {
            Some(token) => self.judge(token).await,
            None => Err(StatusCode::UNAUTHORIZED),
        };
        judgement.inspect_err(|status| {
            let reason = match *status {
                StatusCode::UNAUTHORIZED => "unauthenticated",
                StatusCode::FORBIDDEN => "forbidden",
                _ => "unavailable",
            };
            self.refusals.0.get_or_create(&[("reason", reason)]).inc();
        })
    }

    /// Returns what the API server says of a token, or has said a moment ago. Callers with the same token wait for one answer:
    /// the next one asks if the caller that asked goes away.
    async fn judge(&self, token: String) -> Judgement {
        let (answer, was_allowed) = locked(&self.cache).entry(token.as_bytes());
        let review = async {
            // Made-up tokens keep nobody waiting who was let in before.
            let _turn = if was_allowed {
                None
            } else {
                self.reviews.acquire().await.ok()
            };
            Box::pin(self.review(token)).await
        };
        let judged = answer.get_or_init(|| async {
            match timeout(REVIEW_TIMEOUT, review).await {
                Ok(Ok(judgement)) => self.on_answer(judgement),
                Ok(Err(error)) => self.on_failure(&describe(&error)),
                Err(elapsed) => self.on_failure(&describe(&elapsed)),
            }
        });
        *judged.await
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
            _ => return Ok(Err(StatusCode::UNAUTHORIZED)),
        };
        let Requirement::Get(path) = self.requirement else {
            return Ok(Ok(()));
        };
        let review = access_review(user, path);
        let answer = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let allowed = answer
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(allowed.then_some(()).ok_or(StatusCode::FORBIDDEN))
    }

    /// A token that nobody knows says nothing of the second review, which may be the one that fails.
    fn on_answer(&self, outcome: Judgement) -> Judgement {
        if outcome != Err(StatusCode::UNAUTHORIZED) && locked(&self.failures).resolved() {
            tracing::info!("callers' tokens can be checked again");
        }
        outcome
    }

    fn on_failure(&self, error: &str) -> Judgement {
        if locked(&self.failures).is_new(error) {
            tracing::warn!(
                error,
                "the API server could not be asked about a caller's token"
            );
        }
        TRY_AGAIN
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
