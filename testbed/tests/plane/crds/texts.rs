//! Which characters the texts of both custom resources may have: people read them in terminals.

use super::Half::{FleetStatus, ShadowSpec, ShadowStatus};
use super::{Row, TIME, with_condition};
use serde_json::{Value as Json, json};

/// Characters that no sentence for people may have: ends of Unicode's ranges of them, and the best known.
const UNPRINTABLE: &str = "\0\u{7}\t\n\r\u{1b}\u{1f}\u{7f}\u{80}\u{85}\u{9b}\u{9f}\u{ad}\u{600}\u{61c}\u{70f}\
    \u{180e}\u{200b}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2064}\u{2066}\u{206f}\
    \u{feff}\u{fff9}\u{fffb}\u{13430}\u{1d173}\u{e0001}\u{e007f}";

fn message(text: &str) -> Json {
    json!({ "message": text })
}

pub fn rows() -> Vec<Row> {
    let row = |says, half, after, refusal| (says, half, json!({}), after, refusal);
    let mut rows: Vec<Row> = [accepted(), refused_of_shadows(), refused_of_fleets()].concat();
    for character in UNPRINTABLE.chars() {
        let (text, not) = (
            format!("said{character}allowed"),
            "message in body should match",
        );
        rows.push(row(
            "a character of a message",
            ShadowStatus,
            message(&text),
            Err(not),
        ));
    }
    rows
}

fn accepted() -> Vec<Row> {
    let printable = r#"~ «é» \u{1b} \n "q" '日本' ́"#;
    let boot_id = "5f0c9b1e-0000-4000-8000-00000000000A";
    let zoned = "2026-01-01T02:00:00.123456789+02:00";
    [
        (
            "1,024 characters of four bytes",
            ShadowStatus,
            message(&"🦀".repeat(1024)),
        ),
        ("printable characters", ShadowStatus, message(printable)),
        (
            "printable characters in a condition",
            ShadowStatus,
            with_condition("message", printable),
        ),
        (
            "a boot id as kernels have it",
            ShadowSpec,
            json!({ "baseline_boot_id": boot_id }),
        ),
        (
            "a time with nanoseconds and zone",
            ShadowSpec,
            json!({ "state_transition_timestamp": zoned }),
        ),
    ]
    .map(|(says, half, after)| (says, half, json!({}), after, Ok(())))
    .into()
}

/// The API server's own check of times ends at a second `t`.
fn refused_of_shadows() -> Vec<Row> {
    let followed = format!("{TIME}t\u{1b}[2J\nforged");
    let failed = |reason: &str| json!({"last_failure": {"count": 1, "at": TIME, "reason": reason}});
    [
        (
            "a failure in two words",
            ShadowSpec,
            failed("fell back"),
            "last_failure.reason",
        ),
        (
            "a boot id in colour",
            ShadowSpec,
            json!({"reboot_granted_boot_id": "\u{1b}[31mb"}),
            "reboot_granted_boot_id",
        ),
        (
            "a time with more behind it",
            ShadowSpec,
            json!({"state_transition_timestamp": followed}),
            "state_transition_timestamp",
        ),
        (
            "a boot of no letters",
            ShadowStatus,
            json!({"boot_id": "ａ"}),
            "boot_id",
        ),
        (
            "a version of two lines",
            ShadowStatus,
            json!({"current_version": "1.0.0\n"}),
            "current_version",
        ),
    ]
    .map(refused)
    .into()
}

fn refused_of_fleets() -> Vec<Row> {
    let record = |field: &str, value: Json| json!({"versions": [{"version": "1.20.0", "variant": "aws", field: value}]});
    let failure = json!([{"node": "n\u{1b}", "at": TIME, "reason": "FellBack"}]);
    [
        (
            "a halt at two lines",
            FleetStatus,
            record("haltedAt", json!("a\nb")),
            "haltedAt",
        ),
        (
            "a failure on a node in colour",
            FleetStatus,
            record("failures", failure),
            "failures[0].node",
        ),
    ]
    .map(refused)
    .into()
}

/// A row that is refused for the characters of this field.
fn refused((says, half, after, field): (&'static str, super::Half, Json, &str)) -> Row {
    // The row's expectation lives as long as the test.
    (
        says,
        half,
        json!({}),
        after,
        Err(format!("{field} in body should match").leak()),
    )
}
