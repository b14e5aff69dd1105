//! The reconciler's decisions, without client, runtime, clock, environment or randomness: observe → decide.
//!
//! - [`cluster`] has one record of [`objects`] for each node, with what a leader knows of it; [`leader`] is what it
//!   knows besides.
//! - [`observe`] turns these and the time into [`facts`]; [`deadlines`] compares times, and says when to look again.
//! - [`decide`] turns facts into steps and reasons.
//! - [`kept`] bounds what is kept of other people's pods and budgets.
//! - [`drain`] and [`workloads`] say which pods go, what stands in the way, and what has to come back.
//! - [`pool`] is a part of the fleet, [`rules`] what people say of it and of the fleet; [`leader`] says whose a node is, [`gates`] what
//!   is made of the answers that close gates.
//! - [`window`] says when updates may start; [`status`] says what people see, and what became of updates.
//!
//! Read [`facts`] first, then `decide/mod.rs`, `decide/assess.rs` and `decide/allocate.rs`.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of rows"))]

pub mod cluster;
pub mod deadlines;
pub mod decide;
pub mod drain;
pub mod facts;
pub mod gates;
pub mod kept;
pub mod leader;
pub mod objects;
pub mod observe;
pub mod pool;
pub mod rules;
pub mod status;
pub mod window;
pub mod workloads;

#[cfg(test)]
mod tests {
    pub(crate) mod world;
}
