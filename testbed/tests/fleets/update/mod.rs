//! Whole updates: the shipped programs and manifests on a real control plane, with simulated hosts.

pub mod exec;
mod other_operator;
mod passed_over;
mod quiet;
mod recovery;
mod roll_out;
mod workloads;
