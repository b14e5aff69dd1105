//! By which updates a shot of the schedule is known.

use super::*;
use crate::schedule::Schedule;
use jiff::tz::TimeZone;

#[test]
fn by_which_updates_a_shot_is_known() {
    let asked_for = json!({"metadata": {"annotations": {names::UPDATE_NOW_ANNOTATION: "true"}}});
    let reboots = |since: &str| json!({"state": "RebootedIntoUpdate", "state_transition_timestamp": since});
    let (soon, long_ago) = ("2026-11-21T03:59:00Z", "2026-11-21T03:00:00Z");
    let fires = |cron| Schedule::new(cron, TimeZone::UTC, None).unwrap();
    let nightly = fires("0 0 3 * * * *");
    for (node, spec, runs) in [
        (
            json!({}),
            json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": long_ago}),
            true,
        ),
        (json!({}), reboots(soon), true),
        (json!({}), reboots(long_ago), false),
        (asked_for.clone(), reboots(soon), false),
    ] {
        let mut snapshot = snapshot([("n", node)], [("brs-n", spec.clone(), json!({}))]);
        assert!(!snapshot.shot_runs(&nightly, &durations(), NOW.parse().unwrap()), "no slot");
        let slots = json!({"brs-n": {"uid": "u", "attempt": 1}});
        let ledger = json!({"metadata": {}, "spec": {}, "status": {"slots": slots}});
        snapshot.ledger = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
        assert_eq!(snapshot.shot_runs(&nightly, &durations(), NOW.parse().unwrap()), runs, "{spec}");
    }
    let rests = |schedule: &Schedule, pause: i64, node: &Value| {
        let mut snapshot = snapshot([("n", node.clone())], []);
        let ledger = json!({"metadata": {}, "spec": {}, "status": {"lastFinished": soon}});
        snapshot.ledger = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
        let durations = Durations { pause: SignedDuration::from_secs(pause), ..durations() };
        snapshot.shot_runs(schedule, &durations, NOW.parse().unwrap())
    };
    assert!(rests(&nightly, 120, &json!({})), "between two of its nodes");
    assert!(!rests(&nightly, 30, &json!({})));
    assert!(!rests(&nightly, 120, &asked_for), "the one that has ended may be this one");
    let mondays = fires("0 0 3 * * MON *");
    assert!(!rests(&mondays, 120, &json!({})), "a person had asked for it, and took that back");
}
