//! Single programs and objects on an API server: tests with a control plane each, and few nodes or none.

#![allow(clippy::too_many_lines, reason = "tables of rows")]

mod admission;
mod auditors;
mod cli;
mod crds;
#[path = "../common/custom_resources.rs"]
mod custom_resources;
mod documents;
mod endurance;
mod overlays;
mod policies;
mod raw;
mod rights;
mod serving;
mod writes;
