//! Whose shadow, by whose token.

use crate::actor::Actor::{Agent, OtherAgent};
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByBoth};
use crate::situations::{at, idle, message};
use crate::world::Host;

pub(super) fn rows() -> Vec<Row> {
    let known = || (idle(), at("Idle"));
    vec![
        Row::new("an agent's news", Agent, known(), message(), Allowed),
        Row::new("another node's shadow", Agent, known(), message(), ByBoth("agent-own-node"))
            .of(Host::Second),
        Row::new("another node's agent", OtherAgent, known(), message(), ByBoth("agent-own-node")),
    ]
}
