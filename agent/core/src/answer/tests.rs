//! Tests of parsing the host's answers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn document() -> Value {
    json!({
        "update_state": "Staged",
        "available_updates": ["1.20.1", "1.20.0"],
        "chosen_update": {"arch": "x86_64", "version": "1.20.1", "variant": "aws-k8s-1.29"},
        "active_partition": {"image": {"arch": "x86_64", "version": "1.19.4", "variant": "aws-k8s-1.29"}, "next_to_boot": true},
        "staging_partition": {"image": {"arch": "x86_64", "version": "1.20.1", "variant": "aws-k8s-1.29"}, "next_to_boot": false},
        "most_recent_command": {"cmd_type": "prepare", "cmd_status": "Success", "timestamp": "2024-10-01T12:00:00.123456789Z",
            "exit_status": 0, "stderr": ""},
    })
}

fn parse(value: &Value) -> Result<UpdateStatus, String> {
    UpdateStatus::parse(value.to_string().as_bytes()).map_err(|error| error.0)
}

#[test]
fn a_status_document_is_read() {
    let status = parse(&document()).unwrap();
    let facts = status.facts();
    assert_eq!(
        (facts.state, facts.chosen, facts.staged_version),
        (UpdateState::Staged, Some("1.20.1"), Some("1.20.1"))
    );
    let last = facts.last.unwrap();
    assert_eq!(
        (last.kind, last.success, last.exit_status),
        (Some(Command::Prepare), true, Some(0))
    );
    assert_eq!(last.at.to_string(), "2024-10-01T12:00:00.123456789Z");
}

#[test]
fn the_newest_available_version_is_found() {
    let long = format!("9.0.0-{}", "a".repeat(64));
    for (available, newest) in [
        (json!(["1.9.0", "1.20.1", "1.20.0"]), Some("1.20.1")),
        (
            json!(["newest", "\u{1b}[2J", long, "1.20.1"]),
            Some("1.20.1"),
        ),
        (json!([]), None),
        (Value::Null, None),
    ] {
        let mut document = document();
        document["available_updates"] = available;
        assert_eq!(parse(&document).unwrap().facts().newest, newest);
    }
    let mut absent = document();
    absent.as_object_mut().unwrap().remove("available_updates");
    assert_eq!(parse(&absent).unwrap().facts().newest, None);
}

#[test]
fn nonsense_is_a_sentence() {
    let misshapen = |pointer, value| {
        (
            pointer,
            value,
            "it is JSON of another shape (line 1, column ",
        )
    };
    let version = |value: &str, says| ("/chosen_update/version", json!(value), says);
    let long = format!("1.2.3-{}", "a".repeat(64));
    let rows = [
        misshapen("/update_state", json!("Confused")),
        ("/update_state", Value::Null, "(line 1, column "),
        misshapen("/staging_partition/image/version", json!(7)),
        misshapen("/most_recent_command/exit_status", json!(1u64 << 40)),
        misshapen("/staging_partition", json!([])),
        misshapen("/available_updates", json!([7])),
        version("latest", "\"latest\" is not a version"),
        version("\u{1b}[2J\n", r#""\u{1b}[2J\n" is not a version"#),
        version(&"1.2.3".repeat(20), "is not a version"),
        version(&long, "is not a version"),
        (
            "/most_recent_command/timestamp",
            json!("yesterday"),
            "\"yesterday\" is not a time",
        ),
    ];
    for (pointer, value, sentence) in rows {
        let mut document = document();
        *document.pointer_mut(pointer).unwrap() = value;
        let error = parse(&document).unwrap_err();
        assert!(error.contains(sentence), "{pointer}: {error}");
    }
    let deep = "[".repeat(100_000);
    let garbage = [
        "",
        "<html>",
        "null",
        "[]",
        "{}",
        "{\"update_state\": \"Id",
        "\0",
        &deep,
    ];
    for garbage in garbage
        .map(str::as_bytes)
        .into_iter()
        .chain([&[0xff, 0xfe][..]])
    {
        assert!(
            UpdateStatus::parse(garbage).is_err() && parse_os(garbage).is_err(),
            "{garbage:?}"
        );
    }
}

#[test]
fn unknown_commands_and_outcomes_are_no_success() {
    let mut document = document();
    document["most_recent_command"]["cmd_type"] = json!("defragment");
    document["most_recent_command"]["cmd_status"] = json!("Unknown");
    document["most_recent_command"]["exit_status"] = Value::Null;
    document["most_recent_command"]["stderr"] = Value::Null;
    let status = parse(&document).unwrap();
    let last = status.facts().last.unwrap();
    assert_eq!(
        (last.kind, last.success, last.exit_status, last.stderr),
        (None, false, None, "")
    );
}

#[test]
fn boot_ids_are_trimmed_and_bounded() {
    let uuid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    assert_eq!(parse_boot_id(&format!("{uuid}\n")).as_deref(), Ok(uuid));
    for bad in ["", "\n", "a b", "é", "a\u{1b}", &"a".repeat(65)] {
        assert!(parse_boot_id(bad).is_err(), "{bad}");
    }
}

proptest! {

    #[test]
    fn bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse_os(&bytes).is_err());
        let _ = UpdateStatus::parse(&bytes);
    }
}
