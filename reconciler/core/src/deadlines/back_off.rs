//! How long a node waits after failures.

use jiff::SignedDuration;

/// Longest wait after failures.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(24);

/// The wait after this many failures: the base, doubled with each further failure, at most a day. The shadow's UID adds
/// up to an eighth, so that nodes that failed together do not come back together.
pub fn back_off(base: SignedDuration, failures: u64, uid: &str) -> SignedDuration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_i32.checked_shl(doublings).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
    let wait = base.checked_mul(factor).unwrap_or(LONGEST_BACK_OFF).min(LONGEST_BACK_OFF);
    // FNV-1a: every reconciler gets the same number.
    let hash =
        uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let part = i32::try_from(hash % 128).unwrap_or(0);
    (wait + wait / 1024 * part).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_to_a_day() {
        let base = SignedDuration::from_mins(2);
        for (failures, minutes) in
            [(0, 2), (1, 2), (2, 4), (3, 8), (9, 512), (10, 1024), (11, 1440), (32, 1440), (u64::MAX, 1440)]
        {
            let least = SignedDuration::from_mins(minutes);
            for uid in ["", "a", "2c1cbb16-7d3a-4a6e-9a0b-3f1f0c6c4b10"] {
                let wait = back_off(base, failures, uid);
                let most = (least + least / 8).min(LONGEST_BACK_OFF);
                assert!((least..=most).contains(&wait), "{failures} failures: {wait:?}");
            }
        }
    }

    #[test]
    fn nodes_failed_together_come_back_apart() {
        let waits: std::collections::BTreeSet<_> =
            (0..20).map(|node| back_off(SignedDuration::from_mins(2), 1, &format!("uid-{node}"))).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
