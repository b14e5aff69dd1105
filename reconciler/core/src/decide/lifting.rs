//! What a person types to lift halts.

use std::collections::BTreeSet;

use brupop_api::crds::{ACKNOWLEDGED_HALTS_MAX, MESSAGE_MAX};
use brupop_api::fleet::{AcknowledgedHalt, VersionRecord};
use brupop_api::names;

/// What of the message about halts is for the nodes that failed, at least, in bytes.
const WHY: usize = 160;

/// What a person types to lift the halts, as the end of a sentence; empty if no halt can be lifted. A merge patch
/// replaces the whole list, so the command names all halts, and keeps what stands there for other versions that the
/// ledger knows, as far as there is room: it has been acknowledged.
pub fn how_to_lift(
    namespace: &str,
    records: &[(&str, &VersionRecord)],
    acknowledged: &[AcknowledgedHalt],
) -> String {
    let halts: Vec<(&str, &str)> = records
        .iter()
        .filter_map(|(version, record)| Some((*version, record.halted.as_ref()?.at.as_str())))
        .collect();
    let is_halted: BTreeSet<&str> = halts.iter().map(|(version, _)| *version).collect();
    let is_known = |version: &str| records.iter().any(|(known, _)| *known == version);
    let kept = acknowledged
        .iter()
        .map(|it| (it.version.as_str(), it.halted_at.as_str()))
        .filter(|(version, _)| is_known(version) && !is_halted.contains(version));
    let (mut items, mut lifted) = (String::new(), 0);
    let mut room = MESSAGE_MAX - WHY - command(namespace, "").len();
    for (nth, (version, at)) in halts
        .iter()
        .copied()
        .chain(kept)
        .filter(is_plain)
        .enumerate()
    {
        let comma = if items.is_empty() { "" } else { "," };
        let item = format!(r#"{comma}{{"version":"{version}","haltedAt":"{at}"}}"#);
        let Some(left) = room
            .checked_sub(item.len())
            .filter(|_| nth < ACKNOWLEDGED_HALTS_MAX)
        else {
            break;
        };
        (room, items) = (left, items + &item);
        lifted += usize::from(is_halted.contains(version));
    }
    if lifted == 0 {
        return String::new();
    }
    let some = if lifted < halts.len() {
        format!(" with {lifted} of {}", halts.len())
    } else {
        String::new()
    };
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
pub(super) fn is_plain((version, at): &(&str, &str)) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-".contains(&byte);
    [version, at]
        .iter()
        .all(|text| !text.is_empty() && text.bytes().all(plain))
}
