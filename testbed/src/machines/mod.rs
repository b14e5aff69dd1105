//! Machines with a real kubelet, containerd and kube-proxy, each in namespaces of its own: what `make e2e` runs on.
//!
//! A machine is a process tree with its own mounts, process ids, host name and network. What the kubelet of a
//! Bottlerocket host finds on it stands in for the real one: `/run/api.sock` is a [`crate::host`]'s, the OS release and
//! the boot id differ per machine and boot, `/var` outlives a boot. A reboot kills process 1 of the machine, and so
//! everything that runs on it, containers included; then the same disk is started with another boot id.
//!
//! All of it, the control plane too, is in namespaces that [`namespaces`] makes, so nothing is left of it, and needs root.

mod files;
mod images;
mod machine;
pub mod namespaces;
mod network;
pub mod processes;

pub use images::Images;
pub use machine::Machine;
pub use network::{CONTROL_PLANE, Network};
