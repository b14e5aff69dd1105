use super::*;
use crate::peer::tests::peer;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn token(number: usize) -> Digest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    digest
}

/// The API server is asked about this token, and says this.
fn ask(cache: &mut ReviewCache, number: usize, of: Peer, says: Judgement, now: Instant) {
    assert_eq!(
        cache.look_up(token(number), of, now),
        Lookup::Ask,
        "{number}"
    );
    cache.store(&token(number), says, now);
}

#[test]
fn an_answer_holds_for_its_time() {
    let now = Instant::now();
    for (outcome, seconds) in [
        (Judgement::Allowed, 60),
        (Judgement::Unauthenticated, 10),
        (Judgement::Forbidden, 10),
        (Judgement::Unavailable, 10),
    ] {
        let mut cache = ReviewCache::default();
        ask(&mut cache, 1, peer(1), outcome, now);
        let end = now + SECOND * seconds;
        assert_eq!(
            cache.look_up(token(1), peer(1), now + SECOND * seconds * 999 / 1000),
            Lookup::Known(outcome)
        );
        assert_eq!(
            cache.look_up(token(1), peer(1), end),
            Lookup::Ask,
            "{outcome:?}"
        );
        assert_eq!(
            cache.look_up(token(1), peer(2), end),
            Lookup::Pending,
            "{outcome:?}"
        );
    }
}

#[test]
fn a_known_token_is_soon_asked_about_again() {
    let (mut cache, now) = (ReviewCache::default(), Instant::now());
    ask(&mut cache, 1, peer(1), Judgement::Allowed, now);
    let later = now + ALLOWED_FOR;
    ask(&mut cache, 1, peer(1), Judgement::Unavailable, later);
    let known = Lookup::Known(Judgement::Unavailable);
    assert_eq!(cache.look_up(token(1), peer(1), later + SECOND / 2), known);
    ask(&mut cache, 1, peer(1), Judgement::Allowed, later + SECOND);
}

#[test]
fn a_peer_has_few_unknown_tokens_at_once() {
    let (mut cache, now) = (ReviewCache::default(), Instant::now());
    for number in 0..MOST_UNKNOWN_OF_PEER {
        assert_eq!(cache.look_up(token(number), peer(1), now), Lookup::Ask);
    }
    let limited = Lookup::Known(Judgement::Limited);
    assert_eq!(
        cache.look_up(token(100), peer(1), now),
        limited,
        "while the API server is asked"
    );
    for number in 0..MOST_UNKNOWN_OF_PEER {
        cache.store(&token(number), Judgement::Unauthenticated, now);
    }
    assert_eq!(
        cache.look_up(token(100), peer(1), now),
        limited,
        "and when it has answered"
    );
    assert_eq!(cache.look_up(token(100), peer(2), now), Lookup::Ask);
    assert_eq!(
        cache.look_up(token(101), peer(1), now + REFUSED_FOR),
        Lookup::Ask
    );
}

#[test]
fn made_up_tokens_keep_no_known_one_out() {
    let (mut cache, now) = (ReviewCache::default(), Instant::now());
    ask(&mut cache, 1000, peer(0), Judgement::Allowed, now);
    let later = now + ALLOWED_FOR;
    for (number, of) in (0..MOST_UNKNOWN).zip((1..=20).cycle()) {
        ask(
            &mut cache,
            number,
            peer(of),
            Judgement::Unauthenticated,
            later,
        );
    }
    assert_eq!(
        cache.look_up(token(1001), peer(200), later),
        Lookup::Known(Judgement::Limited)
    );
    ask(&mut cache, 1000, peer(0), Judgement::Allowed, later);
    // Once it is refused it is one like any other.
    let later = later + ALLOWED_FOR;
    ask(&mut cache, 1000, peer(0), Judgement::Unauthenticated, later);
    assert_eq!(cache.entries.len(), 1);
    assert!(!cache.entries[&token(1000)].known);
}

#[test]
fn of_too_many_known_tokens_the_oldest_goes() {
    let (mut cache, now) = (ReviewCache::default(), Instant::now());
    for number in 0..=MOST_KNOWN {
        let now = now + SECOND / 1000 * u32::try_from(number).unwrap();
        ask(&mut cache, number, peer(1), Judgement::Allowed, now);
    }
    assert_eq!(cache.entries.len(), MOST_KNOWN);
    assert!(!cache.entries.contains_key(&token(0)) && cache.entries.contains_key(&token(1)));
}

#[derive(Clone, Debug)]
struct Step {
    token: usize,
    peer: u8,
    wait: u64,
    says: Judgement,
}

fn step() -> impl Strategy<Value = Step> {
    let says = [
        Judgement::Allowed,
        Judgement::Unauthenticated,
        Judgement::Forbidden,
        Judgement::Unavailable,
    ];
    (
        0..400_usize,
        0..40_u8,
        0..100_u64,
        prop::sample::select(says.to_vec()),
    )
        .prop_map(|(token, peer, wait, says)| Step {
            token,
            peer,
            wait,
            says,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Who asks what when: no answer outlives its time, and unknown tokens are asked about within the rate.
    #[test]
    fn never_stale_and_never_too_often(steps in prop::collection::vec(step(), 1..800)) {
        let (mut cache, mut now) = (ReviewCache::default(), Instant::now());
        let mut answers = HashMap::new();
        let mut refused: Vec<Instant> = Vec::new();
        for step in steps {
            now += Duration::from_millis(step.wait);
            let known = cache.entries.get(&token(step.token)).is_some_and(|entry| entry.known);
            match cache.look_up(token(step.token), peer(step.peer), now) {
                Lookup::Ask => {
                    if !known && step.says != Judgement::Allowed {
                        refused.push(now);
                    }
                    cache.store(&token(step.token), step.says, now);
                    answers.insert(step.token, (step.says, now));
                }
                Lookup::Known(Judgement::Limited) => prop_assert!(!known),
                Lookup::Known(outcome) => {
                    let (truth, since) = answers[&step.token];
                    let longest = if outcome == Judgement::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
                    prop_assert!(outcome == truth && now < since + longest);
                }
                Lookup::Pending => prop_assert!(false, "each was answered"),
            }
            prop_assert!(refused.iter().filter(|at| now < **at + REFUSED_FOR).count() <= MOST_UNKNOWN);
            prop_assert!(cache.entries.len() <= MOST_UNKNOWN + MOST_KNOWN);
        }
    }
}
