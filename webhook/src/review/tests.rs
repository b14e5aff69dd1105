//! Bytes that no API server sends: never a panic, never an answer that allows.

use crate::metrics::Metrics;
use crate::review::answer;
use brupop_admission_cases::{review, table};
use serde_json::{Value, json};

/// The bytes of an allowed review, with `deep` as the message of the new status.
fn with_message(deep: &str) -> String {
    let row = table()
        .into_iter()
        .find(|row| row.says == "an agent's news")
        .unwrap();
    let mut review = review(&row).unwrap();
    review["request"]["object"]["status"]["message"] = json!("MARK");
    review.to_string().replace("\"MARK\"", deep)
}

fn allowed(body: &str) -> bool {
    let Ok(bytes) = answer(body.as_bytes(), &Metrics::default()) else {
        return false;
    };
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    answer["response"]["allowed"] == true
}

#[test]
fn depth_is_limited_by_the_parser() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(
        allowed(&with_message("\"m\"")),
        "the review is one that is allowed"
    );
    for levels in [1, 100, 10_000, 1_000_000] {
        assert!(!allowed(&with_message(&deep(levels))), "{levels} levels");
    }
    let error = answer(with_message(&deep(10_000)).as_bytes(), &Metrics::default()).unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[test]
fn objects_are_counted_before_they_are_parsed() {
    for part in ["{\"\":0}", "[0]"] {
        let list = |parts: usize| format!("[{}]", vec![part; parts].join(","));
        let error =
            |parts| answer(with_message(&list(parts)).as_bytes(), &Metrics::default()).err();
        assert!(
            error(19_000).is_none(),
            "{part}: it is a review, and refused"
        );
        let refused = error(20_000)
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            refused.contains("more than 20000 objects and lists"),
            "{part}: {refused}"
        );
    }
}

/// A text with control sequences, and with a forged log line.
const HOSTILE: &str = r"\u001b[2J\nINFO allowed\u202e";

/// Members that the parser reads, with something else in their place.
#[test]
fn an_error_quotes_nothing_of_the_review() {
    let whole = with_message("\"m\"");
    let uid = "\"uid\":\"00000000-0000-4000-8000-0000000000cc\"";
    for (from, to) in [
        ("\"UPDATE\"", format!("\"{HOSTILE}\"")),
        ("\"UPDATE\"", format!("\"{}\"", "CREATE".repeat(500_000))),
        ("\"AdmissionReview\"", format!("{{\"{HOSTILE}\": 1}}")),
        ("[\"node-0\"]", format!("\"{HOSTILE}\"")),
        (uid, format!("\"uid\":\"{HOSTILE}\"")),
        (uid, format!("\"uid\":\"{}\"", "u".repeat(129))),
        ("\"dryRun\":false", format!("\"dryRun\":\"{HOSTILE}\"")),
        ("\"request\"", format!("\"{HOSTILE}\":1,")),
    ] {
        let body = whole.replace(from, &to);
        assert_ne!(body, whole, "{from} is not in {whole}");
        let sentence = answer(body.as_bytes(), &Metrics::default())
            .unwrap_err()
            .to_string();
        let printable = sentence.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        assert!(printable, "{sentence:?}");
        let quoted = ["2J", "allowed", "CREATE", "uuu"]
            .iter()
            .any(|part| sentence.contains(part));
        assert!(!quoted && sentence.len() < 200, "{sentence}");
    }
    let longest = whole.replace("00000000-0000-4000-8000-0000000000cc", &"u".repeat(128));
    assert!(allowed(&longest), "a uid of 128 bytes");
}

#[test]
fn what_is_no_review_is_not_allowed() {
    let whole = with_message("\"m\"");
    let replaced = |from: &str, to: &str| whole.replace(from, to);
    let user = "\"system:serviceaccount:brupop-bottlerocket-aws:brupop-agent\"";
    for body in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        replaced("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
        replaced("\"AdmissionReview\"", "\"TokenReview\""),
        replaced("\"request\"", "\"response\""),
        replaced("\"UPDATE\"", "\"UPSERT\""),
        replaced("[\"node-0\"]", "\"node-0\""),
        replaced(user, "7"),
    ] {
        assert_ne!(body, whole, "nothing is replaced");
        assert!(!allowed(&body), "{body}");
    }
}
