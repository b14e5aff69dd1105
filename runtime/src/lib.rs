//! Shared parts of the processes: the check of their environment, logs, shutdown, health, threads, metrics for callers with the
//! right, TLS, the Kubernetes client.

pub mod api_requests;
pub mod authorizer;
pub mod client;
pub mod connections;
pub mod endpoint;
pub mod environment;
pub mod errors;
mod failure_log;
mod heartbeat;
mod listing;
pub mod logs;
pub mod metrics;
pub mod metrics_endpoint;
mod own_thread;
pub mod shutdown;
pub mod tls;
pub mod waits;
mod watching;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use client::{ClusterConfig, install_crypto_provider};
pub use endpoint::Health;
pub use failure_log::FailureLog;
pub use heartbeat::Heartbeat;
pub use listing::{Beginnings, Listing, list_and_watch};
pub use own_thread::OwnThread;
pub use shutdown::Shutdown;
pub use watching::{named, only, patient, watch_one};

/// Locks this mutex, even if a thread panicked that held it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
