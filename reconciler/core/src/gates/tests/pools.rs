//! Tests of the effect of gates on their pool.

use crate::cluster::{Cluster, Watched as _};
use crate::leader::LeaderState;
use crate::observe::pools_at;
use crate::pool::Pool;
use crate::rules::GateState;
use crate::rules::{Policy, USUAL};
use crate::tests::world::rows;
use brupop_api::Item;
use brupop_api::pool::PrometheusGate;
use jiff::Timestamp;
use serde_json::json;

/// A pool of this priority, with gates that ask for these.
fn pool(name: &str, queries: &[&str], priority: u64) -> Item<Pool> {
    let gate = |query: &&str| {
        json!({"name": query.to_lowercase(),
            "prometheus": {"source": "main", "query": query}})
    };
    let gates: Vec<_> = queries.iter().map(gate).collect();
    crate::tests::world::pool(name, json!({"priority": priority, "gates": gates}))
}

/// The state that a query names: in these tests, its expression is the word.
fn state(query: &PrometheusGate) -> GateState {
    let state = GateState::ALL
        .into_iter()
        .find(|state| state.as_str() == query.query);
    state.unwrap_or(GateState::Awaited)
}

#[test]
fn all_gates_of_a_pool_have_to_be_open() {
    for (queries, closed) in rows! {
        &[][..] => None;
        &["Open"] => None;
        &["Open", "Closed"] => Some((GateState::Closed, "closed"));
        &["Unknown", "Closed", "Open"] => Some((GateState::Closed, "closed"));
        &["Open", "Unknown"] => Some((GateState::Unknown, "unknown"));
        &["Open", "Awaited"] => Some((GateState::Awaited, "awaited"));
        &["Awaited", "Unknown"] => Some((GateState::Unknown, "unknown"));
        &["Awaited", "Closed"] => Some((GateState::Closed, "closed"));
    } {
        let (mut cluster, mut known) = (Cluster::default(), LeaderState::default());
        let gate = |cluster: &mut Cluster, known: &mut LeaderState| {
            known.prepare(cluster, Timestamp::UNIX_EPOCH, &Policy::default());
            let pools = pools_at(cluster, known, &USUAL, Timestamp::UNIX_EPOCH);
            let pool = &pools.all[0];
            assert_eq!(pool.has_gates(), !queries.is_empty(), "{queries:?}");
            format!("{:?}", pool.gate)
        };
        let unknown = queries.first().map(|query| query.to_lowercase());
        let unknown = format!(
            "{:?}",
            unknown.as_deref().map(|name| (GateState::Unknown, name))
        );
        pool("web", queries, 1).put(&mut cluster);
        assert_eq!(
            gate(&mut cluster, &mut known),
            unknown,
            "before anybody asked: {queries:?}"
        );
        known.record_gates(&cluster, state);
        assert_eq!(
            gate(&mut cluster, &mut known),
            format!("{closed:?}"),
            "{queries:?}"
        );
        // Its status has changed, then its spec.
        pool("web", queries, 1).put(&mut cluster);
        assert_eq!(
            gate(&mut cluster, &mut known),
            format!("{closed:?}"),
            "{queries:?}"
        );
        pool("web", queries, 2).put(&mut cluster);
        assert_eq!(gate(&mut cluster, &mut known), unknown, "{queries:?}");
        known.record_gates(&cluster, state);
        assert_eq!(
            gate(&mut cluster, &mut LeaderState::default()),
            unknown,
            "another leader: {queries:?}"
        );
    }
}
