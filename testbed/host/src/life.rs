//! A host boot after boot, until nobody has it any more.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::{Shared, Version, lock, server};

/// Between two looks of a host that stays down.
const LOOK: Duration = Duration::from_millis(50);

/// The state of the host's power, with its boot if it is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPower {
    Up {
        boot_id: String,
        pretty_name: String,
    },
    Down,
}

/// A boot that has ended, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub boot_id: String,
    /// It ended because the API was asked to reboot; else the host rebooted by itself.
    pub requested: bool,
}

impl Shared {
    /// A new socket, for those who may use it.
    fn listen(&self, socket: &Path) -> anyhow::Result<UnixListener> {
        let listener = listen(socket).with_context(|| format!("socket {}", socket.display()))?;
        if let Some(group) = self.socket_group {
            std::os::unix::fs::chown(socket, None, Some(group))?;
            std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o660))?;
        }
        Ok(listener)
    }

    /// A new boot id, then the socket, then the news.
    pub(super) fn come_up(
        &self,
        socket: &Path,
        boot_id_file: &Path,
    ) -> anyhow::Result<UnixListener> {
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("a new boot id")?;
        std::fs::write(boot_id_file, &boot_id)
            .with_context(|| format!("boot id file {}", boot_id_file.display()))?;
        let listener = self.listen(socket)?;
        let pretty_name = self.machine().pretty_name();
        let boot_id = boot_id.trim().to_owned();
        lock(&self.boot_id).clone_from(&boot_id);
        self.power.send_replace(HostPower::Up {
            boot_id,
            pretty_name,
        });
        Ok(listener)
    }
}

/// Takes the place of a socket that nobody listens on any more.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Reasons why the API ends.
enum End {
    Reboot,
    /// Its server alone is started again.
    Away(Duration),
}

/// Boot after boot, until the handle is gone.
pub(super) async fn live(
    shared: Arc<Shared>,
    mut listener: UnixListener,
    socket: PathBuf,
    boot_id_file: PathBuf,
) {
    loop {
        let again = match serve(&shared, listener).await {
            End::Reboot => {
                shared.power.send_replace(HostPower::Down);
                let requested = shared.requested.swap(false, Ordering::Relaxed);
                let boot_id = lock(&shared.boot_id).clone();
                lock(&shared.ended).push(Ended { boot_id, requested });
                tokio::time::sleep(shared.durations.reboot).await;
                while lock(&shared.faults).stays_down {
                    tokio::time::sleep(LOOK).await;
                }
                let bad = lock(&shared.faults).bad_images.clone();
                let mut machine = shared.machine();
                let is_bad = |next: &Version| bad.contains(&next.to_string());
                let falls_back = machine.next().is_some_and(is_bad);
                machine.boot(falls_back);
                drop(machine);
                shared.come_up(&socket, &boot_id_file)
            }
            End::Away(away) => {
                tokio::select! {
                    () = tokio::time::sleep(away) => {}
                    // It comes soon enough when the API is there again.
                    () = shared.reboot.notified() => shared.reboot.notify_one(),
                }
                shared.listen(&socket)
            }
        };
        listener = match again {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "the simulated host does not come up again");
                return;
            }
        };
    }
}

/// Connections end with the API: they are dropped with their set.
async fn serve(shared: &Arc<Shared>, listener: UnixListener) -> End {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.reboot.notified() => return End::Reboot,
            () = shared.api_ends.notified() => return End::Away(*lock(&shared.api_away)),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(server::connection(stream, Arc::clone(shared)));
                }
                Err(error) => tracing::warn!(%error, "a connection to the simulated host was lost"),
            },
            Some(ended) = connections.join_next() => {
                if let Ok(Err(error)) = ended {
                    tracing::debug!(%error, "a connection to the simulated host ended early");
                }
            }
        }
    }
}
