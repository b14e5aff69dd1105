use super::*;
use crate::peer::tests::peer;
use ConnectionPhase::{Answer, Body, Handshake, Head, Idle};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const LIMITS: Limits = Limits {
    port: "test",
    connections: 4,
    all_bodies: 200,
    handshake: SECOND,
    head: SECOND.saturating_mul(2),
    body: SECOND.saturating_mul(3),
    answer: SECOND.saturating_mul(4),
    idle: SECOND.saturating_mul(5),
    linger: Duration::ZERO,
    closing: Duration::ZERO,
};

/// Connections of these peers in these phases, a millisecond after each other. They are numbered from 0 on.
fn tracker<const N: usize>(open: [(u8, ConnectionPhase); N]) -> (Tracker<()>, [Id; N], Instant) {
    let (mut tracker, mut now) = (Tracker::new(LIMITS), Instant::now());
    let ids = open.map(|(of, phase)| {
        now += MILLISECOND;
        let (id, gone) = tracker.add(peer(of), Handshake, (), now);
        assert_eq!(gone, None);
        tracker.enter(id, phase, now);
        id
    });
    (tracker, ids, now)
}

/// What there is: of whom, in which phase, and with how long a body.
fn open(tracker: &Tracker<()>) -> BTreeMap<u64, (Peer, ConnectionPhase, usize)> {
    let of_peers = tracker.peers.iter();
    of_peers
        .flat_map(|(peer, of_peer)| {
            of_peer
                .iter()
                .map(|(number, open)| (*number, (*peer, open.phase, open.body)))
        })
        .collect()
}

fn numbers(tracker: &Tracker<()>) -> Vec<u64> {
    open(tracker).into_keys().collect()
}

#[test]
fn the_peer_with_most_makes_room() {
    // Another connection of peer 1 comes.
    for (says, before, goes) in [
        (
            "its oldest one",
            [(2, Head), (3, Head), (3, Head), (2, Head)],
            0,
        ),
        (
            "not the idle one of another",
            [(1, Idle), (2, Handshake), (2, Handshake), (2, Handshake)],
            1,
        ),
        (
            "an idle one",
            [(1, Head), (2, Idle), (2, Idle), (2, Idle)],
            1,
        ),
        (
            "one in the phase of most",
            [(1, Idle), (1, Body), (2, Body), (1, Body)],
            1,
        ),
        (
            "one of most that are idle",
            [(1, Head), (1, Idle), (2, Body), (1, Idle)],
            1,
        ),
        (
            "none that is answered",
            [(2, Answer), (2, Answer), (3, Head), (2, Answer)],
            2,
        ),
        (
            "or the new one",
            [(2, Answer), (2, Answer), (2, Answer), (2, Answer)],
            4,
        ),
    ] {
        let (mut tracker, ids, now) = tracker(before);
        let (new, gone) = tracker.add(peer(1), Handshake, (), now + SECOND);
        assert_eq!(new.1, 4);
        let stay: Vec<_> = (0..5).filter(|number| *number != goes).collect();
        assert_eq!(numbers(&tracker), stay, "{says}");
        let was = ids
            .iter()
            .zip(before)
            .find(|(id, _)| id.1 == goes)
            .map_or(Handshake, |(_, (_, phase))| phase);
        assert_eq!(gone, Some(was), "{says}");
    }
}

#[test]
fn bodies_make_room_for_each_other() {
    let (mut tracker, [first, second, third, fourth], now) =
        tracker([(1, Head), (2, Head), (2, Head), (3, Head)]);
    for (id, length) in [(first, 60), (second, 60), (third, 70)] {
        assert_eq!(tracker.announce(id, length, now), []);
    }
    // 200 bytes may be in memory. Peer 2 has most of them.
    assert_eq!(tracker.announce(fourth, 70, now + SECOND), [Body]);
    assert_eq!(numbers(&tracker), [0, 2, 3]);
    // Anyone who is answered still has a body in memory; anyone who was answered has none.
    tracker.enter(third, Answer, now + SECOND);
    tracker.enter(fourth, Idle, now + SECOND);
    assert_eq!(
        tracker.announce(fourth, 71, now + SECOND),
        [Body],
        "peer 3 has most"
    );
    tracker.enter(first, Idle, now + SECOND);
    assert_eq!(tracker.announce(first, 100, now + SECOND), []);
    assert_eq!(numbers(&tracker), [0, 2]);
}

