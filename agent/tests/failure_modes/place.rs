//! A simulated host in a directory of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use brupop_host::{Durations, Host, HostOptions};

/// A simulated host and its files; both are gone when it is dropped.
pub struct Place {
    pub host: Host,
    directory: PathBuf,
}

impl Place {
    /// A host that runs 1.19.4, with 1.20.1 published.
    pub fn new(durations: Durations) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "brupop-agent-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).unwrap();
        let host = Host::start(HostOptions {
            socket: directory.join("api.sock"),
            socket_group: None,
            version: "1.19.4".into(),
            variant: "aws-k8s-1.29".into(),
            boot_id_file: directory.join("boot_id"),
            durations,
        })
        .unwrap();
        host.publish("1.20.1").unwrap();
        Self { host, directory }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }

    pub fn boot_id_file(&self) -> PathBuf {
        self.directory.join("boot_id")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A leftover in a temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
