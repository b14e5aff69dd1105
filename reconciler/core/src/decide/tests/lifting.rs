//! The command that lifts halts, as the fleet's condition names it.

use std::collections::BTreeMap;

use brupop_api::crds::{ACKNOWLEDGED_HALTS_MAX, MESSAGE_MAX};
use brupop_api::fleet::{AcknowledgedHalt, VersionRecord};

use crate::decide::lifting::is_plain;
use crate::status::DesiredCondition;
use brupop_api::fleet::Halt;
use brupop_api::printable::is_printable;
use proptest::prelude::*;
use serde_json::{Value, json};

fn halted(at: &str, reason: &str) -> VersionRecord {
    let halt = Halt {
        at: at.to_owned(),
        reason: reason.to_owned(),
        ..Halt::default()
    };
    VersionRecord {
        halted: Some(halt),
        ..VersionRecord::default()
    }
}

fn said(version: &str, halted_at: &str) -> AcknowledgedHalt {
    AcknowledgedHalt {
        version: version.to_owned(),
        halted_at: halted_at.to_owned(),
    }
}

fn message(versions: &[(&str, VersionRecord)], acknowledged: &[AcknowledgedHalt]) -> String {
    let versions = versions
        .iter()
        .map(|(version, record)| ((*version).to_owned(), record.clone()));
    DesiredCondition::halted("ns", &versions.collect(), acknowledged).message
}

/// What the message's command would write.
fn patch(message: &str) -> Value {
    let (_, patch) = message.split_once(" -p '").unwrap();
    serde_json::from_str(patch.strip_suffix('\'').unwrap()).unwrap()
}

#[test]
fn one_command_lifts_all_halts() {
    assert_eq!(
        message(&[("1.0.0", VersionRecord::default())], &[]),
        "no version is halted"
    );
    let one = [(
        "1.20.0",
        halted("2026-11-21T02:00:00Z", "node-0 (FellBack)"),
    )];
    assert_eq!(
        message(
            &one,
            &[
                said("1.20.0", "2026-11-20T00:00:00Z"),
                said("0.9.0", "2026-11-20T00:00:00Z")
            ]
        ),
        "1.20.0: node-0 (FellBack); to go on: kubectl -n ns patch brf fleet --type=merge -p \
         '{\"spec\":{\"acknowledgedHalts\":[{\"version\":\"1.20.0\",\"haltedAt\":\"2026-11-21T02:00:00Z\"}]}}'"
    );
    let [one] = one;
    let two = [
        one,
        (
            "1.21.0",
            halted("2026-11-22T02:00:00Z", "node-1 (FellBack)"),
        ),
        ("1.19.0", VersionRecord::default()),
    ];
    let message = message(&two, &[said("1.19.0", "2026-11-01T00:00:00Z")]);
    assert!(
        message.starts_with("1.20.0: node-0 (FellBack); 1.21.0: node-1 (FellBack); "),
        "{message}"
    );
    assert_eq!(
        patch(&message),
        json!({"spec": {"acknowledgedHalts": [
            {"version": "1.20.0", "haltedAt": "2026-11-21T02:00:00Z"},
            {"version": "1.21.0", "haltedAt": "2026-11-22T02:00:00Z"},
            {"version": "1.19.0", "haltedAt": "2026-11-01T00:00:00Z"},
        ]}})
    );
}

#[test]
fn a_command_is_never_cut() {
    let version = |nth: usize| format!("1.{nth}.0");
    let versions: BTreeMap<String, VersionRecord> = (0..64)
        .map(|nth| {
            (
                version(nth),
                halted("2026-11-21T02:00:00Z", &"é".repeat(256)),
            )
        })
        .collect();
    let message = DesiredCondition::halted(&"n".repeat(63), &versions, &[]).message;
    assert!(
        (900..=MESSAGE_MAX).contains(&message.len()),
        "{}",
        message.len()
    );
    let named = patch(&message)["spec"]["acknowledgedHalts"]
        .as_array()
        .unwrap()
        .len();
    assert!(
        named > 8 && message.contains(&format!("…; to go on with {named} of 64: ")),
        "{message}"
    );
}

proptest! {
    /// Whatever stands in the ledger and the spec: the message can be pasted, and the patch be taken.
    #[test]
    fn nothing_gets_out_of_its_quotes(
        texts in prop::collection::vec(("[0-9a.'\" \\\\$(){}]{0,6}", "[0-9TZ:'\"\n]{0,6}", any::<bool>()), 0..90),
        long in any::<bool>(),
    ) {
        let mut versions = BTreeMap::new();
        let mut acknowledged = vec![];
        for (version, at, is_said) in &texts {
            let version = if long { version.repeat(10) } else { version.clone() };
            if *is_said {
                acknowledged.push(said(&version, at));
                versions.entry(version).or_insert_with(VersionRecord::default);
            } else {
                versions.insert(version, halted(at, "node-0 (FellBack)"));
            }
        }
        let message = DesiredCondition::halted("ns", &versions, &acknowledged).message;
        prop_assert!(message.len() <= MESSAGE_MAX && is_printable(&message), "{message}");
        if versions.values().all(|record| record.halted.is_none()) {
            return Ok(());
        }
        let Some((_, command)) = message.rsplit_once("kubectl -n ns ") else {
            let can_be = |(version, it): (&String, &VersionRecord)| {
                it.halted.as_ref().is_some_and(|halt| is_plain(&(version, &halt.at)))
            };
            prop_assert!(!versions.iter().any(can_be), "{message}");
            return Ok(());
        };
        prop_assert_eq!(command.matches('\'').count(), 2, "{}", command);
        let patch = patch(&message);
        let list = patch["spec"]["acknowledgedHalts"].as_array().unwrap();
        prop_assert!(list.len() <= ACKNOWLEDGED_HALTS_MAX);
    }
}
