//! Tests of the answers of Prometheus and of other servers.

use crate::gates::*;
use crate::tests::world::rows;
use serde_json::{Value, json};

fn found(body: &Value) -> Result<bool, &'static str> {
    read_answer(body.to_string().as_bytes())
}

/// Recorded answers of Prometheus 2.42 with these series.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it is written where it is used"
)]
fn vector(series: Value) -> Value {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}})
}

fn series() -> Value {
    json!({"metric": {"__name__": "ALERTS", "alertname": "Watchdog"}, "value": [1_795_444_800.123, "1"]})
}

#[test]
fn a_vector_is_empty_or_not() {
    let histogram = json!({"metric": {}, "histogram": [1, {"count": "3", "sum": "1.5", "buckets": [[0, "1", "2", "3"]]}]});
    for (what, body, expected) in rows! {
        "nothing", vector(json!([])) => false;
        "a series", vector(json!([series()])) => true;
        "two", vector(json!([series(), series()])) => true;
        "no number", vector(json!([{"metric": {}, "value": [1, "NaN"]}])) => true;
        "without end", vector(json!([{"metric": {}, "value": [1, "+Inf"]}])) => true;
        "a histogram", vector(json!([histogram])) => true;
    } {
        assert_eq!(found(&body), Ok(expected), "{what}");
    }
}

#[test]
fn warnings_are_heeded_where_nothing_was_found() {
    for (warnings, expected) in [
        (json!(null), Ok(false)),
        (json!([]), Ok(false)),
        (json!(["a store is away"]), Err(INCOMPLETE)),
        (json!({"unknown": 1}), Err(INCOMPLETE)),
    ] {
        let mut body = vector(json!([]));
        body["warnings"] = warnings.clone();
        body["infos"] = json!(["metric might not be a counter"]);
        assert_eq!(found(&body), expected, "{warnings}");
        body["data"]["result"] = json!([series()]);
        assert_eq!(found(&body), Ok(true), "{warnings}");
    }
}

#[test]
fn nonsense_says_nothing() {
    let of = |kind: &str, result: Value| json!({"status": "success", "data": {"resultType": kind, "result": result}});
    let ok = |data: Value| json!({"status": "success", "data": data});
    let failed = json!({"status": "error", "errorType": "timeout", "error": "x"});
    let without_metric = vector(json!([{"value": [1, "1"]}]));
    let of_value = |value: Value| vector(json!([{"metric": {}, "value": [1, value]}]));
    for (what, body, expected) in rows! {
        "an error", failed => FAILED;
        "a scalar", of("scalar", json!([1, "0"])) => NO_VECTOR;
        "a text", of("string", json!([1, "x"])) => NO_VECTOR;
        "a matrix", of("matrix", json!([])) => NO_VECTOR;
        "no data", json!({"status": "success"}) => UNREADABLE;
        "data of nothing", ok(json!(null)) => UNREADABLE;
        "no result", ok(json!({"resultType": "vector"})) => UNREADABLE;
        "a result of nothing", vector(json!(null)) => UNREADABLE;
        "a result of another kind", vector(json!({})) => UNREADABLE;
        "another kind of status", json!({"status": 200, "data": {}}) => UNREADABLE;
        "a list", json!([]) => UNREADABLE;
        "a series of nothing", vector(json!([null])) => SERIES;
        "a series without value", vector(json!([{"metric": {}}])) => SERIES;
        "a series without metric", without_metric => SERIES;
        "a value as a number", of_value(json!(1)) => SERIES;
        "a word for a value", of_value(json!("many")) => SERIES;
        "a good and a bad series", vector(json!([series(), 3])) => SERIES;
    } {
        assert_eq!(found(&body), Err(expected), "{what}");
    }
    for body in [
        &b""[..],
        b"{",
        b"<html>Sign in</html>",
        b"\xff\xfe",
        br#"{"status":"success"}x"#,
    ] {
        assert_eq!(
            read_answer(body),
            Err(UNREADABLE),
            "{}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn what_is_huge_or_deep_is_not_read() {
    let mut body = vector(json!([])).to_string().into_bytes();
    body.resize(ANSWER_MAX, b' ');
    assert_eq!(read_answer(&body), Ok(false));
    body.push(b' ');
    assert_eq!(read_answer(&body), Err(TOO_LONG));
    let deep = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":{}{}}}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    assert!(read_answer(deep.as_bytes()).is_err());
}

#[test]
fn both_expressions_have_to_be_well() {
    let (nothing, something) = (false, true);
    for (query, requires, expected) in [
        (nothing, None, GateState::Open),
        (something, None, GateState::Closed),
        (nothing, Some(something), GateState::Open),
        (nothing, Some(nothing), GateState::Closed),
        (something, Some(something), GateState::Closed),
        (something, Some(nothing), GateState::Closed),
    ] {
        assert_eq!(
            answer_of(query, requires),
            expected,
            "{query:?}, {requires:?}"
        );
    }
}

/// It is about the expression alone, and the pool has that.
#[test]
fn only_that_an_expression_is_none_is_shown() {
    let refused = |kind: &str, error: &str| {
        refusal(
            serde_json::json!({"status": "error", "errorType": kind, "error": error})
                .to_string()
                .as_bytes(),
        )
    };
    let parse = "invalid parameter \"query\": 1:5: parse error: unexpected end of input";
    assert_eq!(
        refused("bad_data", parse),
        Some(format!("bad_data: \"{parse}\""))
    );
    assert_eq!(
        refused("execution", "duplicate series for {secret=\"hush\"}"),
        None
    );
    assert_eq!(refusal(br#"{"status": "error", "error": "hush"}"#), None);
    assert_eq!(refusal(b"hush"), None);
    let long = refused("bad_data", &"\u{1b}[31m".repeat(1000)).unwrap();
    assert!(long.len() <= 300 && !long.contains('\u{1b}'), "{long}");
}
