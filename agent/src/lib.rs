//! Runs on each node: speaks to Bottlerocket's API, carries out the step asked for, reports on its own shadow.

pub mod host;
pub mod step;
