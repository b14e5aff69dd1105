//! Carries out what `brupop-core` decides: watch → decide → request.
//!
//! - The loop: [`process`] wires everything, [`run`] wakes. Below it, `pass` observes, decides and sends; `requests` write, and
//!   `answers` takes in what comes back; `drainer` and [`run::evict`] empty nodes, and read workloads; `status` tells people;
//!   `checks` make sure that updates may start, and `gates` ask others.
//! - `watches` keep objects up to date, `lease` is held.
//! - [`cli`] and [`plan`] are the subcommands and settings, `metrics` the figures.
//!
//! Read the core first, then `run.rs`, which calls it.

pub mod cli;
mod lease;
mod metrics;
pub mod plan;
pub mod process;
pub mod run;
mod watches;
