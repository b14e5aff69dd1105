//! While no node has reached a version, only as many nodes try it at once as may fail before it is halted.

use std::collections::BTreeMap;

use super::versions::Versions;
use crate::facts::{FleetFacts, NodeView};

/// How many nodes are trying each version.
pub(super) struct Canaries<'a> {
    trying: BTreeMap<&'a str, u64>,
    /// How many more may begin with a version, if that is limited.
    room: BTreeMap<&'a str, Option<u64>>,
    unknown: Option<u64>,
}

impl<'a> Canaries<'a> {
    /// From those that keep their slots (`holding`), and from what becomes of the records in this pass.
    pub(super) fn of(fleet: &FleetFacts<'a>, versions: &Versions<'a>, holding: &[NodeView<'a>]) -> Self {
        let mut trying: BTreeMap<&'a str, u64> = BTreeMap::new();
        for view in holding {
            let slot = view.slot(fleet).filter(|slot| !slot.counted && !view.time.canary_overdue);
            let version = slot.and_then(|slot| slot.version.as_deref());
            if let Some(version) = version {
                *trying.entry(version).or_default() += 1;
            }
        }
        let room = versions.may_still_fail(fleet);
        Self { trying, room, unknown: fleet.budget.unproven }
    }

    /// May one more node begin with this version? If so, it counts from now on.
    pub(super) fn take(&mut self, version: &'a str) -> bool {
        let trying = self.trying.entry(version).or_default();
        let most = self.room.get(version).copied().unwrap_or(self.unknown);
        let takes = most.is_none_or(|most| *trying < most);
        *trying += u64::from(takes);
        takes
    }
}
