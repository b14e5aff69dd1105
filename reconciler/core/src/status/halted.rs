//! What people are told of halted versions, and what they type to resume them.

use std::collections::BTreeSet;

use brupop_api::conditions::{ConditionStatus, HALTED};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::fleet::VersionRecord;
use brupop_api::names;
use brupop_api::printable::printable;

use super::DesiredCondition;
use crate::decide::why_halted;
use crate::facts::FleetFacts;

/// What of the message about halts is for the nodes that failed, at least, in bytes.
const WHY: usize = 160;

/// The halted versions, each once; `None` if there are none.
pub fn halted_versions(records: &[VersionRecord]) -> Option<Vec<String>> {
    let versions: BTreeSet<String> = halted(records).map(|it| it.version.clone()).collect();
    (!versions.is_empty()).then(|| versions.into_iter().collect())
}

fn halted(records: &[VersionRecord]) -> impl Iterator<Item = &VersionRecord> {
    records.iter().filter(|record| record.halted_at.is_some())
}

impl DesiredCondition {
    /// The condition `Halted` of the fleet in this namespace.
    pub fn halted(namespace: &str, fleet: &FleetFacts<'_>) -> Self {
        let why: Vec<String> = halted(fleet.versions)
            .map(|record| {
                let (version, variant) = (&record.version, &record.variant);
                let why = format!("{version} for {variant}: {}", why_halted(record));
                match fleet.named_for(record) {
                    // It names an earlier halt, or none.
                    Some(named) if record.halted_at.as_deref() != Some(named) => {
                        format!("{why} (spec.resumedVersions names {named}, not this halt)")
                    }
                    _ => why,
                }
            })
            .collect();
        if why.is_empty() {
            return Self::of(
                HALTED,
                ConditionStatus::False,
                "WithinFailureBudget",
                "no version is halted",
            );
        }
        let how = how_to_resume(namespace, fleet.versions);
        let why = printable(&why.join("; "), MESSAGE_MAX.saturating_sub(how.len())).into_owned();
        Self::of(
            HALTED,
            ConditionStatus::True,
            "FailureBudgetSpent",
            &(why + &how),
        )
    }
}

/// What a person types to resume the halted versions, as the end of a sentence; empty if none can be resumed. A merge patch
/// replaces the whole list, and what stood there before is no longer needed.
fn how_to_resume(namespace: &str, records: &[VersionRecord]) -> String {
    let (all, fleet) = (halted(records).count(), names::FLEET);
    let (mut items, mut resumed) = (String::new(), 0);
    let command = |resumed: usize, items: &str| {
        let some = if resumed < all {
            format!(" with {resumed} of {all}")
        } else {
            String::new()
        };
        format!(
            r#"; to resume{some}: kubectl -n {namespace} patch brf {fleet} --type=merge -p '{{"spec":{{"resumedVersions":[{items}]}}}}'"#
        )
    };
    for record in halted(records).filter(|record| is_plain(record)) {
        let comma = if items.is_empty() { "" } else { "," };
        let VersionRecord {
            version, variant, ..
        } = record;
        let at = record.halted_at.as_deref().unwrap_or_default();
        let more = format!(
            r#"{items}{comma}{{"version":"{version}","variant":"{variant}","haltedAt":"{at}"}}"#
        );
        if command(resumed + 1, &more).len() > MESSAGE_MAX - WHY {
            break;
        }
        (items, resumed) = (more, resumed + 1);
    }
    if resumed == 0 {
        return String::new();
    }
    command(resumed, &items)
}

/// Whether nothing is in this record's words that a shell or JSON would not take for a letter. The API server lets nothing else
/// stand there; but people paste this.
fn is_plain(record: &VersionRecord) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-_".contains(&byte);
    let words = [&record.version, &record.variant];
    let mut words = words.into_iter().chain(&record.halted_at);
    words.all(|text| !text.is_empty() && text.bytes().all(plain))
}

#[cfg(test)]
mod tests;
