//! Which connections of a port are open, what each is doing and since when, and which of them must go. Pure: the time is
//! passed in.

use super::Limits;
use crate::Peer;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

brupop_api::words! {
    /// What a connection is doing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ConnectionPhase {
        /// The TLS handshake.
        Handshake => "handshake",
        /// Before its first request: the head is awaited or read.
        Head => "head",
        /// The body of a request is read.
        Body => "body",
        /// A request is answered.
        Answer => "answer",
        /// After an answer: another request may come.
        Idle => "idle",
    }
}

impl ConnectionPhase {
    fn longest(self, limits: &Limits) -> Duration {
        match self {
            Self::Handshake => limits.handshake,
            Self::Head => limits.head,
            Self::Body => limits.body,
            Self::Answer => limits.answer,
            Self::Idle => limits.idle,
        }
    }
}

/// The open connections of a port. Each has a handle of type `H`, which is dropped when the connection must go.
#[derive(Debug)]
pub(super) struct Tracker<H> {
    limits: Limits,
    next: u64,
    peers: BTreeMap<Peer, OfPeer<H>>,
}

/// The connections of a peer, by their numbers.
type OfPeer<H> = BTreeMap<u64, Open<H>>;

/// A connection: whose it is, and its number. Later ones have greater numbers.
pub(super) type Id = (Peer, u64);

#[derive(Debug)]
struct Open<H> {
    phase: ConnectionPhase,
    since: Instant,
    /// Length of the body that is in memory or on its way there, in bytes.
    body: usize,
    _handle: H,
}

impl<H> Tracker<H> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            peers: BTreeMap::new(),
        }
    }

    /// One more connection. If that is one too many, one has to go, perhaps this one: what it was doing is returned.
    ///
    /// It is a connection that is not being answered, of the peer that has most such connections, which is not one that has
    /// a few under way. Of these, it is the oldest in the phase in which most of them are: if somebody who takes all there
    /// is shares the address of an honest caller, that caller's few connections still stay.
    pub(super) fn add(
        &mut self,
        peer: Peer,
        phase: ConnectionPhase,
        handle: H,
        now: Instant,
    ) -> (Id, Option<ConnectionPhase>) {
        let id = (peer, self.next);
        self.next += 1;
        let open = Open {
            phase,
            since: now,
            body: 0,
            _handle: handle,
        };
        self.peers.entry(peer).or_default().insert(id.1, open);
        let crowded =
            self.peers.values().map(BTreeMap::len).sum::<usize>() > self.limits.connections;
        (
            id,
            crowded
                .then(|| self.crowding())
                .flatten()
                .and_then(|id| self.remove(id)),
        )
    }

    fn crowding(&self) -> Option<Id> {
        let waiting = |of_peer: &OfPeer<H>| {
            of_peer
                .values()
                .filter(|open| open.phase != ConnectionPhase::Answer)
                .count()
        };
        let (peer, of_peer) = self.greatest(waiting)?;
        let in_phase = |phase| of_peer.iter().filter(move |(_, open)| open.phase == phase);
        let phases = ConnectionPhase::ALL
            .into_iter()
            .filter(|phase| *phase != ConnectionPhase::Answer);
        let phase = phases.max_by_key(|phase| in_phase(*phase).count())?;
        in_phase(phase)
            .min_by_key(|(_, open)| open.since)
            .map(|(number, _)| (peer, *number))
    }

    /// A connection goes over to another phase.
    pub(super) fn enter(&mut self, id: Id, phase: ConnectionPhase, now: Instant) {
        if let Some(open) = self.get_mut(id) {
            (open.phase, open.since) = (phase, now);
            if phase == ConnectionPhase::Idle {
                open.body = 0;
            }
        }
    }

    /// A connection is going to send a body of this length. While all bodies together are longer than they may be, the peer
    /// whose bodies are longest loses its oldest one, with the connection: what those were doing is returned.
    pub(super) fn announce(&mut self, id: Id, length: usize, now: Instant) -> Vec<ConnectionPhase> {
        self.enter(id, ConnectionPhase::Body, now);
        if let Some(open) = self.get_mut(id) {
            open.body = length;
        }
        let mut gone = Vec::new();
        while self.peers.values().map(bodies).sum::<usize>() > self.limits.all_bodies
            && let Some(phase) = self.bulkiest().and_then(|id| self.remove(id))
        {
            gone.push(phase);
        }
        gone
    }

    fn bulkiest(&self) -> Option<Id> {
        let (peer, of_peer) = self.greatest(bodies)?;
        let with_body = of_peer.iter().filter(|(_, open)| open.body > 0);
        with_body
            .min_by_key(|(_, open)| open.since)
            .map(|(number, _)| (peer, *number))
    }

    /// Removes the connections that have been in their phase for too long: what they were doing.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<ConnectionPhase> {
        let limits = self.limits;
        let late = |_: &u64, open: &mut Open<H>| open.since + open.phase.longest(&limits) <= now;
        let of_peers = self.peers.values_mut();
        let gone = of_peers
            .flat_map(|open| open.extract_if(.., late))
            .map(|(_, open)| open.phase)
            .collect();
        self.peers.retain(|_, open| !open.is_empty());
        gone
    }

    /// Removes a connection, if it is still there: what it was doing.
    pub(super) fn remove(&mut self, id: Id) -> Option<ConnectionPhase> {
        let of_peer = self.peers.get_mut(&id.0)?;
        let removed = of_peer.remove(&id.1);
        if of_peer.is_empty() {
            self.peers.remove(&id.0);
        }
        removed.map(|open| open.phase)
    }

    fn get_mut(&mut self, (peer, number): Id) -> Option<&mut Open<H>> {
        self.peers.get_mut(&peer)?.get_mut(&number)
    }

    /// The peer that has most, by this measure. If several have, the one with the oldest connection.
    fn greatest(&self, measure: impl Fn(&OfPeer<H>) -> usize) -> Option<(Peer, &OfPeer<H>)> {
        let greatest = self
            .peers
            .iter()
            .max_by_key(|(_, open)| (measure(open), Reverse(open.keys().next())));
        greatest.map(|(peer, open)| (*peer, open))
    }
}

/// Length of a peer's bodies together.
fn bodies<H>(of_peer: &OfPeer<H>) -> usize {
    of_peer.values().map(|open| open.body).sum()
}

#[cfg(test)]
mod tests;
