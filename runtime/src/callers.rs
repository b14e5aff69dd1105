//! Who calls: the API server judges bearer tokens (`TokenReview`, `SubjectAccessReview`), and its answers are remembered for a
//! short time.

mod memory;

pub use memory::{Digest, Memory, Standing};

use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::watch;

/// Longest time for both reviews. An API server that asks the webhook waits 3 seconds for its answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(2);
/// Most tokens that the API server is asked about at a time.
const MOST_REVIEWS: usize = 16;

/// The API server does not say who a caller is.
#[derive(Clone, Debug, Error)]
pub enum Unavailable {
    /// Too many others are being asked about.
    #[error("too many callers are not known yet")]
    TooMany,
    /// It refuses to tell, or cannot be reached.
    #[error("the API server does not tell who a caller is")]
    Api(#[source] Arc<kube::Error>),
    /// It takes too long.
    #[error("the API server takes longer than {}s to tell who a caller is", REVIEW_TIMEOUT.as_secs())]
    Timeout,
}

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
    const REASONS: [&str; 3] = ["unauthenticated", "forbidden", "unavailable"];

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    memory: Memory,
    /// Tokens that are being asked about. Callers with the same token wait for the same answer.
    asked: HashMap<Digest, Asked>,
}

type Asked = watch::Receiver<Option<Result<Standing, Unavailable>>>;

impl Callers {
    /// Lets callers in that have this right. The client should not retry by itself: there is no time for that.
    pub fn new(client: Client, right: Right, refusals: Refusals) -> Arc<Self> {
        Arc::new(Self { client, right, refusals, state: Mutex::default() })
    }

    /// Lets a request in by its headers.
    ///
    /// # Errors
    /// The status to answer with: 401 without a valid token, 403 without the right, 503 if the API server does not tell.
    pub async fn admit(self: &Arc<Self>, headers: &HeaderMap) -> Result<(), StatusCode> {
        let standing = match bearer(headers) {
            Some(token) => self.standing(token).await,
            None => Ok(Standing::Unknown),
        };
        let (reason, status) = match standing {
            Ok(Standing::Allowed) => return Ok(()),
            Ok(Standing::Unknown) => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Ok(Standing::Forbidden) => ("forbidden", StatusCode::FORBIDDEN),
            Err(_) => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        };
        self.refusals.count(reason);
        Err(status)
    }

    /// What the API server says of a token, or has said a moment ago.
    ///
    /// # Errors
    /// The API server does not tell.
    pub async fn standing(self: &Arc<Self>, token: &str) -> Result<Standing, Unavailable> {
        let mut key = Digest::default();
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let mut answer = {
            let mut state = self.lock();
            if let Some(standing) = state.memory.recall(&key, Instant::now()) {
                return Ok(standing);
            }
            let full = state.asked.len() >= MOST_REVIEWS;
            match state.asked.entry(key) {
                Entry::Occupied(asked) => asked.get().clone(),
                Entry::Vacant(_) if full => return Err(Unavailable::TooMany),
                Entry::Vacant(place) => place.insert(self.ask(key, token.to_owned())).clone(),
            }
        };
        match answer.wait_for(Option::is_some).await {
            Ok(said) => said.clone().unwrap_or(Err(Unavailable::Timeout)),
            // Only if the process ends.
            Err(_) => Err(Unavailable::Timeout),
        }
    }

    /// Asks in a separate task: if a caller goes away, the others still get the answer.
    fn ask(self: &Arc<Self>, key: Digest, token: String) -> Asked {
        let (sender, asked) = watch::channel(None);
        let callers = Arc::clone(self);
        tokio::spawn(async move {
            let said = tokio::time::timeout(REVIEW_TIMEOUT, callers.review(token)).await;
            let said = match said {
                Ok(said) => said.map_err(|error| Unavailable::Api(Arc::new(error))),
                Err(_) => Err(Unavailable::Timeout),
            };
            let mut state = callers.lock();
            state.asked.remove(&key);
            match &said {
                Ok(standing) => state.memory.remember(key, *standing, Instant::now()),
                Err(error) => {
                    tracing::warn!(error = error as &dyn std::error::Error, "a caller is turned away");
                }
            }
            drop(state);
            sender.send_replace(Some(said));
        });
        asked
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
            _ => return Ok(Standing::Unknown),
        };
        let Right::Get(path) = self.right else { return Ok(Standing::Allowed) };
        let review = access_review(user, path);
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Standing::Allowed } else { Standing::Forbidden })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
