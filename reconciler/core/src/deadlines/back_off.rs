//! How long a node waits after failures.

use brupop_api::shadow::LastFailure;
use jiff::SignedDuration;

use crate::decide::Abort;

/// Longest wait after failures.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(24);

/// How many times the base a node waits after a drain that failed: pods and budgets change by the hour.
const DRAIN_FACTOR: i32 = 30;

/// The wait after these failures: the base, doubled with each further failure, at most a day; after a drain that failed thirty
/// times as long. The shadow's UID adds up to an eighth, so that nodes that failed together do not come back together.
pub fn back_off(base: SignedDuration, failures: &LastFailure, uid: &str) -> SignedDuration {
    let doublings = u32::try_from(failures.count.saturating_sub(1)).unwrap_or(u32::MAX);
    let doubled = 1_i32
        .checked_shl(doublings)
        .filter(|factor| *factor > 0)
        .unwrap_or(i32::MAX);
    let factor = if Abort::is_of_drain(&failures.reason) {
        doubled.saturating_mul(DRAIN_FACTOR)
    } else {
        doubled
    };
    let wait = base
        .checked_mul(factor)
        .unwrap_or(LONGEST_BACK_OFF)
        .min(LONGEST_BACK_OFF);
    // FNV-1a: every reconciler gets the same number.
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let part = i32::try_from(hash % 128).unwrap_or(0);
    (wait + wait / 1024 * part).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(count: u64, reason: &str, uid: &str) -> SignedDuration {
        let failures = LastFailure {
            count,
            reason: reason.to_owned(),
            ..LastFailure::default()
        };
        back_off(SignedDuration::from_mins(2), &failures, uid)
    }

    #[test]
    fn the_back_off_doubles_to_a_day() {
        let of_hosts = [
            (0, 2),
            (1, 2),
            (2, 4),
            (3, 8),
            (9, 512),
            (10, 1024),
            (11, 1440),
            (u64::MAX, 1440),
        ];
        let of_drains = [
            (1, 60),
            (2, 120),
            (5, 960),
            (6, 1440),
            (31, 1440),
            (32, 1440),
            (u64::MAX, 1440),
        ];
        let of_hosts = ["FellBack", "StepFailed", ""].map(|reason| (reason, &of_hosts[..]));
        let of_drains = ["DrainTimedOut", "DrainBlocked"].map(|reason| (reason, &of_drains[..]));
        for (reason, rows) in of_hosts.into_iter().chain(of_drains) {
            for &(failures, minutes) in rows {
                let least = SignedDuration::from_mins(minutes);
                for uid in ["", "a", "2c1cbb16-7d3a-4a6e-9a0b-3f1f0c6c4b10"] {
                    let wait = wait(failures, reason, uid);
                    let most = (least + least / 8).min(LONGEST_BACK_OFF);
                    assert!(
                        (least..=most).contains(&wait),
                        "{failures} failures ({reason}): {wait:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nodes_failed_together_come_back_apart() {
        let waits: std::collections::BTreeSet<_> = (0..20)
            .map(|node| wait(1, "FellBack", &format!("uid-{node}")))
            .collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
