//! Runs on each node: speaks to Bottlerocket's API, carries out the step asked for, reports on its own shadow.
//!
//! `brupop-agent-core` decides, as a pure function; [`host`] speaks to the host, [`shadow`] watches what is wanted, and [`agent`]
//! puts one turn after the other.

pub mod agent;
pub mod host;
pub mod options;
pub mod process;
mod retry;
pub mod shadow;
mod watchdog;
