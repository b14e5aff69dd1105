//! From the bytes of an `AdmissionReview` to the bytes of its answer.

use crate::metrics::Metrics;
use crate::verdict::{Change, Verdict, verdict};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::response::StatusSummary;
use kube::core::{DynamicObject, Status};
use std::time::Instant;
use thiserror::Error;

/// Why a request cannot be answered with a verdict. The API server then refuses the write.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// It is not the JSON of a review.
    #[error("this is not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It is a review of another version, or an answer.
    #[error("this is not an AdmissionReview of admission.k8s.io/v1 with a request")]
    NoRequest,
}

/// Answers one review, counts it, and logs one line.
///
/// # Errors
/// The bytes are no review. Nothing is allowed by an error.
pub fn answer(body: &[u8], metrics: &Metrics) -> Result<Vec<u8>, ReviewError> {
    let started = Instant::now();
    let answered = parse(body).and_then(|request| {
        let change = Change::of(&request);
        let verdict = verdict(&request, &change);
        let response = serde_json::to_vec(&respond(&request, &change, &verdict).into_review())?;
        metrics.reviewed(
            verdict.actor,
            &request.operation,
            verdict.outcome.is_ok(),
            verdict.rule(),
            started.elapsed(),
        );
        log(&request, &change, &verdict);
        Ok(response)
    });
    if let Err(error) = &answered {
        metrics.not_a_review();
        tracing::warn!(%error, bytes = body.len(), "a request was no review");
    }
    answered
}

fn parse(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, ReviewError> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
    if review.types.kind != "AdmissionReview" || review.types.api_version != "admission.k8s.io/v1" {
        return Err(ReviewError::NoRequest);
    }
    review.try_into().map_err(|_| ReviewError::NoRequest)
}

fn respond(
    request: &AdmissionRequest<DynamicObject>,
    change: &Change,
    verdict: &Verdict,
) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    response.audit_annotations = [
        ("rule", verdict.rule().as_str().to_owned()),
        ("node", node(request).unwrap_or_default().to_owned()),
        ("changed", change.summary()),
        ("diff", change.diff()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if let Err(refusal) = &verdict.outcome {
        response.allowed = false;
        response.result = Status {
            status: Some(StatusSummary::Failure),
            code: 403,
            message: refusal.to_string(),
            reason: "Forbidden".to_owned(),
            metadata: None,
            details: None,
        };
    }
    response
}

/// The node that the caller's token is bound to, if it is bound to one.
fn node(request: &AdmissionRequest<DynamicObject>) -> Option<&str> {
    let extra = request.user_info.extra.as_ref()?;
    match extra.get("authentication.kubernetes.io/node-name")?.as_slice() {
        [node] => Some(node),
        _ => None,
    }
}

fn log(request: &AdmissionRequest<DynamicObject>, change: &Change, verdict: &Verdict) {
    let node = node(request).unwrap_or_default();
    let user = request.user_info.username.as_deref().unwrap_or_default();
    let (actor, rule, dry_run) = (verdict.actor.as_str(), verdict.rule().as_str(), request.dry_run);
    let (shadow, changed) = (&request.name, change.summary());
    match &verdict.outcome {
        Ok(_) => tracing::info!(shadow, node, actor, rule, changed, dry_run, "allowed"),
        // The canary's refusal is good news, once a minute.
        Err(refusal) if dry_run => {
            tracing::info!(shadow, node, user, actor, rule, %refusal, dry_run, "refused");
        }
        Err(refusal) => tracing::warn!(shadow, node, user, actor, rule, changed, %refusal, "refused"),
    }
}
