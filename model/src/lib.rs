//! A model of the whole protocol over the functions that ship: the reconciler's `decide`, the agent's `step`, and the
//! one interpreter of writes.
//!
//! Nodes, hosts, two reconcilers that may both believe to lead, and agents take their steps in every order. Views may
//! be stale, processes crash, hosts fall back or reboot by themselves, steps take too long, agents fall silent or lie;
//! people cordon, uncordon, delete shadows and Nodes and resume versions. The checker holds the invariants of
//! [`properties`] against every state that can be reached.

pub mod actions;
mod fields;
mod happen;
pub mod ledger;
mod machines;
pub mod objects;
pub mod pools;
pub mod properties;
mod reconcile;
pub mod state;
mod tables;
mod view;
pub mod world;

pub use actions::ModelAction;
pub use state::{Config, Faults, Safeguard};
pub use view::Late;
pub use world::World;
