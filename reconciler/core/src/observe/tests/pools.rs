//! For whom it counts that a pool is done with a version.

use crate::cluster::Watched as _;
use crate::objects::Ahead;
use crate::objects::Clock;
use crate::observe::*;
use crate::rules::USUAL;
use crate::tests::world::{self, NOW, known, later as at, pool, read};
use serde_json::json;

#[test]
fn the_first_pool_that_is_not_done_is_named() {
    let mut cluster = Cluster::default();
    let after = json!([{"pool": "canary", "soak": "1m"}, {"pool": "stage"}]);
    for (name, after) in [("canary", json!([])), ("stage", json!([])), ("web", after)] {
        pool(name, json!({"dependsOn": after})).put(&mut cluster);
    }
    let done = |pool: &str, version: &str, since| json!({"pool": pool, "version": version, "since": at(since)});
    let ledger: BottlerocketFleetStatus = read(json!({"slots": {}, "donePools": [
        done("canary", "1.0.0", -60),
        done("stage", "1.0.0", -1),
        done("canary", "1.1.0", -60),
        done("canary", "1.2.0", -59),
        done("stage", "1.2.0", -1),
    ]}));
    let known = known(&cluster);
    let mut pools = pools_at(&cluster, &known, &USUAL, world::at(NOW));
    let mut clock = Clock::new(world::at(NOW), Ahead::NONE);
    await_first_pools(&mut pools.all, &ledger, &mut clock);
    assert_eq!(clock.next.map(|next| next.to_string()), Some(at(1)));
    let web = &pools.all[2];
    let soaks = FirstPool::Soaking("canary", at(1).parse().unwrap());
    for (version, waits_for) in [
        ("1.0.0", None),
        ("1.1.0", Some(FirstPool::NotDone("stage"))),
        ("1.2.0", Some(soaks)),
        ("2.0.0", Some(FirstPool::NotDone("canary"))),
    ] {
        assert_eq!(web.waits_for(version), waits_for, "{version}");
    }
    assert_eq!(pools.all[0].waits_for("2.0.0"), None);
}
