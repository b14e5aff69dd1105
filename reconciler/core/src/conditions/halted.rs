//! What the fleet says of its halts: which nodes failed, and the command that lifts them, to be pasted into a shell.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::conditions::{ConditionStatus, HALTED};
use brupop_api::crds::{ACKNOWLEDGED_HALTS_MAX, MESSAGE_MAX};
use brupop_api::fleet::{AcknowledgedHalt, VersionRecord};
use brupop_api::names;
use brupop_api::printable::printable;

use super::Wanted;

/// What of a message is for the nodes that failed, at least, in bytes.
const WHY: usize = 160;

impl Wanted {
    /// The condition `Halted` of the fleet in this namespace, from what became of each version and the halts that stand
    /// in the spec as acknowledged.
    pub fn halted(
        namespace: &str,
        versions: &BTreeMap<String, VersionRecord>,
        acknowledged: &[AcknowledgedHalt],
    ) -> Self {
        let why = |(version, record): (&String, &VersionRecord)| {
            Some(format!("{version}: {}", record.halted.as_ref()?.reason))
        };
        let why: Vec<String> = versions.iter().filter_map(why).collect();
        if why.is_empty() {
            return Self::of(HALTED, ConditionStatus::False, "WithinFailureBudget", "no version is halted");
        }
        let how = advice(namespace, versions, acknowledged);
        let why = printable(&why.join("; "), MESSAGE_MAX.saturating_sub(how.len())).into_owned();
        Self::of(HALTED, ConditionStatus::True, "FailureBudgetSpent", &(why + &how))
    }
}

/// What to type to go on. A merge patch replaces the whole list, so the command names all halts, and keeps what stands
/// there for other versions that the ledger knows, as far as there is room: it has been heard.
fn advice(
    namespace: &str,
    versions: &BTreeMap<String, VersionRecord>,
    acknowledged: &[AcknowledgedHalt],
) -> String {
    let halts: Vec<(&str, &str)> = versions
        .iter()
        .filter_map(|(version, record)| Some((version.as_str(), record.halted.as_ref()?.at.as_str())))
        .collect();
    let is_halted: BTreeSet<&str> = halts.iter().map(|(version, _)| *version).collect();
    let kept = acknowledged
        .iter()
        .filter(|said| versions.contains_key(&said.version) && !is_halted.contains(said.version.as_str()))
        .map(|said| (said.version.as_str(), said.halted_at.as_str()));
    let (mut items, mut lifted) = (String::new(), 0);
    let mut room = MESSAGE_MAX - WHY - command(namespace, "").len();
    for (nth, (version, at)) in halts.iter().copied().chain(kept).filter(is_plain).enumerate() {
        let comma = if items.is_empty() { "" } else { "," };
        let item = format!(r#"{comma}{{"version":"{version}","haltedAt":"{at}"}}"#);
        let Some(left) = room.checked_sub(item.len()).filter(|_| nth < ACKNOWLEDGED_HALTS_MAX) else { break };
        (room, items) = (left, items + &item);
        lifted += usize::from(is_halted.contains(version));
    }
    if lifted == 0 {
        return String::new();
    }
    let some =
        if lifted < halts.len() { format!(" with {lifted} of {}", halts.len()) } else { String::new() };
    format!("; to go on{some}: {}", command(namespace, &items))
}

fn command(namespace: &str, items: &str) -> String {
    let fleet = names::FLEET;
    format!(
        r#"kubectl -n {namespace} patch brf {fleet} --type=merge -p '{{"spec":{{"acknowledgedHalts":[{items}]}}}}'"#
    )
}

/// Is there nothing in this version and time that a shell or JSON would not take for a letter? The API server lets
/// nothing else stand there; but people paste this.
fn is_plain((version, at): &(&str, &str)) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-".contains(&byte);
    [version, at].iter().all(|text| !text.is_empty() && text.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::fleet::Halt;
    use brupop_api::printable::is_printable;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn halted(at: &str, reason: &str) -> VersionRecord {
        let halt = Halt { at: at.to_owned(), reason: reason.to_owned() };
        VersionRecord { halted: Some(halt), ..VersionRecord::default() }
    }

    fn said(version: &str, halted_at: &str) -> AcknowledgedHalt {
        AcknowledgedHalt { version: version.to_owned(), halted_at: halted_at.to_owned() }
    }

    fn message(versions: &[(&str, VersionRecord)], acknowledged: &[AcknowledgedHalt]) -> String {
        let versions = versions.iter().map(|(version, record)| ((*version).to_owned(), record.clone()));
        Wanted::halted("ns", &versions.collect(), acknowledged).message
    }

    /// What the message's command would write.
    fn patch(message: &str) -> Value {
        let (_, patch) = message.split_once(" -p '").unwrap();
        serde_json::from_str(patch.strip_suffix('\'').unwrap()).unwrap()
    }

    #[test]
    fn one_command_lifts_all_halts_and_keeps_what_was_said() {
        assert_eq!(message(&[("1.0.0", VersionRecord::default())], &[]), "no version is halted");
        let one = [("1.20.0", halted("2026-11-21T02:00:00Z", "node-0 (FellBack)"))];
        assert_eq!(
            message(&one, &[said("1.20.0", "2026-11-20T00:00:00Z"), said("0.9.0", "2026-11-20T00:00:00Z")]),
            "1.20.0: node-0 (FellBack); to go on: kubectl -n ns patch brf fleet --type=merge -p \
             '{\"spec\":{\"acknowledgedHalts\":[{\"version\":\"1.20.0\",\"haltedAt\":\"2026-11-21T02:00:00Z\"}]}}'"
        );
        let [one] = one;
        let two = [
            one,
            ("1.21.0", halted("2026-11-22T02:00:00Z", "node-1 (FellBack)")),
            ("1.19.0", VersionRecord::default()),
        ];
        let message = message(&two, &[said("1.19.0", "2026-11-01T00:00:00Z")]);
        assert!(message.starts_with("1.20.0: node-0 (FellBack); 1.21.0: node-1 (FellBack); "), "{message}");
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
        let versions: BTreeMap<String, VersionRecord> =
            (0..64).map(|nth| (version(nth), halted("2026-11-21T02:00:00Z", &"é".repeat(256)))).collect();
        let message = Wanted::halted(&"n".repeat(63), &versions, &[]).message;
        assert!((900..=MESSAGE_MAX).contains(&message.len()), "{}", message.len());
        let named = patch(&message)["spec"]["acknowledgedHalts"].as_array().unwrap().len();
        assert!(named > 8 && message.contains(&format!("…; to go on with {named} of 64: ")), "{message}");
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
            let message = Wanted::halted("ns", &versions, &acknowledged).message;
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
}
