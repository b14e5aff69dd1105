//! Tests of messages about halted versions.

use brupop_api::fleet::ResumedVersion;
use brupop_api::printable::is_printable;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

fn record(version: &str, variant: &str, halted_at: Option<&str>) -> VersionRecord {
    let failure = json!({"node": "node-0", "at": "t", "reason": "FellBack"});
    serde_json::from_value(json!({
        "version": version, "variant": variant, "haltedAt": halted_at, "failures": [failure],
    }))
    .unwrap()
}

fn message(versions: &[VersionRecord], resumed: &[ResumedVersion]) -> String {
    let fleet = FleetFacts {
        versions,
        resumed,
        ..FleetFacts::EXAMPLE
    };
    let halts: Vec<_> = versions.iter().collect();
    halted("ns", &fleet, &halts).message
}

/// Returns what the message's command would write.
fn patch(message: &str) -> Value {
    let (_, patch) = message.split_once(" -p '").unwrap();
    serde_json::from_str(patch.strip_suffix('\'').unwrap()).unwrap()
}

#[test]
fn one_command_resumes_all_halted_versions() {
    let at = "2026-11-21T02:00:00Z";
    assert_eq!(
        message(&[], &[]),
        "no version that a node would be updated to is halted"
    );
    let versions = [
        record("1.20.0", "metal", Some("2026-11-22T02:00:00Z")),
        record("1.20.0", "aws", Some(at)),
    ];
    assert_eq!(
        halted_versions(&versions.iter().collect::<Vec<_>>()).unwrap(),
        ["1.20.0"],
        "each once"
    );
    assert_eq!(
        message(&versions[1..], &[]),
        "1.20.0 for aws: it failed on node-0 (FellBack); to resume: kubectl -n ns patch brf fleet --type=merge -p \
         '{\"spec\":{\"resumedVersions\":[{\"version\":\"1.20.0\",\"variant\":\"aws\",\"haltedAt\":\"2026-11-21T02:00:00Z\"}]}}'"
    );
    let both = patch(&message(&versions, &[]));
    assert_eq!(both["spec"]["resumedVersions"].as_array().unwrap().len(), 2);
    let named = ResumedVersion {
        version: "1.20.0".to_owned(),
        variant: "aws".to_owned(),
        halted_at: "2026-11-20T00:00:00Z".to_owned(),
    };
    assert!(
        message(&versions, &[named])
            .contains("(spec.resumedVersions names 2026-11-20T00:00:00Z, not this halt)")
    );
}

proptest! {
    /// Whatever stands in the ledger: the message can be pasted, and the patch be taken.
    #[test]
    fn nothing_gets_out_of_its_quotes(
        texts in prop::collection::vec(("[0-9a.'\" \\\\$(){}]{0,6}", "[a-z'{]{1,3}", "[0-9TZ:'\"\n]{0,6}"), 0..90),
        long in any::<bool>(),
    ) {
        let records: Vec<VersionRecord> = texts
            .iter()
            .map(|(version, variant, at)| record(&version.repeat(if long { 10 } else { 1 }), variant, Some(at)))
            .collect();
        let message = message(&records, &[]);
        prop_assert!(message.len() <= MESSAGE_MAX && is_printable(&message), "{message}");
        let Some((_, command)) = message.rsplit_once("kubectl -n ns ") else {
            prop_assert!(!records.iter().any(is_plain), "{message}");
            return Ok(());
        };
        prop_assert_eq!(command.matches('\'').count(), 2, "{}", command);
        let named = patch(&message)["spec"]["resumedVersions"].as_array().unwrap().len();
        let all = records.len();
        let some = format!("; to resume with {named} of {all}: ");
        prop_assert!(named == all || message.contains(&some));
    }
}
