//! The permit that each connection of a port has, and counts of those that lost theirs.

use super::Limits;
use super::tracker::{ConnectionPhase, Id, Tracker};
use crate::Peer;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Dropped for room: there were too many connections, or their bodies together were too long.
const ROOM: &str = "room";
/// Dropped because it took too long.
const TIMEOUT: &str = "timeout";

/// Connections that were dropped: at which port, what they were doing, and why. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Drops(pub(crate) Family<[(&'static str, &'static str); 3], Counter>);

impl Drops {
    fn count(
        &self,
        port: &'static str,
        phase: ConnectionPhase,
        reason: &'static str,
        dropped: u64,
    ) {
        let labels = [
            ("port", port),
            ("phase", phase.as_str()),
            ("reason", reason),
        ];
        self.0.get_or_create(&labels).inc_by(dropped);
    }
}

/// The permits of a port. Clones share one state.
#[derive(Clone)]
pub(super) struct Permits {
    tracker: Arc<Mutex<Tracker<Handle>>>,
    port: &'static str,
    drops: Drops,
}

/// Nothing is sent by it: when it is dropped, the connection ends.
type Handle = oneshot::Sender<Infallible>;

/// The permit of one connection, until this is dropped.
pub(super) struct Permit {
    permits: Permits,
    id: Id,
}

impl Permits {
    pub(super) fn new(limits: Limits, drops: Drops) -> Self {
        for phase in ConnectionPhase::ALL {
            for reason in [ROOM, TIMEOUT] {
                drops.count(limits.port, phase, reason, 0);
            }
        }
        Self {
            tracker: Arc::new(Mutex::new(Tracker::new(limits))),
            port: limits.port,
            drops,
        }
    }

    /// A permit for a new connection. The connection must end when the receiver yields: then it has lost its permit.
    pub(super) fn add(
        &self,
        peer: Peer,
        phase: ConnectionPhase,
    ) -> (Permit, oneshot::Receiver<Infallible>) {
        let (handle, lost) = oneshot::channel();
        let (id, dropped) = self.lock().add(peer, phase, handle, now());
        self.count(ROOM, dropped);
        (
            Permit {
                permits: self.clone(),
                id,
            },
            lost,
        )
    }

    /// Drops the connections that have come to the end of their time.
    pub(super) fn expire(&self) {
        let dropped = self.lock().expire(now());
        self.count(TIMEOUT, dropped);
    }

    fn count(&self, reason: &'static str, dropped: impl IntoIterator<Item = ConnectionPhase>) {
        for phase in dropped {
            self.drops.count(self.port, phase, reason, 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tracker<Handle>> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    pub(super) fn enter(&self, phase: ConnectionPhase) {
        self.permits.lock().enter(self.id, phase, now());
    }

    /// A body of this length is going to be read.
    pub(super) fn announce(&self, length: usize) {
        let dropped = self.permits.lock().announce(self.id, length, now());
        self.permits.count(ROOM, dropped);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.lock().remove(self.id);
    }
}

/// As the runtime's timers have it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
