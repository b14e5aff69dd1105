//! The open connections of a port, and which of them makes room for others.

use super::Limits;
use crate::locked;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Everything that one caller can call from, as a rule: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        // A socket for both families shows an IPv4 address as `::ffff:a.b.c.d`.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// Connections that made room for others, by port. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Drops(pub(crate) Family<[(&'static str, &'static str); 1], Counter>);

/// The connections of a port, by their numbers. Clones share one state.
#[derive(Clone)]
pub(super) struct Room {
    limits: Limits,
    drops: Counter,
    next: Arc<AtomicU64>,
    open: Arc<Mutex<BTreeMap<u64, Connection>>>,
}

struct Connection {
    peer: Peer,
    /// The last time that this changed: a request came, its body was awaited, or it was answered.
    since: Instant,
    is_answering: bool,
    /// Length of the body that is in memory or on its way there, in bytes.
    body: usize,
    /// When this is dropped, the connection ends.
    _handle: oneshot::Sender<Infallible>,
}

/// The place of one connection, until this is dropped.
pub(super) struct Permit {
    room: Room,
    number: u64,
}

impl Room {
    pub(super) fn new(limits: Limits, drops: &Drops) -> Self {
        Self {
            limits,
            drops: drops.0.get_or_create_owned(&[("port", limits.port)]),
            next: Arc::default(),
            open: Arc::default(),
        }
    }

    /// A permit for a new connection, which must end when the receiver yields. If there are too many connections now, one that is
    /// not being answered has to go, perhaps this one.
    pub(super) fn add(&self, peer: Peer) -> (Permit, oneshot::Receiver<Infallible>) {
        let (handle, lost) = oneshot::channel();
        let connection = Connection {
            peer,
            since: Instant::now(),
            is_answering: false,
            body: 0,
            _handle: handle,
        };
        let mut open = locked(&self.open);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, connection);
        if open.len() > self.limits.connections {
            self.drop_one(&mut open, |connection| {
                usize::from(!connection.is_answering)
            });
        }
        let room = self.clone();
        (Permit { room, number }, lost)
    }

    /// Drops a connection of the peer whose connections together have most of this weight: the one that has been idle longest.
    /// Returns whether there was one.
    fn drop_one(
        &self,
        open: &mut BTreeMap<u64, Connection>,
        weight: impl Fn(&Connection) -> usize,
    ) -> bool {
        let mut peers: BTreeMap<Peer, usize> = BTreeMap::new();
        for connection in open.values() {
            *peers.entry(connection.peer).or_default() += weight(connection);
        }
        let heavy = open.iter().filter(|(_, connection)| weight(connection) > 0);
        let first = heavy
            .max_by_key(|(_, connection)| (peers.get(&connection.peer), Reverse(connection.since)))
            .map(|(number, _)| *number);
        let dropped = first.and_then(|number| open.remove(&number));
        if dropped.is_some() {
            self.drops.inc();
        }
        dropped.is_some()
    }
}

impl Permit {
    /// The caller has to send a body of this length, or the next request. Bodies make room for each other.
    pub(super) fn wait(&self, body: usize) {
        let mut open = locked(&self.room.open);
        if let Some(connection) = open.get_mut(&self.number) {
            (connection.since, connection.is_answering) = (Instant::now(), false);
            connection.body = body;
        }
        let body = |connection: &Connection| connection.body;
        while open.values().map(body).sum::<usize>() > self.room.limits.all_bodies
            && self.room.drop_one(&mut open, body)
        {}
    }

    pub(super) fn answer(&self) {
        if let Some(connection) = locked(&self.room.open).get_mut(&self.number) {
            (connection.since, connection.is_answering) = (Instant::now(), true);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        locked(&self.room.open).remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
