//! How many nodes are up to date, how many are behind, and how many are being updated: the columns of `kubectl get
//! brf`.

use brupop_api::fleet::Counts;

use crate::facts::{FleetFacts, NodeView};

/// The counts of the fleet's status. A node that cannot look for updates is neither up to date nor behind.
pub fn counts(fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> Counts {
    let in_use = u64::try_from(fleet.slots.len()).unwrap_or(u64::MAX);
    let mut counts = Counts { in_use, ..Counts::default() };
    for view in views {
        counts.nodes += u64::from(view.node.is_some_and(|node| node.labelled));
        let Some(shadow) = view.shadow.filter(|shadow| shadow.status.current_version.is_some()) else {
            continue;
        };
        if view.slot(fleet).is_some() {
            continue;
        }
        counts.pending += u64::from(shadow.update().is_some());
        counts.updated += u64::from(shadow.update().is_none() && shadow.status.refresh_failed().is_none());
    }
    counts
}
