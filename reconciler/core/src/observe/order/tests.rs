//! For whom it counts that a pool is done with a version.

use super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::policy::USUAL;
use crate::tests::world::{self, NOW, known, later as at, pool, read};
use serde_json::json;

#[test]
fn a_soak_is_over_when_it_has_passed_once() {
    let soak = SignedDuration::from_secs(60);
    let now: Timestamp = at(0).parse().unwrap();
    let over = |since: Option<i64>, longest_seconds| {
        over(Some(&Done { since: since.map(at), longest_seconds }), soak, now).map(|at| at.to_string())
    };
    assert_eq!(over(Some(0), 0), Some(at(60)));
    assert_eq!(over(Some(0), 59), Some(at(60)));
    assert_eq!(over(None, 59), None);
    assert_eq!(over(None, 60), Some(Timestamp::MIN.to_string()), "nodes that join later change nothing");
    assert_eq!(over(Some(3600), 0), Some(at(60)), "the clock of a leader was ahead");
    assert_eq!(super::over(None, soak, now), None);
    let at_once = super::over(Some(&Done::default()), SignedDuration::ZERO, now);
    assert_eq!(at_once, Some(Timestamp::MIN), "it was done for less than a second, which is enough");
}

#[test]
fn the_first_pool_that_is_not_done_is_named() {
    let mut cluster = Cluster::default();
    let after = json!([{"pool": "canary", "soak": "1m"}, {"pool": "stage"}]);
    for (name, after) in [("canary", json!([])), ("stage", json!([])), ("web", after)] {
        pool(name, json!({"after": after})).put(&mut cluster);
    }
    let record = |done| -> VersionRecord { read(json!({"donePools": done})) };
    let versions = BTreeMap::from([
        ("1.0.0".to_owned(), record(json!({"canary": {"since": at(-60)}, "stage": {"since": at(-1)}}))),
        ("1.1.0".to_owned(), record(json!({"canary": {"since": at(-60)}}))),
        ("1.2.0".to_owned(), record(json!({"canary": {"since": at(-59)}, "stage": {"since": at(-1)}}))),
    ]);
    let known = known(&cluster);
    let mut pools = crate::observe::pools_at(&cluster, &known, &USUAL, world::at(NOW));
    let next = apply(&mut pools.all, Some(&versions), world::at(NOW));
    assert_eq!(next.map(|next| next.to_string()), Some(at(1)));
    let web = &pools.all[2];
    let soaks = FirstPoolStanding::Soaking(at(1).parse().unwrap());
    for (version, waits_for) in [
        ("1.0.0", None),
        ("1.1.0", Some(("stage", FirstPoolStanding::NotDone))),
        ("1.2.0", Some(("canary", soaks))),
        ("2.0.0", Some(("canary", FirstPoolStanding::NotDone))),
    ] {
        let first = waits_for.map(|(pool, standing)| FirstPool { pool, standing });
        assert_eq!(web.waits_for(version), first, "{version}");
    }
    assert_eq!(pools.all[0].waits_for("2.0.0"), None);
}
