//! Carries out what `brupop-core` decides: watch → decide → request.
//!
//! - What is watched: `watches` keeps objects up to date, and wakes the loop; `workloads` reads what is not watched.
//! - What is asked of the API server: `operation` writes, [`evict`] empties nodes, `checks` make sure that updates may
//!   start, and `leadership` holds the Lease.
//! - What is asked of others: `gates`.
//! - The process and its subcommands: [`process`] wires all of it, `reconcile` is its one loop; [`cli`], [`plan`],
//!   `metrics`.
//!
//! Read the core first, then `reconcile/pass.rs`, which calls it.

mod checks;
pub mod cli;
pub mod evict;
mod gates;
mod leadership;
mod metrics;
mod operation;
pub mod plan;
pub mod process;
mod reconcile;
mod watches;
mod workloads;
