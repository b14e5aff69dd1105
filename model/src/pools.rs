//! The pools: what is said of them, and which of them steers a node.

use brupop_api::BottlerocketFleetStatus;
use brupop_core::facts::{FirstPool, NodeView, Owner, PoolFacts};
use brupop_core::leader::Ahead;
use brupop_core::objects::Clock;
use brupop_core::observe::await_first_pools;
use brupop_core::rules::Rules;
use brupop_core::window::{Starts, Until};
use std::sync::LazyLock;

use crate::objects::{NODES_MAX, POOLS, VERSIONS, small};
use crate::state::{Config, Safeguard};
use crate::tables::{self, Table, once};

/// Number of nodes of a pool that may be updated at once.
pub const POOL_LIMIT: u64 = 1;

/// A statement about a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool {
    pub gone: bool,
    /// It is paused; the default pool is outside its window.
    pub paused: bool,
}

/// The two pools, and the default pool. The second one selects every node, and the first one, of a higher priority, those
/// labelled for it.
pub type Pools = [Pool; 3];

/// The place of the default pool.
pub const DEFAULT: usize = 2;

/// Whether the second pool depends on the first, and whether the first has finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Turn {
    Any,
    Waits,
    Done,
}

/// The default pool as a leader sees it, who sees this of the pools: perhaps outside its window.
pub(crate) fn default_facts(config: &Config, pools: Pools) -> &'static PoolFacts<'static> {
    thread_local! { static FACTS: Table<(u64, bool), PoolFacts<'static>> = Table::default(); }
    let (limit, closed) = (config.limit, pools[DEFAULT].paused);
    once(&FACTS, (limit, closed), || {
        let starts = if closed {
            Starts::OutsideWindow(Until::Unknown)
        } else {
            Starts::Open
        };
        PoolFacts {
            nodes: NODES_MAX as u64,
            limit,
            starts,
            ..PoolFacts::DEFAULT
        }
    })
}

/// The rules of the second pool, where it comes after the first.
static AFTER: LazyLock<Option<Rules>> = LazyLock::new(|| {
    let spec = serde_json::json!({"nodeSelector": {}, "dependsOn": [{"pool": POOLS[0]}]});
    Rules::of(&serde_json::from_value(spec).ok()?).ok()
});

/// All that decisions can see of these two pools.
fn known_facts((pools, turn): ([Pool; 2], Turn)) -> Vec<PoolFacts<'static>> {
    let there = (0..2).filter(|at| !pools[*at].gone);
    let facts = there.map(|at| {
        let gate = |paused| if paused { Starts::Paused } else { Starts::Open };
        let ordered = at == 1 && turn != Turn::Any;
        let first = (turn == Turn::Waits).then_some(FirstPool::NotDone(POOLS[0]));
        PoolFacts {
            name: POOLS[at],
            nodes: NODES_MAX as u64,
            limit: POOL_LIMIT,
            starts: gate(pools[at].paused),
            rules: if ordered { AFTER.as_ref() } else { None },
            waits_for: ordered
                .then_some((VERSIONS[1], first))
                .into_iter()
                .collect(),
            ..PoolFacts::DEFAULT
        }
    });
    facts.collect()
}

/// The pools as a leader sees them, who sees this of them and of the ledger.
pub(crate) fn facts(
    config: &Config,
    pools: Pools,
    done: Option<u8>,
    now: &str,
) -> &'static [PoolFacts<'static>] {
    if config.pools.is_none() {
        return &[];
    }
    let turn = match config.without {
        _ if !config.order => Turn::Any,
        Some(Safeguard::Order) => Turn::Done,
        _ if waits(done, now) => Turn::Waits,
        _ => Turn::Done,
    };
    thread_local! { static FACTS: Table<([Pool; 2], Turn), Vec<PoolFacts<'static>>> = Table::default(); }
    let [one, other, _] = pools;
    let of = ([one, other], turn);
    once(&FACTS, of, || known_facts(of)).as_slice()
}

/// Whether the second pool waits for the first, by the functions that ship.
pub(crate) fn waits(done: Option<u8>, now: &str) -> bool {
    thread_local! { static LEDGERS: Table<Option<u8>, BottlerocketFleetStatus> = Table::default(); }
    let ledger = once(&LEDGERS, done, || BottlerocketFleetStatus {
        done_pools: tables::done_pools(done).clone(),
        ..BottlerocketFleetStatus::default()
    });
    let mut pools = known_facts(([Pool::default(); 2], Turn::Done));
    pools[1].waits_for.clear();
    let mut clock = Clock::new(now.parse().unwrap_or_default(), Ahead::NONE);
    await_first_pools(&mut pools, ledger, &mut clock);
    // A version that the ledger does not know is nobody done with.
    pools[1]
        .waits_for
        .get(VERSIONS[1])
        .is_none_or(Option::is_some)
}

/// Returns who steers a node labelled for this pool, if these are the pools.
pub(crate) fn owner(config: &Config, pools: Pools, label: Option<u8>) -> Owner {
    let Some(label) = label.map(usize::from) else {
        return if config.pools.is_some() {
            Owner::Unknown
        } else {
            Owner::DefaultPool
        };
    };
    match [label, 1].into_iter().find(|at| !pools[*at].gone) {
        _ if config.pools.is_none() => Owner::DefaultPool,
        Some(at) => Owner::Pool((0..at).filter(|at| !pools[*at].gone).count()),
        None => Owner::DefaultPool,
    }
}

/// The number of the pool that steers a node, of these pools.
pub(crate) fn pool_of(pools: Pools, owner: Owner) -> Option<u8> {
    let Owner::Pool(index) = owner else {
        return None;
    };
    (0..2)
        .filter(|at| !pools[*at].gone)
        .nth(index)
        .map(|at| small(at as u64))
}

/// Whether the pool of a node, among these pools, holds its update before the cordon.
pub(crate) fn held(pools: Pools, owner: Owner) -> bool {
    match owner {
        Owner::DefaultPool => pools[DEFAULT].paused,
        Owner::Unknown | Owner::Conflict(..) => true,
        Owner::Pool(_) => pool_of(pools, owner).is_none_or(|at| pools[usize::from(at)].paused),
    }
}

/// For sensitivity runs: once one node of the first pool runs the update, the others are seen in none.
pub(crate) fn forget_who_wants(views: &mut [NodeView<'_>], pools: Pools) {
    let runs = |view: &NodeView<'_>| {
        view.node
            .is_some_and(|node| node.version() == Some(VERSIONS[1]))
    };
    let first = |view: &NodeView<'_>| pool_of(pools, view.owner) == Some(0);
    if views.iter().any(|view| first(view) && runs(view)) {
        for view in views.iter_mut().filter(|view| first(view) && !runs(view)) {
            view.owner = Owner::Unknown;
        }
    }
}
