//! What the default pool owns, and when it lets updates start.

use super::*;
use crate::facts::PoolFacts;
use crate::tests::world::put_ledger;
use crate::window::{self, Until};
use jiff::tz::TimeZone;

/// The default pool owns the opted-in nodes that no pool selects, by the settings' window and limit. The fleet's limit is a ceiling
/// beside that one, and does not raise it.
#[test]
fn the_settings_make_the_default_pool() {
    let windows = window::windows(
        "0 0 2 * * SAT *",
        TimeZone::UTC,
        Some(SignedDuration::from_hours(2)),
    )
    .unwrap();
    let default_pool =
        Rules::of_settings(Limit::Percent(50), windows, StepDurations::default(), false);
    let min_remaining = SignedDuration::from_mins(30);
    let policy = Policy {
        default_pool,
        durations: Durations {
            min_remaining,
            ..Durations::default()
        },
        ..Policy::default()
    };
    let (open, closes) = (Starts::Open, "2026-11-21T04:00:00Z");
    let outside = |opens| Starts::OutsideWindow(Until::At(at(opens)));
    let before = outside("2026-11-21T02:00:00Z");
    let late = "2026-11-21T03:30:00.000000001Z";
    let unlimited = u64::MAX;
    let [quarter, all] = ["25%", "100%"].map(|most| json!({"maxUnavailable": most}));
    for (fleet, now, nodes, limit, ceiling, starts, goes_on, next) in [
        (
            json!({}),
            "2026-11-21T01:00:00Z",
            6,
            3,
            unlimited,
            before,
            before,
            "2026-11-21T02:00:00Z",
        ),
        (
            json!({}),
            "2026-11-21T03:30:00Z",
            6,
            3,
            unlimited,
            open,
            open,
            late,
        ),
        (
            json!({}),
            "2026-11-21T03:30:01Z",
            6,
            3,
            unlimited,
            outside("2026-11-28T02:00:00Z"),
            open,
            closes,
        ),
        (quarter, "2026-11-21T03:00:00Z", 6, 3, 2, open, open, late),
        (all, "2026-11-21T03:00:00Z", 6, 3, 8, open, open, late),
    ] {
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
        let known = Known::of(&cluster, at(now), &policy);
        let pools = pools_at(&cluster, &known, &policy, at(now));
        let PoolFacts {
            name,
            nodes: owns,
            limit: is,
            starts: may_start,
            goes_on: may_go_on,
            ..
        } = pools.default;
        assert_eq!(
            (name, owns, is, pools.ceiling),
            ("default", nodes, limit, ceiling),
            "{fleet} {now}"
        );
        assert_eq!((may_start, may_go_on), (starts, goes_on), "{fleet} {now}");
        assert_eq!(
            pools.next.map(|next| next.to_string()).as_deref(),
            Some(next),
            "{fleet} {now}"
        );
    }
}
