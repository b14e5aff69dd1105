use super::*;
use crate::connections::tests::LIMITS as OF_PORTS;
use std::time::Duration;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::advance;

const LIMITS: Limits = Limits {
    all_bodies: 200,
    ..OF_PORTS
};

fn peer(number: u8) -> Peer {
    IpAddr::from([10, 0, 0, number]).into()
}

#[test]
fn addresses_of_one_caller_are_one_peer() {
    for (one, other, same) in [
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
        ("10.0.0.1", "::ffff:10.0.0.1", true),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ("::1", "127.0.0.1", false),
    ] {
        let peer = |address: &str| Peer::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(peer(one) == peer(other), same, "{one} {other}");
    }
}

type Open = Vec<(Permit, oneshot::Receiver<Infallible>)>;

/// One more connection of this peer, a millisecond after the last one.
async fn add(room: &Room, open: &mut Open, of: u8) {
    advance(Duration::from_millis(1)).await;
    open.push(room.add(peer(of)));
}

/// Returns which connections have been dropped, by their places.
fn dropped(open: &mut Open) -> Vec<usize> {
    let lost = open.iter_mut().enumerate();
    lost.filter_map(|(at, (_, lost))| (lost.try_recv() == Err(TryRecvError::Closed)).then_some(at))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn longest_idle_of_the_greatest_peer_makes_room() {
    let but_third = [true, true, false, true];
    // Whose connections there are, which of them are being answered, and which goes when another one of peer 1 comes.
    for (says, peers, asking, goes) in [
        ("the oldest", [2, 3, 3, 2], [false; 4], 0),
        ("none of a peer that has few", [1, 2, 2, 2], [false; 4], 1),
        ("none that is answered", [2, 2, 3, 2], but_third, 2),
        ("or the new one", [2; 4], [true; 4], 4),
    ] {
        let drops = Drops::default();
        let (room, mut open) = (Room::new(LIMITS, &drops), Vec::new());
        for (of, is_asking) in peers.into_iter().zip(asking) {
            add(&room, &mut open, of).await;
            if is_asking {
                open.last().unwrap().0.answer();
            }
        }
        assert!(dropped(&mut open).is_empty());
        add(&room, &mut open, 1).await;
        assert_eq!(dropped(&mut open), [goes], "{says}");
        assert_eq!(room.drops.get(), 1);
        open.clear();
        assert!(locked(&room.open).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_makes_a_connection_young() {
    let (room, mut open) = (Room::new(LIMITS, &Drops::default()), Vec::new());
    for _ in 0..4 {
        add(&room, &mut open, 1).await;
    }
    advance(Duration::from_millis(1)).await;
    open[0].0.answer();
    open[0].0.wait(0);
    add(&room, &mut open, 1).await;
    assert_eq!(dropped(&mut open), [1]);
}

#[tokio::test(start_paused = true)]
async fn bodies_make_room_for_each_other() {
    let (room, mut open) = (Room::new(LIMITS, &Drops::default()), Vec::new());
    for of in [1, 2, 2, 3] {
        add(&room, &mut open, of).await;
    }
    for (at, length) in [(0, 60), (1, 60), (2, 70)] {
        open[at].0.wait(length);
        advance(Duration::from_millis(1)).await;
    }
    assert!(dropped(&mut open).is_empty());
    open[3].0.wait(70);
    assert_eq!(dropped(&mut open), [1], "peer 2 has most");
    open[2].0.answer();
    open[3].0.wait(0);
    open[0].0.wait(0);
    open[0].0.wait(130);
    assert_eq!(
        dropped(&mut open),
        [1],
        "a body that is judged is in memory"
    );
    open[0].0.wait(131);
    assert_eq!(dropped(&mut open), [0, 1], "the new one is longest");
}
