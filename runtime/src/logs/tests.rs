//! What is logged, and how it looks, whatever is in it.

mod page;

use super::*;
use crate::authorizer::{Authorizer, Refusals, Requirement};
use crate::errors::tests::{SECRET, client};
use brupop_api::printable::is_printable;
use futures::StreamExt as _;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use page::Page;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::error::Error;
use std::io;

const FORMATTERS: [&str; 4] = ["full", "compact", "pretty", "json"];

fn to(page: &Page, values: &[(&str, &str)]) -> Result<Dispatch, LogError> {
    let page = page.clone();
    let value = |name: &str| {
        values
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    };
    dispatch(value, move || page.clone())
}

/// What is logged with these settings.
fn logged(values: &[(&str, &str)], events: impl FnOnce()) -> String {
    let page = Page::default();
    tracing::dispatcher::with_default(&to(&page, values).unwrap(), events);
    page.text()
}

fn refusal(values: &[(&str, &str)]) -> String {
    to(&Page::default(), values)
        .map(drop)
        .unwrap_err()
        .to_string()
}

/// The line without its time.
fn timeless(line: &str) -> String {
    let line = line.trim_end();
    line.split_once("Z ")
        .map_or(line, |(_, rest)| rest)
        .trim_start()
        .to_owned()
}

#[test]
fn the_four_layouts() {
    let events = || {
        let error = io::Error::other("taken");
        tracing::info_span!(target: "brupop_runtime", "agent", node = "node-0", n = 7).in_scope(|| {
            tracing::info!(target: "brupop_runtime", node = "n 1", rule = "r", ok = true, n = 1.5, error = &error as &dyn Error, none = Option::<u8>::None, state = ?Ordering::Less, "said");
        });
    };
    let of = |formatter| logged(&[(FORMATTER, formatter)], events);
    let fields = r#"node="n 1" rule=r ok=true n=1.5 error=taken state=Less"#;
    assert_eq!(
        timeless(&of("full")),
        format!("INFO agent{{node=node-0 n=7}}: brupop_runtime: said {fields}")
    );
    assert_eq!(
        timeless(&of("compact")),
        format!("INFO agent: brupop_runtime: said {fields} node=node-0 n=7")
    );
    assert_eq!(
        timeless(&of("pretty")),
        "INFO agent{node=node-0 n=7}: brupop_runtime: said\n    node=\"n 1\"\n    rule=r\n    ok=true\n    n=1.5\n    error=taken\n    state=Less"
    );
    let mut json: serde_json::Value = serde_json::from_str(&of("json")).unwrap();
    assert!(
        json["timestamp"]
            .take()
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
    let span = serde_json::json!({"name": "agent", "node": "node-0", "n": 7});
    assert_eq!(
        json,
        serde_json::json!({
            "timestamp": null, "level": "INFO", "message": "said", "node": "n 1", "rule": "r", "ok": true, "n": 1.5,
            "error": "taken", "state": "Less", "target": "brupop_runtime",
            "span": span, "spans": [span],
        })
    );
    let coloured = logged(&[(ANSI_ENABLED, "true")], events);
    assert!(
        coloured.contains("\u{1b}[3mrule\u{1b}[0m\u{1b}[2m=\u{1b}[0mr "),
        "{coloured}"
    );
}

/// One event at each of these levels and targets; what is logged of them.
fn heard(values: &[(&str, &str)]) -> String {
    let events = || {
        tracing::error!(target: "brupop_agent::host", "host-error");
        tracing::info!(target: "brupop_agent::host", "host-info");
        tracing::debug!(target: "brupop_agent::host", "host-debug");
        tracing::trace!(target: "brupop_agent::host", "host-trace");
        tracing::info!(target: "brupop_webhook::review", "review-info");
        tracing::debug!(target: "brupop_runtime::connections", "connections-debug");
        tracing::error!(target: "brupop", "brupop");
        tracing::error!(target: "kube_client::client", "kube");
        tracing::error!(target: "kube_runtime::watcher", "kube");
        tracing::error!(target: "hyper::proto", "hyper");
        tracing::error!(target: "rustls", "rustls");
    };
    let text = logged(values, events);
    text.lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn only_our_crates_are_heard() {
    let info = "host-error host-info review-info";
    for (directives, expected) in [
        ("", info),
        (" ", info),
        ("info", info),
        ("3", info),
        ("off", ""),
        ("ERROR", "host-error"),
        (
            "debug",
            "host-error host-info host-debug review-info connections-debug",
        ),
        (
            "trace",
            "host-error host-info host-debug host-trace review-info connections-debug",
        ),
        (
            "info,brupop_agent=debug",
            "host-error host-info host-debug review-info",
        ),
        (
            "brupop_agent::host=trace, error",
            "host-error host-info host-debug host-trace",
        ),
        ("brupop_agent=off", "review-info"),
        ("off,brupop_webhook::review=info", "review-info"),
    ] {
        assert_eq!(
            heard(&[(FILTER_DIRECTIVE, directives)]),
            expected,
            "{directives}"
        );
    }
    assert_eq!(heard(&[]), info);
}

#[test]
fn a_bad_value_is_refused_with_advice() {
    let directives = "inf|info,|,info|info,=|=info|brupop_agent|brupop_agent=loud|brupop_agent=|brupop_agnet=debug|\
        brupop=debug|brupop_agent::=debug|brupop_agent:host=debug|info,kube_client::client::builder=off|hyper=trace|\
        info,[agent{node=a}]=debug|6";
    for value in directives.split('|') {
        let sentence = refusal(&[(FILTER_DIRECTIVE, value)]);
        let told = [
            "off, error, warn, info, debug, trace",
            "info,brupop_agent=debug",
            FILTER_DIRECTIVE,
        ];
        assert!(
            told.iter().all(|part| sentence.contains(part)),
            "{value}: {sentence}"
        );
    }
    for (variable, value, hint) in [
        (FORMATTER, "xml", "full, compact, pretty or json"),
        (ANSI_ENABLED, "maybe", "true or false"),
    ] {
        let sentence = refusal(&[(variable, value)]);
        assert!(
            sentence.contains(variable) && sentence.contains(hint),
            "{sentence}"
        );
    }
}

/// Without what colours are made of.
fn without_colours(text: &str) -> String {
    let codes = ["0", "1", "2", "3", "31", "32", "33", "34", "35"];
    codes.iter().fold(text.to_owned(), |text, code| {
        text.replace(&format!("\u{1b}[{code}m"), "")
    })
}

fn hostile() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "\n2026-11-21T04:00:00.000000Z  INFO brupop_webhook::review: allowed",
        "\r\u{1b}[2J\u{1b}[1;1H",
        "\u{9b}2J\u{85}\u{7f}\0",
        "\u{2028}\u{202e}\u{2066}\u{feff}",
        "\" rule=agent-report \"",
        "\\",
        "é",
        "plain",
    ]);
    let text = prop::collection::vec(words, 1..5).prop_map(|words| words.concat());
    (text, prop_oneof![4 => Just(1), 1 => Just(2000)]).prop_map(|(text, times)| text.repeat(times))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_value_forges_a_line(text in hostile()) {
        for formatter in FORMATTERS {
            for ansi in ["false", "true"] {
                let output = logged(&[(FORMATTER, formatter), (ANSI_ENABLED, ansi)], || {
                    let error = io::Error::other(text.clone());
                    let error: &dyn Error = &error;
                    tracing::info_span!(target: "brupop_runtime", "agent", node = text).in_scope(|| {
                        tracing::warn!(target: "brupop_runtime", text, %text, ?text, error, "said {text}");
                    });
                });
                let lines: Vec<&str> = output.lines().collect();
                // The event with its span, and four fields.
                let expected = if formatter == "pretty" { 5 } else { 1 };
                prop_assert_eq!(lines.len(), expected, "{} {}: {}", formatter, ansi, output);
                for line in lines {
                    // Colours are for terminals, and an object of JSON is for programs.
                    let plain = if formatter == "json" { line.to_owned() } else { without_colours(line) };
                    prop_assert!(is_printable(&plain), "{formatter} {ansi}: {plain:?}");
                }
                // Five values and the span's twice in JSON; quotes and backslashes take two bytes.
                prop_assert!(output.len() < 2 * 7 * VALUE_MAX + 1024, "{}", output.len());
            }
        }
    }
}

