//! The agent on a simulated host, through every failure mode of the host's API. Time is simulated.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests"
)]

mod absences;
mod commands;
mod kills;
mod place;
mod reboots;
mod reconciler;
mod repository;
mod solo;
mod store;
