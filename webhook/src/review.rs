//! From the bytes of an `AdmissionReview` to the bytes of its answer.

use crate::metrics::Metrics;
use crate::verdict::{Change, Request, Verdict, verdict};
use brupop_api::crds::NAME_MAX;
use brupop_api::item::Unreadable;
use brupop_api::printable::{is_printable, printable};
use kube::core::Status;
use kube::core::response::StatusSummary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Instant;
use thiserror::Error;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Most objects and lists in a review, those in strings included. A review of a shadow has some hundreds. A parsed object
/// takes more than 600 bytes, however short it was as text, so bytes alone are no limit to memory.
const MAX_PARTS: usize = 20_000;
/// Longest uid of a review, in bytes. It is answered as it came; an API server's is a UUID.
const UID_MAX: usize = 128;

/// The question.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question<R> {
    api_version: String,
    kind: String,
    request: Option<R>,
}

/// The request of a review.
pub(crate) trait Reviewed: DeserializeOwned {
    /// Tells which review an answer belongs to.
    fn uid(&self) -> &str;
}

impl Reviewed for Request {
    fn uid(&self) -> &str {
        &self.uid
    }
}

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, A> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a, A>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a, A> {
    uid: &'a str,
    allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    audit_annotations: A,
}

/// What is answered to one review.
pub(crate) struct Reply<'a, A> {
    /// The uid of the review.
    pub(crate) uid: &'a str,
    /// Why it is refused, if it is.
    pub(crate) refusal: Option<String>,
    /// What the audit log keeps, under the webhook's name.
    pub(crate) audit_annotations: A,
}

impl<A: Serialize> Reply<'_, A> {
    /// The bytes of the answer.
    pub(crate) fn into_bytes(self) -> serde_json::Result<Vec<u8>> {
        let status = self.refusal.map(|message| Status {
            status: Some(StatusSummary::Failure),
            code: 403,
            message,
            reason: "Forbidden".to_owned(),
            metadata: None,
            details: None,
        });
        let (uid, audit_annotations) = (self.uid, self.audit_annotations);
        let response = Response { uid, allowed: status.is_none(), status, audit_annotations };
        serde_json::to_vec(&Answer { api_version: API_VERSION, kind: KIND, response })
    }
}

/// What the audit log keeps, under the webhook's name.
#[derive(Serialize)]
struct Annotations<'a> {
    rule: &'static str,
    node: Cow<'a, str>,
    changed: &'a str,
    diff: String,
}

/// Why there is no verdict. The API server then refuses the write. No sentence quotes what was sent.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// It is not the JSON of a review.
    #[error("this is not an AdmissionReview: {}", Unreadable::from(.0))]
    Json(#[from] serde_json::Error),
    /// It would take too much memory.
    #[error("this is not an AdmissionReview of a shadow: it has more than {MAX_PARTS} objects and lists")]
    TooManyParts,
    /// It is a review of another version, or an answer.
    #[error("this is not an AdmissionReview of admission.k8s.io/v1 with a request")]
    NoRequest,
    /// No API server makes such a uid.
    #[error(
        "this is not an AdmissionReview of an API server: its uid is not printable, or has more than {UID_MAX} bytes"
    )]
    Uid,
}

/// Answers one review, counts it, and logs one line.
///
/// # Errors
/// The bytes are no review. Nothing is allowed by an error.
pub fn answer(body: &[u8], metrics: &Metrics) -> Result<Vec<u8>, ReviewError> {
    let started = Instant::now();
    let answered = parse::<Request>(body).and_then(|request| {
        let change = Change::of(&request);
        let verdict = verdict(&request, &change);
        let changed = change.summary();
        let audit_annotations = Annotations {
            rule: verdict.rule().as_str(),
            node: node(&request).unwrap_or_default(),
            changed: &changed,
            diff: change.diff(),
        };
        let refusal = verdict.outcome.as_ref().err().map(ToString::to_string);
        let response = Reply { uid: &request.uid, refusal, audit_annotations }.into_bytes()?;
        metrics.reviewed(
            verdict.actor,
            &request.operation,
            verdict.outcome.is_ok(),
            verdict.rule(),
            started.elapsed(),
        );
        log(&request, &changed, &verdict);
        Ok(response)
    });
    note_unreadable(&answered, body, metrics);
    answered
}

/// Counts what was no review, and logs it now and then.
pub(crate) fn note_unreadable<T>(answered: &Result<T, ReviewError>, body: &[u8], metrics: &Metrics) {
    if let Err(error) = answered
        && let Some(left_out) = metrics.not_a_review()
    {
        let left_out = (left_out > 0).then_some(left_out);
        tracing::warn!(%error, bytes = body.len(), left_out, "a request was not an admission review");
    }
}

/// Reads the request of a review.
pub(crate) fn parse<R: Reviewed>(body: &[u8]) -> Result<R, ReviewError> {
    if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).nth(MAX_PARTS).is_some() {
        return Err(ReviewError::TooManyParts);
    }
    let question: Question<R> = serde_json::from_slice(body)?;
    if question.kind != KIND || question.api_version != API_VERSION {
        return Err(ReviewError::NoRequest);
    }
    let request = question.request.ok_or(ReviewError::NoRequest)?;
    if request.uid().len() > UID_MAX || !is_printable(request.uid()) {
        return Err(ReviewError::Uid);
    }
    Ok(request)
}

/// The node that the caller's token is bound to, if it is bound to one.
fn node(request: &Request) -> Option<Cow<'_, str>> {
    let extra = request.user_info.extra.as_ref()?;
    match extra.get("authentication.kubernetes.io/node-name")?.as_slice() {
        [node] => Some(printable(node, NAME_MAX)),
        _ => None,
    }
}

/// What a review holds is made printable by the log itself.
fn log(request: &Request, changed: &str, verdict: &Verdict) {
    let node = node(request).unwrap_or_default();
    let node = node.as_ref();
    let user = request.user_info.username.as_deref().unwrap_or_default();
    let (actor, rule, dry_run) = (verdict.actor.as_str(), verdict.rule().as_str(), request.dry_run);
    let shadow = &request.name;
    match &verdict.outcome {
        Ok(_) => tracing::info!(shadow, node, actor, rule, changed, dry_run, "allowed"),
        // The canary's refusal is good news, once a minute.
        Err(refusal) if dry_run => {
            tracing::info!(shadow, node, user, actor, rule, %refusal, dry_run, "refused");
        }
        Err(refusal) => tracing::warn!(shadow, node, user, actor, rule, changed, %refusal, "refused"),
    }
}

#[cfg(test)]
mod tests;
