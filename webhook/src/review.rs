//! From the bytes of an `AdmissionReview` to the bytes of its answer.

use crate::metrics::Metrics;
use crate::verdict::{Change, ShadowRequest, Verdict, verdict};
use brupop_api::crds::NAME_MAX;
use brupop_api::item::Unreadable;
use brupop_api::printable::{is_printable, printable};
use brupop_runtime::errors::describe;
use kube::core::Status;
use kube::core::admission::AdmissionResponse;
use kube::core::response::StatusSummary;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::time::Instant;
use thiserror::Error;

/// Most objects and lists in a review, those in strings included. A review of a shadow has some hundreds. A parsed object
/// takes more than 600 bytes, however short it was as text, so bytes alone are no limit to memory.
const MAX_PARTS: usize = 20_000;
/// Longest uid of a review, in bytes. It is answered as it came; an API server's is a UUID.
const UID_MAX: usize = 128;

/// A review, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<R> {
    api_version: String,
    kind: String,
    request: Option<R>,
}

/// The bytes of the answer to the review with this uid. `refusal` says why it is refused, if it is; the audit log keeps the
/// annotations, under the webhook's name.
pub(crate) fn response<const N: usize>(
    uid: &str,
    refusal: Option<String>,
    annotations: [(&str, String); N],
) -> serde_json::Result<Vec<u8>> {
    // kube makes one for a request only that it has read itself.
    let mut response = AdmissionResponse::invalid("");
    uid.clone_into(&mut response.uid);
    response.allowed = refusal.is_none();
    response.result = refusal.map_or_else(Status::default, |message| Status {
        status: Some(StatusSummary::Failure),
        code: 403,
        message,
        reason: "Forbidden".to_owned(),
        ..Status::default()
    });
    response.audit_annotations = annotations
        .map(|(key, value)| (key.to_owned(), value))
        .into();
    serde_json::to_vec(&response.into_review())
}

/// Reasons why there is no verdict. The API server then refuses the write. No sentence quotes what was sent.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// It is not the JSON of a review.
    #[error("this is not an AdmissionReview: {}", Unreadable::from(.0))]
    Json(#[from] serde_json::Error),
    /// It would take too much memory.
    #[error(
        "this is not an AdmissionReview of a shadow: it has more than {MAX_PARTS} objects and lists"
    )]
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
    let answered = parse(body, |request: &ShadowRequest| &request.uid).and_then(|request| {
        let change = Change::of(&request);
        let verdict = verdict(&request, &change);
        let changed = change.summary();
        let annotations = [
            ("rule", verdict.rule().as_str().to_owned()),
            ("node", node(&request).unwrap_or_default().into_owned()),
            ("changed", changed.clone()),
            ("diff", change.diff()),
        ];
        let refusal = verdict.outcome.as_ref().err().map(ToString::to_string);
        let response = response(&request.uid, refusal, annotations)?;
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
pub(crate) fn note_unreadable<T>(
    answered: &Result<T, ReviewError>,
    body: &[u8],
    metrics: &Metrics,
) {
    if let Err(error) = answered
        && let Some(left_out) = metrics.not_a_review()
    {
        let left_out = (left_out > 0).then_some(left_out);
        tracing::warn!(
            error = describe(error),
            bytes = body.len(),
            left_out,
            "a request was not an admission review"
        );
    }
}

/// Reads the request of a review, which has this uid.
pub(crate) fn parse<R: DeserializeOwned>(
    body: &[u8],
    uid: fn(&R) -> &str,
) -> Result<R, ReviewError> {
    if body
        .iter()
        .filter(|byte| matches!(byte, b'{' | b'['))
        .nth(MAX_PARTS)
        .is_some()
    {
        return Err(ReviewError::TooManyParts);
    }
    let review: Review<R> = serde_json::from_slice(body)?;
    if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
        return Err(ReviewError::NoRequest);
    }
    let request = review.request.ok_or(ReviewError::NoRequest)?;
    let uid = uid(&request);
    if uid.len() > UID_MAX || !is_printable(uid) {
        return Err(ReviewError::Uid);
    }
    Ok(request)
}

/// The node that the caller's token is bound to, if it is bound to one.
fn node(request: &ShadowRequest) -> Option<Cow<'_, str>> {
    let extra = request.user_info.extra.as_ref()?;
    match extra
        .get("authentication.kubernetes.io/node-name")?
        .as_slice()
    {
        [node] => Some(printable(node, NAME_MAX)),
        _ => None,
    }
}

/// Logs a verdict. Everybody who reaches the endpoint can put anything into a review, so what is quoted of it is made
/// printable and cut.
fn log(request: &ShadowRequest, changed: &str, verdict: &Verdict) {
    let node = node(request).unwrap_or_default();
    let node = node.as_ref();
    let user = request.user_info.username.as_deref().unwrap_or_default();
    let (user, shadow) = (
        printable(user, NAME_MAX),
        printable(&request.name, NAME_MAX),
    );
    let (user, shadow) = (user.as_ref(), shadow.as_ref());
    let (actor, rule, dry_run) = (
        verdict.actor.as_str(),
        verdict.rule().as_str(),
        request.dry_run,
    );
    match &verdict.outcome {
        Ok(_) => tracing::info!(shadow, node, actor, rule, changed, dry_run, "allowed"),
        // The refusal of the reconciler's check is good news, once a minute.
        Err(refusal) if dry_run => {
            let refusal = refusal.to_string();
            tracing::info!(shadow, node, user, actor, rule, refusal, dry_run, "refused");
        }
        Err(refusal) => {
            let refusal = refusal.to_string();
            tracing::warn!(shadow, node, user, actor, rule, changed, refusal, "refused");
        }
    }
}

#[cfg(test)]
mod tests;