#[test]
fn each_phase_has_its_time() {
    for (phase, seconds) in [(Handshake, 1), (Head, 2), (Body, 3), (Answer, 4), (Idle, 5)] {
        let (mut tracker, _, now) = tracker([(1, phase)]);
        let end = now + SECOND * seconds;
        assert_eq!(tracker.expire(now + SECOND * seconds * 999 / 1000), []);
        assert_eq!(tracker.expire(end), [phase]);
        assert!(tracker.peers.is_empty());
    }
}

#[test]
fn a_new_phase_begins_its_time_anew() {
    let (mut tracker, [id], now) = tracker([(1, Head)]);
    tracker.enter(id, Idle, now + SECOND);
    assert_eq!(tracker.expire(now + SECOND * 5), []);
    assert_eq!(tracker.expire(now + SECOND * 6), [Idle]);
    tracker.enter(id, Head, now + SECOND * 6);
    assert_eq!(
        (tracker.announce(id, 100, now), tracker.remove(id)),
        (vec![], None),
        "it is gone"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Enter(usize, ConnectionPhase),
    Announce(usize, usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..8_usize;
    prop_oneof![
        3 => (1..6_u8).prop_map(Step::Add),
        3 => (which(), prop::sample::select(ConnectionPhase::ALL.to_vec())).prop_map(|(which, phase)| Step::Enter(which, phase)),
        2 => (which(), 0..=100_usize).prop_map(|(which, length)| Step::Announce(which, length)),
        1 => which().prop_map(Step::Remove),
    ]
}

proptest! {
    /// Whatever comes: the limits hold, nobody goes without need, and nobody who has less than another.
    #[test]
    fn limits_hold_at_the_expense_of_the_greatest(steps in prop::collection::vec(step(), 1..200)) {
        let (mut tracker, mut now) = (Tracker::new(LIMITS), Instant::now());
        let mut ids = vec![(peer(9), 9)];
        for step in steps {
            now += MILLISECOND;
            let before = open(&tracker);
            // One of the last eight.
            let id = |which: usize| ids[ids.len().saturating_sub(1 + which)];
            match step {
                Step::Add(of) => {
                    let (new, gone) = tracker.add(peer(of), Handshake, (), now);
                    ids.push(new);
                    let after = open(&tracker);
                    let mut all = before.clone();
                    all.insert(new.1, (peer(of), Handshake, 0));
                    let waiting = |of: Peer| {
                        all.values().filter(|(peer, phase, _)| *peer == of && *phase != Answer).count()
                    };
                    let lost: Vec<_> = all.iter().filter(|(number, _)| !after.contains_key(number)).collect();
                    prop_assert_eq!(lost.len(), usize::from(all.len() > LIMITS.connections));
                    prop_assert_eq!(gone, lost.first().map(|(_, (_, phase, _))| *phase));
                    for (_, (peer, phase, _)) in lost {
                        prop_assert!(*phase != Answer);
                        prop_assert!(all.values().all(|(other, _, _)| waiting(*other) <= waiting(*peer)));
                    }
                }
                Step::Enter(which, phase) => tracker.enter(id(which), phase, now),
                Step::Announce(which, length) => {
                    let others: usize =
                        before.iter().filter(|(number, _)| **number != id(which).1).map(|(_, open)| open.2).sum();
                    let gone = tracker.announce(id(which), length, now);
                    prop_assert!(gone.is_empty() || others + length > LIMITS.all_bodies);
                }
                Step::Remove(which) => drop(tracker.remove(id(which))),
            }
            let after = open(&tracker);
            prop_assert!(after.len() <= LIMITS.connections);
            prop_assert!(after.values().map(|open| open.2).sum::<usize>() <= LIMITS.all_bodies);
            prop_assert!(tracker.peers.values().all(|of_peer| !of_peer.is_empty()));
        }
    }
}
