//! Any bytes: no panic; whatever is answered, people may see it; an answer to a review is a well-formed review that
//! belongs to the question; and what it allows is the caller's own.

#![no_main]

use brupop_admission_cases::oracle::{flaw, objection};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::review::answer;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::LazyLock;

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);

fuzz_target!(|bytes: &[u8]| {
    let answer = match answer(bytes, &METRICS) {
        Ok(answer) => String::from_utf8(answer).expect("an answer is text"),
        // The API server refuses what is asked then. It cannot allow anything.
        Err(error) => return assert_eq!(flaw(&error.to_string()), None),
    };
    assert_eq!(flaw(&answer), None);
    // What the verdict has no use for is skipped, and may be such that no strict parser takes it.
    let Ok(review) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");

    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert!(answer["request"].is_null());
    let response = &answer["response"];
    assert!(review["request"]["uid"].is_string());
    assert_eq!(response["uid"], review["request"]["uid"]);
    assert!(
        response["patch"].is_null(),
        "it validates, and changes nothing"
    );
    for key in ["diff", "changed", "node", "rule"] {
        assert!(
            response["auditAnnotations"][key].is_string(),
            "it leaves a trace: {key}"
        );
    }
    match response["allowed"].as_bool().expect("it is allowed or not") {
        true => assert_eq!(objection(&review), None, "this is allowed: {review}"),
        false => {
            assert_eq!(response["status"]["code"], 403);
            let message = response["status"]["message"].as_str().unwrap_or_default();
            let rule = response["auditAnnotations"]["rule"]
                .as_str()
                .unwrap_or_default();
            assert!(
                message.starts_with(rule) && message.len() > rule.len(),
                "a refusal says why: {message}"
            );
        }
    }
});
