//! A real control plane and simulated Bottlerocket hosts, for the demo, the tests and the benchmarks.
//!
//! [`ControlPlane`] runs etcd, kube-apiserver and, as wanted, kube-controller-manager, kube-scheduler and kwok;
//! [`nodes`] makes nodes, [`host`] simulates their hosts, [`kubelet`] runs our own pods on them, and
//! [`operator`] is what we ship. [`machines`] are nodes with a real kubelet instead. All of it ends with the process that started it ([`sandbox`]).

#![allow(
    clippy::missing_errors_doc,
    reason = "of a test bed they are for people, and say themselves what failed"
)]

pub mod agents;
pub mod audit;
pub mod bearer;
pub mod binaries;
mod certificates;
pub mod control_plane;
mod etcd;
pub mod fleet;
pub mod gateways;
pub mod history;
pub mod kubeconfig;
pub mod kubelet;
pub mod machines;
mod median;
mod mended;
pub mod nodes;
pub mod objects;
pub mod operator;
pub mod prometheus;
pub mod revisions;
pub mod run;
pub mod sandbox;
pub mod scrape;
mod services;
pub mod tiers;
pub mod usage;
pub mod waiting;

pub use bearer::Bearer;
pub use brupop_host as host;
pub use control_plane::{ControlPlane, Options, Reach, free_port};
pub use fleet::{Fleet, FleetOptions};
pub use kubelet::{Kubelets, Program};
pub use median::median;
pub use nodes::{NewNode, make_nodes};
pub use sandbox::Sandbox;
pub use scrape::Scraper;
use waiting::await_progress;
pub use waiting::{DEADLINE, await_until, await_within};

/// The text of a file of the repository, read when a test runs: an edited sentence compiles nothing.
pub fn read(path: &str) -> anyhow::Result<String> {
    let file = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path);
    std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{path}: {error}"))
}
