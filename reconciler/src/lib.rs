//! Carries out what `brupop-core` decides: watch → decide → request.
//!
//! - What is watched: `watches` keeps objects up to date, and wakes the loop.
//! - What is asked of the API server: `operation` writes, [`evict`] empties nodes, `admission_probe` tries the admission rules out,
//!   `other_operator` looks for upstream's, and `leadership` holds the Lease.
//! - The process and its subcommands: [`process`] wires all of it, `reconcile` is its one loop; [`cli`], [`plan`],
//!   `metrics`.
//!
//! Read the core first, then `reconcile/pass.rs`, which calls it.

mod admission_probe;
pub mod cli;
pub mod evict;
mod leadership;
mod metrics;
mod operation;
mod other_operator;
pub mod plan;
pub mod process;
mod proof;
mod reconcile;
mod watches;
