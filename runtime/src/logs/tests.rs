//! Tests of log lines: their content and form, whatever is in them.

mod page;

use super::*;
use crate::authorizer::{Authorizer, Refusals, Requirement};
use crate::errors::describe;
use crate::errors::tests::{SECRET, client};
use futures::StreamExt as _;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use page::Page;
use std::{fs, path::Path};

fn to(page: &Page, values: &[(&str, &str)]) -> Result<Dispatch, String> {
    let page = page.clone();
    let value = |name: &str| {
        values
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    };
    dispatch(value, move || page.clone())
}

/// Returns what is logged with these settings.
fn logged(values: &[(&str, &str)], events: impl FnOnce()) -> String {
    let page = Page::default();
    tracing::dispatcher::with_default(&to(&page, values).unwrap(), events);
    page.text()
}

fn refusal(values: &[(&str, &str)]) -> String {
    to(&Page::default(), values).map(drop).unwrap_err()
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
    let words = text.lines().filter_map(|line| line.rsplit(' ').next());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn only_our_crates_are_heard() {
    let info = "host-error host-info review-info";
    let debug = "host-error host-info host-debug review-info";
    let host = "host-error host-info host-debug host-trace";
    for (directives, expected) in [
        ("", info),
        (" ", info),
        ("info", info),
        ("3", info),
        ("off", ""),
        ("ERROR", "host-error"),
        ("debug", &format!("{debug} connections-debug")),
        ("trace", &format!("{host} review-info connections-debug")),
        ("info,brupop_agent=debug", debug),
        ("brupop_agent::host=trace, error", host),
        ("brupop_agent=off", "review-info"),
        ("off,brupop_webhook::review=info", "review-info"),
    ] {
        let heard = heard(&[(FILTER_DIRECTIVE, directives)]);
        assert_eq!(heard, expected, "{directives}");
    }
    assert_eq!(heard(&[]), info);
}

#[test]
fn a_bad_value_is_refused_with_advice() {
    let directives = "inf|info,|,info|info,=|=info|brupop_agent=loud|brupop_agent=|brupop_agnet=debug|\
        brupop=debug|info,kube_client::client::builder=off|hyper=trace|\
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
        let told = [variable, hint].map(|word| sentence.contains(word));
        assert_eq!(told, [true; 2], "{sentence}");
    }
}

#[test]
fn no_text_forges_a_line_or_a_field() {
    let text =
        "a\" rule=x\r\n2026-11-21T04:00:00.000000Z  INFO brupop_webhook::review: allowed \u{1b}[2J";
    let events = || {
        tracing::info_span!(target: "brupop_runtime", "agent", node = text).in_scope(|| {
            tracing::warn!(target: "brupop_runtime", text, quoted = ?text, none = Option::<u8>::None, n = 1, "said");
        });
    };
    let quoted = r#""a\" rule=x\r\n2026-11-21T04:00:00.000000Z  INFO brupop_webhook::review: allowed \u{1b}[2J""#;
    let fields = format!("said text={quoted} quoted={quoted} n=1");
    let full = format!(" WARN agent{{node={quoted}}}: brupop_runtime: {fields}\n");
    let compact = format!(" WARN agent: brupop_runtime: {fields} node={quoted}\n");
    let pretty = format!("said, text: {quoted}, quoted: {quoted}, n: 1\n");
    for (formatter, ansi, lines, expected) in [
        ("full", "false", 1, &*full),
        ("compact", "false", 1, &compact),
        ("pretty", "false", 4, &pretty),
        ("full", "true", 1, quoted),
    ] {
        let output = logged(&[(FORMATTER, formatter), (ANSI_ENABLED, ansi)], events);
        assert_eq!(output.lines().count(), lines, "{formatter}: {output}");
        assert!(output.contains(expected), "{formatter}: {output}");
        assert!(!output.contains(text) && !output.contains("\u{1b}[2J") && !output.contains('\r'));
    }
    let output = logged(&[(FORMATTER, "json")], events);
    assert_eq!(output.lines().count(), 1, "{output}");
    assert!(!output.contains(['\u{1b}', '\r']), "{output}");
    let mut json: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert!(json["timestamp"].take().is_string());
    let span = serde_json::json!({"name": "agent", "node": text});
    assert_eq!(
        json,
        serde_json::json!({
            "timestamp": null, "level": "WARN", "message": "said", "text": text, "quoted": quoted, "n": 1,
            "target": "brupop_runtime", "span": span, "spans": [span],
        })
    );
}

