//! What Prometheus answers, and what others do.

use super::*;
use serde_json::{Value, json};

fn found(body: &Value) -> Result<Found, Nonsense> {
    read(body.to_string().as_bytes())
}

/// What 2.42 answers, as it was recorded, with these series.
#[allow(clippy::needless_pass_by_value, reason = "it is written where it is used")]
fn vector(series: Value) -> Value {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}})
}

fn series() -> Value {
    json!({"metric": {"__name__": "ALERTS", "alertname": "Watchdog"}, "value": [1_795_444_800.123, "1"]})
}

#[test]
fn a_vector_is_empty_or_not() {
    let histogram = json!({"metric": {}, "histogram": [1, {"count": "3", "sum": "1.5", "buckets": [[0, "1", "2", "3"]]}]});
    for (what, body, expected) in [
        ("nothing", vector(json!([])), Found::Nothing),
        ("a series", vector(json!([series()])), Found::Something),
        ("two", vector(json!([series(), series()])), Found::Something),
        ("no number", vector(json!([{"metric": {}, "value": [1, "NaN"]}])), Found::Something),
        ("without end", vector(json!([{"metric": {}, "value": [1, "+Inf"]}])), Found::Something),
        ("a histogram", vector(json!([histogram])), Found::Something),
    ] {
        assert_eq!(found(&body), Ok(expected), "{what}");
    }
}

#[test]
fn warnings_are_heeded_where_nothing_was_found() {
    for (warnings, expected) in [
        (json!(null), Ok(Found::Nothing)),
        (json!([]), Ok(Found::Nothing)),
        (json!(["a store is away"]), Err(Nonsense::Incomplete)),
        (json!({"unknown": 1}), Err(Nonsense::Incomplete)),
    ] {
        let mut body = vector(json!([]));
        body["warnings"] = warnings.clone();
        body["infos"] = json!(["metric might not be a counter"]);
        assert_eq!(found(&body), expected, "{warnings}");
        body["data"]["result"] = json!([series()]);
        assert_eq!(found(&body), Ok(Found::Something), "{warnings}");
    }
}

#[test]
fn nonsense_says_nothing() {
    let of = |kind: &str, result: Value| json!({"status": "success", "data": {"resultType": kind, "result": result}});
    for (what, body, expected) in [
        ("an error", json!({"status": "error", "errorType": "timeout", "error": "x"}), Nonsense::Failed),
        ("a scalar", of("scalar", json!([1, "0"])), Nonsense::NoVector),
        ("a text", of("string", json!([1, "x"])), Nonsense::NoVector),
        ("a matrix", of("matrix", json!([])), Nonsense::NoVector),
        ("no data", json!({"status": "success"}), Nonsense::Unreadable),
        ("data of nothing", json!({"status": "success", "data": null}), Nonsense::Unreadable),
        ("no result", json!({"status": "success", "data": {"resultType": "vector"}}), Nonsense::Unreadable),
        ("a result of nothing", vector(json!(null)), Nonsense::Unreadable),
        ("a result of another kind", vector(json!({})), Nonsense::Unreadable),
        ("another kind of status", json!({"status": 200, "data": {}}), Nonsense::Unreadable),
        ("a list", json!([]), Nonsense::Unreadable),
        ("a series of nothing", vector(json!([null])), Nonsense::Series),
        ("a series without value", vector(json!([{"metric": {}}])), Nonsense::Series),
        ("a series without metric", vector(json!([{"value": [1, "1"]}])), Nonsense::Series),
        ("a value as a number", vector(json!([{"metric": {}, "value": [1, 1]}])), Nonsense::Series),
        ("a word for a value", vector(json!([{"metric": {}, "value": [1, "many"]}])), Nonsense::Series),
        ("a good and a bad series", vector(json!([series(), 3])), Nonsense::Series),
    ] {
        assert_eq!(found(&body), Err(expected), "{what}");
    }
    for body in [&b""[..], b"{", b"<html>Sign in</html>", b"\xff\xfe", br#"{"status":"success"}x"#] {
        assert_eq!(read(body), Err(Nonsense::Unreadable), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn what_is_huge_or_deep_is_not_read() {
    let mut body = vector(json!([])).to_string().into_bytes();
    body.resize(ANSWER_MAX, b' ');
    assert_eq!(read(&body), Ok(Found::Nothing));
    body.push(b' ');
    assert_eq!(read(&body), Err(Nonsense::TooLong));
    let deep = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":{}{}}}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    assert!(read(deep.as_bytes()).is_err());
}

#[test]
fn both_expressions_have_to_be_well() {
    use Found::{Nothing, Something};
    for (query, requires, expected) in [
        (Nothing, None, Answer::Good),
        (Something, None, Answer::Bad),
        (Nothing, Some(Something), Answer::Good),
        (Nothing, Some(Nothing), Answer::Bad),
        (Something, Some(Something), Answer::Bad),
        (Something, Some(Nothing), Answer::Bad),
    ] {
        assert_eq!(Answer::of(query, requires), expected, "{query:?}, {requires:?}");
    }
}
