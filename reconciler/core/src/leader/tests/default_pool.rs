//! The nodes of the default pool, and the times at which it lets updates start.

use super::*;
use crate::pool::PoolFacts;
use crate::tests::world::{put_ledger, rows};
use crate::window::{self, Until};
use jiff::SignedDuration;
use jiff::tz::TimeZone;

/// The default pool owns the opted-in nodes that no pool selects, by the settings' window and limit. The fleet's limit is a ceiling
/// beside that one, and does not raise it.
#[test]
fn the_settings_make_the_default_pool() {
    let two_hours = Some(SignedDuration::from_hours(2));
    let windows = window::windows("0 0 2 * * SAT *", TimeZone::UTC, two_hours).unwrap();
    let default_pool = Rules::of_settings(Limit::Percent(50), windows, StepDurations::default());
    let policy = Policy {
        default_pool,
        ..Policy::default()
    };
    let (open, closes) = (Starts::Open, "2026-11-21T04:00:00Z");
    let opens = "2026-11-21T02:00:00Z";
    let before = Starts::OutsideWindow(Until::At(at(opens)));
    let (night, unlimited) = ("2026-11-21T03:00:00Z", u64::MAX);
    let [quarter, all] = ["25%", "100%"].map(|most| json!({"maxUnavailable": most}));
    for (fleet, now, nodes, limit, ceiling, starts, next) in rows! {
        json!({}), "2026-11-21T01:00:00Z", 6, 3, unlimited, before => opens;
        json!({}), night, 6, 3, unlimited, open => closes;
        quarter, night, 6, 3, 2, open => closes;
        all, night, 6, 3, 8, open => closes;
    } {
        let mut cluster = Cluster::default();
        for name in 0..8 {
            let labels = if name < 2 {
                json!({"tier": "web"})
            } else {
                json!({})
            };
            node(&format!("n{name}"), &labels).put(&mut cluster);
        }
        a_pool("web", json!({"nodeSelector": tier("web")})).put(&mut cluster);
        put_ledger(&mut cluster, fleet.clone(), json!({}));
        let mut known = LeaderState::default();
        known.prepare(&mut cluster, at(now), &policy);
        let pools = pools_at(&cluster, &known, &policy, at(now));
        let PoolFacts {
            name,
            nodes: owns,
            limit: is,
            starts: may_start,
            ..
        } = pools.default;
        assert_eq!(
            (name, owns, is, pools.ceiling),
            ("default", nodes, limit, ceiling),
            "{fleet} {now}"
        );
        assert_eq!(may_start, starts, "{fleet} {now}");
        assert_eq!(
            pools.clock.next.map(|next| next.to_string()).as_deref(),
            Some(next),
            "{fleet} {now}"
        );
    }
}
