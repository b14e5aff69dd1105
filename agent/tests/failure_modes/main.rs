//! The agent on a simulated host, through every failure mode of the host's API. Time is simulated.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod absences;
mod choices;
mod commands;
mod kills;
mod looks;
mod prefetch;
mod reboots;
mod repository;
mod solo;
mod store;
