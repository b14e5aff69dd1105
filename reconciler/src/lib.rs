//! Decides what each Bottlerocket host should do next, and sees to it: observe → decide → apply.
//!
//! - The pure core, without client or clock: [`observe`] turns a [`snapshot`] and the time into [`facts`], [`decide`] turns
//!   facts into writes and reasons. `window`, [`drain`], `budgets`, `workloads`, `pending`, `conditions`, `events`,
//!   and `proof` decide the rest.
//! - What is watched: `watches` keeps [`objects`] up to date, and wakes the loop.
//! - What is asked of the API server: `apply` writes, [`evict`] empties nodes, `canary` tries the admission rules out,
//!   `other_operator` looks for upstream's, and `leadership` holds the Lease.
//! - The process and its subcommands: [`process`] wires all of it, `reconcile` is its one loop; [`plan`], [`drain_to_idle`],
//!   [`settings`], `metrics`.
//!
//! Read [`facts`] first, then `decide/mod.rs`, `decide/update.rs` and `decide/slots.rs`, then `reconcile/pass.rs`,
//! which calls them.

mod apply;
mod budgets;
mod canary;
mod conditions;
pub mod decide;
pub mod drain;
pub mod drain_to_idle;
mod events;
pub mod evict;
pub mod facts;
mod leadership;
mod metrics;
pub mod objects;
pub mod observe;
mod other_operator;
mod pending;
pub mod plan;
pub mod process;
mod proof;
mod reconcile;
pub mod settings;
pub mod snapshot;
mod watches;
mod window;
mod workloads;
