//! Pools that no order has a place for.

use super::a_pool as pool;
use super::*;

fn cluster(pools: &[(&str, Value)]) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, after) in pools {
        pool(name, json!({"dependsOn": after})).put(&mut cluster);
    }
    cluster
}

#[test]
fn pools_in_a_circle_are_found() {
    let after = |pool: &str| json!([{"pool": pool}]);
    let cluster = cluster(&[
        ("a", after("b")),
        ("b", after("c")),
        ("c", after("b")),
        ("d", after("nobody")),
        ("e", json!([])),
    ]);
    let why = |way: &str| format!("{CIRCLE}{way}");
    let expected = [
        ("b", why("b after c after b")),
        ("c", why("c after b after c")),
    ];
    assert_eq!(misplaced(&cluster.pools), expected.into());
}

#[test]
fn the_ledger_has_room_for_so_many_pools_that_go_first() {
    let chain = |length: usize| {
        let name = |nth: usize| format!("p{nth:02}");
        let pools: Vec<_> = (0..length)
            .map(|nth| {
                (
                    name(nth),
                    if nth == 0 {
                        json!([])
                    } else {
                        json!([{"pool": name(nth - 1)}])
                    },
                )
            })
            .collect();
        let pools: Vec<_> = pools
            .iter()
            .map(|(name, after)| (name.as_str(), after.clone()))
            .collect();
        let cluster = cluster(&pools);
        misplaced(&cluster.pools)
            .into_iter()
            .map(|(name, why)| (name.to_owned(), why))
            .collect::<Vec<_>>()
    };
    assert_eq!(chain(DONE_POOLS_MAX + 1), []);
    assert_eq!(
        chain(DONE_POOLS_MAX + 2),
        [("p17".to_owned(), TOO_MANY.to_owned())]
    );
    assert!(TOO_MANY.contains(&format!(" {DONE_POOLS_MAX} ")));
}
