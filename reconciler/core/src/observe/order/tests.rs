//! For whom it counts that a pool is done with a version.

use super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::policy::USUAL;
use crate::tests::world::{self, NOW, known, later as at, pool, read};
use crate::times::Ahead;
use serde_json::json;

#[test]
fn a_soak_is_over_when_it_has_passed_once() {
    let soak = SignedDuration::from_secs(60);
    let mut clock = Clock::new(at(0).parse().unwrap(), Ahead::NONE);
    let mut due = |done: Option<Done>, soak| {
        over(["canary", "1.0.0"], done.as_ref(), soak, &mut clock).map(|at| at.to_string())
    };
    let done = |since: Option<i64>, longest_seconds| {
        Some(Done {
            since: since.map(at),
            longest_seconds,
        })
    };
    let at_once = Some(Timestamp::MIN.to_string());
    assert_eq!(due(done(Some(0), 0), soak), Some(at(60)));
    assert_eq!(due(done(Some(0), 59), soak), Some(at(60)));
    assert_eq!(due(done(None, 59), soak), None);
    assert_eq!(
        due(done(None, 60), soak),
        at_once,
        "nodes that join later change nothing"
    );
    assert_eq!(
        due(done(Some(3600), 0), soak),
        Some(at(60)),
        "the clock of a leader was ahead"
    );
    assert_eq!(due(None, soak), None);
    let moment = due(Some(Done::default()), SignedDuration::ZERO);
    assert_eq!(
        moment, at_once,
        "it was done for less than a second, which is enough"
    );
}

#[test]
fn the_first_pool_that_is_not_done_is_named() {
    let mut cluster = Cluster::default();
    let after = json!([{"pool": "canary", "soak": "1m"}, {"pool": "stage"}]);
    for (name, after) in [("canary", json!([])), ("stage", json!([])), ("web", after)] {
        pool(name, json!({"dependsOn": after})).put(&mut cluster);
    }
    let record = |done| -> VersionRecord { read(json!({"donePools": done})) };
    let versions = BTreeMap::from([
        (
            "1.0.0".to_owned(),
            record(json!({"canary": {"since": at(-60)}, "stage": {"since": at(-1)}})),
        ),
        (
            "1.1.0".to_owned(),
            record(json!({"canary": {"since": at(-60)}})),
        ),
        (
            "1.2.0".to_owned(),
            record(json!({"canary": {"since": at(-59)}, "stage": {"since": at(-1)}})),
        ),
    ]);
    let known = known(&cluster);
    let mut pools = crate::observe::pools_at(&cluster, &known, &USUAL, world::at(NOW));
    let mut clock = Clock::new(world::at(NOW), Ahead::NONE);
    apply(&mut pools.all, Some(&versions), &mut clock);
    assert_eq!(clock.next.map(|next| next.to_string()), Some(at(1)));
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
