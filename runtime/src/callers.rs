//! Who calls: the API server judges bearer tokens (`TokenReview`, `SubjectAccessReview`), and its answers are remembered for a
//! short time.

mod memory;

use crate::Peer;
use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use memory::{Digest, Look, Memory, Standing};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use ring::digest::{SHA256, digest};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Longest time for both reviews. An API server that asks the webhook waits 3 seconds for its answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// What a caller must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// A token that the API server knows.
    Token,
    /// A token, and the right to `get` this `nonResourceURL`.
    Get(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// Callers that were not let in, by why. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Family<ByReason, Counter>);

impl Refusals {
    /// All reasons there are.
    const REASONS: [&str; 4] = ["unauthenticated", "forbidden", "unavailable", "limited"];

    /// Refusals by reason, zeroes included, for a registry.
    pub fn family(&self) -> impl prometheus_client::registry::Metric + use<> {
        for reason in Self::REASONS {
            drop(self.0.get_or_create(&ByReason { reason }));
        }
        self.0.clone()
    }

    fn count(&self, reason: &'static str) {
        self.0.get_or_create(&ByReason { reason }).inc();
    }
}

/// Knows callers by their tokens.
pub struct Callers {
    client: Client,
    right: Right,
    /// Counts those who are refused.
    pub refusals: Refusals,
    memory: Mutex<Memory>,
    /// Something new is in the memory.
    answered: Notify,
}

impl Callers {
    /// Lets callers in that have this right. The client should not retry by itself: there is no time for that.
    pub fn new(client: Client, right: Right, refusals: Refusals) -> Arc<Self> {
        let (memory, answered) = (Mutex::default(), Notify::new());
        Arc::new(Self { client, right, refusals, memory, answered })
    }

    /// Lets a request in by its headers.
    ///
    /// # Errors
    /// The status to answer with: 401 without a valid token, 403 without the right, 503 if the API server does not tell, 429
    /// if it is not asked, because there are too many unknown tokens.
    pub async fn admit(self: &Arc<Self>, peer: Peer, headers: &HeaderMap) -> Result<(), StatusCode> {
        let standing = match bearer(headers) {
            Some(token) => self.standing(peer, token).await,
            None => Standing::Unauthenticated,
        };
        let (reason, status) = match standing {
            Standing::Allowed => return Ok(()),
            Standing::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Standing::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            Standing::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
            Standing::Limited => ("limited", StatusCode::TOO_MANY_REQUESTS),
        };
        self.refusals.count(reason);
        Err(status)
    }

    /// What the API server says of a token, or has said a moment ago. Callers with the same token wait for the same answer.
    async fn standing(self: &Arc<Self>, peer: Peer, token: &str) -> Standing {
        let mut key = Digest::default();
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        loop {
            let answered = self.answered.notified();
            let look = self.memory().look(key, peer, Instant::now().into_std());
            match look {
                Look::Holds(standing) => return standing,
                Look::Ask => self.ask(key, token.to_owned()),
                Look::Asked => {}
            }
            answered.await;
        }
    }

    /// Asks in a separate task: if a caller goes away, the others still get the answer.
    fn ask(self: &Arc<Self>, key: Digest, token: String) {
        let callers = Arc::clone(self);
        tokio::spawn(async move {
            let standing = match timeout(REVIEW_TIMEOUT, callers.review(token)).await {
                Ok(Ok(standing)) => standing,
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the API server does not tell who a caller is");
                    Standing::Unavailable
                }
                Err(_) => {
                    tracing::warn!("the API server takes too long to tell who a caller is");
                    Standing::Unavailable
                }
            };
            callers.memory().answered(&key, standing, Instant::now().into_std());
            callers.answered.notify_waiters();
        });
    }

    async fn review(&self, token: String) -> Result<Standing, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(token), audiences: None },
            ..TokenReview::default()
        };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        let user = match status.user {
            Some(user) if status.authenticated == Some(true) => user,
            _ => return Ok(Standing::Unauthenticated),
        };
        let Right::Get(path) = self.right else { return Ok(Standing::Allowed) };
        let review = access_review(user, path);
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Standing::Allowed } else { Standing::Forbidden })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn access_review(user: UserInfo, path: &str) -> SubjectAccessReview {
    let asks = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
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
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
