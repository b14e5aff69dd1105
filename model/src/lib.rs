//! A model of the whole protocol over the functions that ship: the reconciler's `decide`, the agent's `step`, and the
//! one interpreter of writes.
//!
//! Nodes, hosts, two reconcilers that may both believe to lead, and agents take their steps in every order. Views may
//! be stale, processes crash, hosts fall back or reboot by themselves, people cordon. The checker holds the
//! invariants of [`properties`] against every state that can be reached.

pub mod actions;
pub mod objects;
pub mod properties;
pub mod state;
mod view;

pub use actions::Action;
pub use state::{Config, Faults, Safeguard, World};