/// Returns what the log macros of this source are called with: the code, in which `""` stands for each text, and the texts.
fn calls(source: &str) -> Vec<(String, Vec<String>)> {
    let mut calls = vec![];
    for at in source.split("tracing::").skip(1) {
        let name = at.split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let Some(rest) = at[name.unwrap_or_default().len()..].strip_prefix("!(") else {
            continue;
        };
        let (mut code, mut texts, mut depth) = (String::new(), vec![], 1);
        let mut rest = rest.chars();
        while let Some(c) = rest.next().filter(|_| depth > 0) {
            code.push(c);
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '"' => {
                    let mut text = String::new();
                    while let Some(c) = rest.next().filter(|c| *c != '"') {
                        text.extend((c == '\\').then(|| rest.next()).flatten().or(Some(c)));
                    }
                    code.push('"');
                    texts.push(text);
                }
                _ => {}
            }
        }
        calls.push((code, texts));
    }
    calls
}

/// The sources in this folder that are not of tests.
fn sources(folder: &Path) -> Vec<String> {
    let mut sources = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources.extend(self::sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            let source = fs::read_to_string(&path).unwrap();
            sources.push(
                source
                    .split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    sources
}

#[test]
fn only_quoted_fields_hold_text_from_outside() {
    // Times of certificates.
    let unquoted = ["%serve_from", "%generation.not_after"];
    // Interpolated into messages are constants, literals, `what`, which is a `&'static str`, and a number.
    let arguments = ["self.what", "LONGEST_TURN.as_secs()"];
    let mut found = 0;
    for folder in [
        "agent/src",
        "agent/core",
        "api/src",
        "reconciler",
        "runtime/src",
        "webhook/src",
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder);
        for source in sources(&folder) {
            assert!(
                !source.contains("use tracing::{") && !source.contains("#[instrument"),
                "{source}"
            );
            let errors: Vec<_> = source
                .match_indices("dyn ")
                .filter_map(|(at, _)| {
                    let (before, _) = source[..at].rsplit_once(':').filter(|_| {
                        source[at..].starts_with("dyn Error")
                            || source[at..].starts_with("dyn std::error::Error")
                    })?;
                    before
                        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                })
                .collect();
            let words = source.split_whitespace().collect::<Vec<_>>().join(" ");
            for (code, texts) in calls(&source) {
                found += 1;
                let left = unquoted
                    .iter()
                    .fold(code.clone(), |code, known| code.replace(known, ""));
                assert!(
                    !left.contains('%'),
                    "it is not quoted, so write it as a text: {code}"
                );
                // Only a `dyn Error` is written as an error, whose text is not quoted.
                let mut names = errors.iter().chain(["dyn"].iter());
                let parts = || code.split(|c: char| !c.is_alphanumeric() && c != '_');
                assert!(
                    !names.any(|name| parts().any(|word| word == *name)),
                    "{code}"
                );
                let message = texts.last().map(String::as_str).unwrap_or_default();
                let after = code.rsplit("\"\"").next().unwrap();
                let is_ours = |name: &str| match name {
                    "" => arguments.iter().any(|known| after.contains(known)),
                    "what" => true,
                    name => {
                        let is_literal = words.contains(&format!("let {name} = \""));
                        is_literal || name.chars().all(|c| c.is_uppercase() || c == '_')
                    }
                };
                let mut names = message
                    .split('{')
                    .skip(1)
                    .filter_map(|it| it.split('}').next());
                assert!(
                    names.all(is_ours),
                    "text is no part of a message: {message}"
                );
            }
        }
    }
    assert!(
        found > 60,
        "only {found} lines were found: is each written as tracing::info!(…)?"
    );
}

/// Calls of ours, and of kube's watcher, that get an answer that cannot be read; and what we log about them.
async fn calls_that_fail(status: u16, body: &'static str) {
    let client = client(status, body);
    let pods = Api::<Pod>::all(client.clone());
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    tracing::warn!(target: "brupop_runtime", error = describe(&error), "a list");
    let mut watch = std::pin::pin!(watcher(pods, watcher::Config::default()));
    let error = loop {
        if let Err(error) = watch.next().await.unwrap() {
            break error;
        }
    };
    tracing::warn!(target: "brupop_runtime", error = describe(&error), "a watch");
    let authorizer = Authorizer::new(client, Requirement::Token, Refusals::default());
    let headers = [(AUTHORIZATION, HeaderValue::from_static("Bearer token"))];
    let admitted = authorizer.admit(HeaderMap::from_iter(headers)).await;
    assert_eq!(admitted, Err(StatusCode::SERVICE_UNAVAILABLE));
}

/// kube's client logs a response that it cannot read as a whole, as a warning.
#[tokio::test]
async fn no_body_of_a_response_is_logged() {
    for (status, body) in [
        (200, r#"{"items": "hunter2", "status": "hunter2"}"#),
        (201, "hunter2"),
        (502, "<p>hunter2</p>"),
    ] {
        let page = Page::default();
        let logging = to(&page, &[(FILTER_DIRECTIVE, "trace")]).unwrap();
        let logging = tracing::dispatcher::set_default(&logging);
        calls_that_fail(status, body).await;
        drop(logging);
        let output = page.text();
        assert!(!output.contains(SECRET), "{output}");
        for told in ["a list", "a watch", "a caller's token"] {
            assert!(output.contains(told), "{told} is missing: {output}");
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
