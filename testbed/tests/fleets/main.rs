//! Whole fleets: the shipped programs and manifests on real control planes, with simulated hosts.

mod admission;
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
