//! Whole fleets: the shipped programs and manifests on real control planes, with simulated hosts.

#![allow(clippy::too_many_lines, reason = "tables of rows")]

mod admission;
mod documents;
mod drains;
mod leaders;
mod migrating;
mod orchestration;
mod pools;
mod prometheus;
mod unreadable;
mod update;
mod upgrade;
#[path = "../common/went_well.rs"]
mod went_well;