#[test]
fn quotes_keep_a_value_apart_from_its_neighbours() {
    for (value, expected) in [
        (
            "a\" rule=agent-report x=\"",
            r#"value="a\" rule=agent-report x=\"""#,
        ),
        ("a\\\" rule=x", r#"value="a\\\" rule=x""#),
        ("rule=x", r#"value="rule=x""#),
        ("", r#"value="""#),
        ("a\u{2003}b", "value=\"a\u{2003}b\""),
        ("word", "value=word"),
    ] {
        let output = logged(
            &[],
            || tracing::info!(target: "brupop_runtime", value, "said"),
        );
        assert_eq!(
            timeless(&output),
            format!("INFO brupop_runtime: said {expected}")
        );
    }
}

/// Calls of ours, and of kube's watcher, that get an answer that cannot be read; and what we log about them.
async fn calls_that_fail(status: u16, body: &'static str) {
    let client = client(status, body);
    let pods = Api::<Pod>::all(client.clone());
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    tracing::warn!(target: "brupop_runtime", error = &error as &dyn Error, "a list");
    let mut watch = std::pin::pin!(watcher(pods, watcher::Config::default()));
    let error = loop {
        if let Err(error) = watch.next().await.unwrap() {
            break error;
        }
    };
    tracing::warn!(target: "brupop_runtime", error = &error as &dyn Error, "a watch");
    let authorizer = Authorizer::new(client, Requirement::Token, Refusals::default());
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer token"));
    assert_eq!(
        authorizer.admit(headers).await,
        Err(StatusCode::SERVICE_UNAVAILABLE)
    );
}

/// kube's client logs a response that it cannot read as a whole, as a warning.
#[tokio::test]
async fn no_body_of_a_response_is_logged() {
    for (status, body) in [
        (200, r#"{"items": "hunter2", "status": "hunter2"}"#),
        (201, "hunter2"),
        (200, "{\"kind\": \"hunter2\"}"),
        (502, "<p>hunter2</p>"),
    ] {
        for formatter in FORMATTERS {
            let page = Page::default();
            let settings = [(FILTER_DIRECTIVE, "trace"), (FORMATTER, formatter)];
            let logging = tracing::dispatcher::set_default(&to(&page, &settings).unwrap());
            calls_that_fail(status, body).await;
            drop(logging);
            let output = page.text();
            assert!(!output.contains(SECRET), "{output}");
            for told in [
                "a list",
                "a watch",
                "could not be asked whose token a caller has",
            ] {
                assert!(output.contains(told), "{told} is missing: {output}");
            }
        }
        // It is no wonder only if libraries do log it.
        let page = Page::default();
        let writer = page.clone();
        let layer = fmt::layer().with_writer(move || writer.clone());
        let everything = Dispatch::new(registry().with(layer));
        let logging = tracing::dispatcher::set_default(&everything);
        calls_that_fail(status, body).await;
        drop(logging);
        assert!(page.text().contains(SECRET), "{body}");
    }
}
