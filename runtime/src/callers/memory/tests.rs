use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SECOND: Duration = Duration::from_secs(1);

fn token(number: usize) -> Digest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    digest
}

fn peer(number: u8) -> Peer {
    std::net::IpAddr::from(Ipv4Addr::new(10, 0, 0, number)).into()
}

/// The API server is asked about this token, and says this.
fn ask(memory: &mut Memory, number: usize, of: Peer, says: Standing, now: Instant) {
    assert_eq!(memory.look(token(number), of, now), Look::Ask, "{number}");
    memory.answered(&token(number), says, now);
}

#[test]
fn an_answer_holds_for_its_time() {
    let now = Instant::now();
    for (standing, seconds) in [
        (Standing::Allowed, 60),
        (Standing::Unauthenticated, 10),
        (Standing::Forbidden, 10),
        (Standing::Unavailable, 10),
    ] {
        let mut memory = Memory::default();
        ask(&mut memory, 1, peer(1), standing, now);
        let end = now + SECOND * seconds;
        assert_eq!(
            memory.look(token(1), peer(1), now + SECOND * seconds * 999 / 1000),
            Look::Holds(standing)
        );
        assert_eq!(memory.look(token(1), peer(1), end), Look::Ask, "{standing:?}");
        assert_eq!(memory.look(token(1), peer(2), end), Look::Asked, "{standing:?}");
    }
}

#[test]
fn a_known_token_is_soon_asked_about_again() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    ask(&mut memory, 1, peer(1), Standing::Allowed, now);
    let later = now + ALLOWED_FOR;
    ask(&mut memory, 1, peer(1), Standing::Unavailable, later);
    let holds = Look::Holds(Standing::Unavailable);
    assert_eq!(memory.look(token(1), peer(1), later + SECOND / 2), holds);
    ask(&mut memory, 1, peer(1), Standing::Allowed, later + SECOND);
}

#[test]
fn a_peer_has_few_unknown_tokens_at_a_time() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    for number in 0..MOST_UNKNOWN_OF_PEER {
        assert_eq!(memory.look(token(number), peer(1), now), Look::Ask);
    }
    let limited = Look::Holds(Standing::Limited);
    assert_eq!(memory.look(token(100), peer(1), now), limited, "while the API server is asked");
    for number in 0..MOST_UNKNOWN_OF_PEER {
        memory.answered(&token(number), Standing::Unauthenticated, now);
    }
    assert_eq!(memory.look(token(100), peer(1), now), limited, "and when it has answered");
    assert_eq!(memory.look(token(100), peer(2), now), Look::Ask);
    assert_eq!(memory.look(token(101), peer(1), now + REFUSED_FOR), Look::Ask);
}

#[test]
fn made_up_tokens_keep_no_known_one_out() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    ask(&mut memory, 1000, peer(0), Standing::Allowed, now);
    let later = now + ALLOWED_FOR;
    for (number, of) in (0..MOST_UNKNOWN).zip((1..=20).cycle()) {
        ask(&mut memory, number, peer(of), Standing::Unauthenticated, later);
    }
    assert_eq!(memory.look(token(1001), peer(200), later), Look::Holds(Standing::Limited));
    ask(&mut memory, 1000, peer(0), Standing::Allowed, later);
    // Once it is refused it is one like any other.
    let later = later + ALLOWED_FOR;
    ask(&mut memory, 1000, peer(0), Standing::Unauthenticated, later);
    assert_eq!(memory.0.len(), 1);
    assert!(!memory.0[&token(1000)].known);
}

#[test]
fn of_too_many_known_tokens_the_oldest_goes() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    for number in 0..=MOST_KNOWN {
        let now = now + SECOND / 1000 * u32::try_from(number).unwrap();
        ask(&mut memory, number, peer(1), Standing::Allowed, now);
    }
    assert_eq!(memory.0.len(), MOST_KNOWN);
    assert!(!memory.0.contains_key(&token(0)) && memory.0.contains_key(&token(1)));
}

#[derive(Clone, Debug)]
struct Step {
    token: usize,
    peer: u8,
    wait: u64,
    says: Standing,
}

fn step() -> impl Strategy<Value = Step> {
    let says = [Standing::Allowed, Standing::Unauthenticated, Standing::Forbidden, Standing::Unavailable];
    (0..400_usize, 0..40_u8, 0..100_u64, prop::sample::select(says.to_vec()))
        .prop_map(|(token, peer, wait, says)| Step { token, peer, wait, says })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whoever asks what when: no answer outlives its time, and unknown tokens are asked about within the rate.
    #[test]
    fn never_stale_and_never_too_often(steps in prop::collection::vec(step(), 1..800)) {
        let (mut memory, mut now) = (Memory::default(), Instant::now());
        let mut said = HashMap::new();
        let mut refused: Vec<Instant> = Vec::new();
        for step in steps {
            now += Duration::from_millis(step.wait);
            let known = memory.0.get(&token(step.token)).is_some_and(|entry| entry.known);
            match memory.look(token(step.token), peer(step.peer), now) {
                Look::Ask => {
                    if !known && step.says != Standing::Allowed {
                        refused.push(now);
                    }
                    memory.answered(&token(step.token), step.says, now);
                    said.insert(step.token, (step.says, now));
                }
                Look::Holds(Standing::Limited) => prop_assert!(!known),
                Look::Holds(standing) => {
                    let (truth, since) = said[&step.token];
                    let longest = if standing == Standing::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
                    prop_assert!(standing == truth && now < since + longest);
                }
                Look::Asked => prop_assert!(false, "each was answered"),
            }
            prop_assert!(refused.iter().filter(|at| now < **at + REFUSED_FOR).count() <= MOST_UNKNOWN);
            prop_assert!(memory.0.len() <= MOST_UNKNOWN + MOST_KNOWN);
        }
    }
}
