//! Carries out what `brupop-core` decides: watch → decide → request.
//!
//! - The loop: [`process`] wires everything, `run` wakes, `pass` observes, decides and sends.
//! - What is known: `watches` keep objects up to date, and so do the answers to `requests`, which `answers` takes in. `workloads`
//!   reads what is not watched.
//! - What is done: `requests` write, `drainer`, `pods` and [`evict`] empty nodes, `status` tells people.
//! - What must be so: `checks` make sure that updates may start, `gates` ask others, `lease` is held.
//! - [`cli`] and [`plan`] are the subcommands and settings, `metrics` the figures.
//!
//! Read the core first, then `pass.rs`, which calls it.

mod answers;
mod checks;
pub mod cli;
mod drainer;
pub mod evict;
mod gates;
mod lease;
mod metrics;
mod pass;
pub mod plan;
mod pods;
pub mod process;
mod requests;
mod run;
mod status;
mod watches;
mod workloads;
