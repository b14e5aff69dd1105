//! What the three processes share: logs, shutdown, health and metrics endpoint, client.

pub mod client;
pub mod endpoint;
pub mod logs;
pub mod shutdown;

pub use client::{Cluster, install_crypto_provider};
pub use endpoint::Health;
pub use shutdown::Shutdown;
