//! What the reconciler decides, without client, runtime, clock, environment or randomness: observe → decide.
//!
//! - [`observe`] turns a [`cluster`] of [`objects`], a [`policy`] and the time into [`facts`]; [`decide`] turns facts into
//!   writes and reasons.
//! - [`drain`], [`budgets`], [`returns`] and [`workloads`] say which pods go, what stands in the way, and what has to come
//!   back.
//! - [`window`] says when updates may start; [`conditions`] and [`events`] say what people see.
//!
//! Read [`facts`] first, then `decide/mod.rs`, `decide/update.rs` and `decide/slots.rs`.

pub mod budgets;
pub mod cluster;
pub mod conditions;
pub mod decide;
pub mod drain;
pub mod events;
pub mod facts;
pub mod fixtures;
pub mod objects;
pub mod observe;
pub mod policy;
pub mod returns;
pub mod window;
pub mod workloads;
