//! In which boot a host is, on facts of the Node and of our own spec.

use brupop_api::facts::ShadowFacts;

use crate::facts::NodeFacts;

/// In which boot the host is, on facts of the Node alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Boot {
    /// Still in the boot from which the update began (or was granted).
    Same,
    /// In another boot, with the wanted version.
    IntoUpdate,
    /// In another boot, with another version.
    IntoOther,
    /// In another boot, and the Node does not say with which version.
    IntoUnknown,
}

/// In which boot the host of this node is.
pub(super) fn boot(node: &NodeFacts<'_>, shadow: &ShadowFacts<'_>) -> Boot {
    let from = shadow
        .spec
        .reboot_granted_boot_id
        .or(shadow.spec.baseline_boot_id);
    match (from == Some(node.boot_id), node.version) {
        (true, _) => Boot::Same,
        (false, None) => Boot::IntoUnknown,
        (false, version) if version == shadow.spec.version => Boot::IntoUpdate,
        (false, Some(_)) => Boot::IntoOther,
    }
}

/// Whether the host has begun the reboot that we granted: its agent claimed it, or the Node names another boot.
pub(super) fn has_begun_reboot(node: &NodeFacts<'_>, shadow: &ShadowFacts<'_>) -> bool {
    let in_another = |granted| granted != node.boot_id && !node.boot_id.is_empty();
    shadow.is_claimed() || shadow.spec.reboot_granted_boot_id.is_some_and(in_another)
}
