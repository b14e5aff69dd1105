//! Tests of gates: when they close, open, and are asked.

mod answer;
mod pools;

use super::*;
use GateState::{Closed as Bad, Open as Good, Unknown};
use proptest::prelude::*;
use std::collections::VecDeque;

const INTERVAL: Duration = Duration::from_secs(30);
const NONE: BTreeSet<&PrometheusGate> = BTreeSet::new();

fn query(query: &str) -> PrometheusGate {
    PrometheusGate {
        source: "main".to_owned(),
        query: query.to_owned(),
        requires: None,
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asks at this time and has the answer at once.
fn ask(gates: &mut Gates, query: &PrometheusGate, answer: GateState, now: Duration) {
    let (due, _) = gates.due(&BTreeSet::from([query]), &NONE, now);
    assert_eq!(due, std::slice::from_ref(query), "it is not due");
    gates.answered(query, answer, now);
}

/// Questions to a source that hangs have all places, again and again; one to another source has its turn all the same.
#[test]
fn a_source_that_hangs_keeps_no_other_from_being_asked() {
    let hangs = |nth: usize| PrometheusGate {
        source: "a-dead".into(),
        ..query(&format!("up == {nth:02}"))
    };
    let all: Vec<PrometheusGate> = (0..AT_ONCE * 3).map(hangs).chain([query("up")]).collect();
    let matter: BTreeSet<&PrometheusGate> = all.iter().collect();
    let mut gates = Gates::new(INTERVAL, at(0));
    let (mut under_way, mut asked) = (VecDeque::new(), 0);
    for second in 0..600 {
        let now = at(second);
        while let Some((_, query)) = under_way.pop_front_if(|(until, _)| *until <= second) {
            gates.answered(&query, Unknown, now);
        }
        for due in gates.due(&matter, &NONE, now).0 {
            if due.source == "main" {
                asked += 1;
                gates.answered(&due, Good, now);
            } else {
                under_way.push_back((second + 10, due));
            }
        }
    }
    assert!(asked >= 14, "asked {asked} times in ten minutes");
    assert_eq!(gates.state(&query("up"), at(600)), GateState::Open);
}

#[test]
fn an_answer_grows_old() {
    let (mut gates, up) = (Gates::new(INTERVAL, at(0)), query("up"));
    for seconds in [0, 30, 60] {
        ask(&mut gates, &up, Good, at(seconds));
    }
    // It counts from when it was asked, and nobody answers any more.
    assert_eq!(
        gates.due(&BTreeSet::from([&up]), &NONE, at(90)),
        (vec![up.clone()], Some(at(150)))
    );
    assert_eq!(gates.state(&up, at(149)), GateState::Open);
    assert_eq!(gates.state(&up, at(150)), GateState::Awaited);
    gates.answered(&up, Good, at(155));
    // That one was asked in time.
    assert_eq!(gates.state(&up, at(179)), GateState::Open);
    assert_eq!(gates.state(&up, at(180)), GateState::Awaited);
    // After the gap it has to be good three times again.
    for (seconds, state) in [
        (200, GateState::Awaited),
        (230, GateState::Awaited),
        (260, GateState::Open),
    ] {
        ask(&mut gates, &up, Good, at(seconds));
        assert_eq!(gates.state(&up, at(seconds)), state, "{seconds}");
    }
}

#[test]
fn a_gate_that_is_not_known_is_awaited_for_a_while() {
    let (mut gates, up) = (Gates::new(INTERVAL, at(1000)), query("up"));
    let is = |gates: &Gates, seconds| gates.state(&up, at(seconds));
    // Since this leader leads, also before it has asked.
    assert_eq!(
        (is(&gates, 1000), is(&gates, 1119)),
        (GateState::Awaited, GateState::Awaited)
    );
    assert_eq!(is(&gates, 1120), Unknown);
    for seconds in [2000, 2030] {
        ask(&mut gates, &up, Good, at(seconds));
        assert_eq!(is(&gates, seconds), Unknown, "it was never known");
    }
    ask(&mut gates, &up, Good, at(2060));
    // Since there is no answer that says anything.
    for seconds in [2090, 2120, 2150, 2180] {
        ask(&mut gates, &up, Unknown, at(seconds));
        assert_eq!(is(&gates, seconds), GateState::Awaited, "{seconds}");
    }
    assert_eq!(
        (is(&gates, 2209), is(&gates, 2210)),
        (GateState::Awaited, Unknown)
    );
    ask(&mut gates, &up, Unknown, at(2210));
    assert_eq!(is(&gates, 2210), Unknown);
    // Since the last answer does not hold any more.
    ask(&mut gates, &up, Bad, at(3000));
    assert_eq!(
        (is(&gates, 3089), is(&gates, 3090)),
        (Bad, GateState::Awaited)
    );
    ask(&mut gates, &up, Unknown, at(3100));
    assert_eq!(
        (is(&gates, 3209), is(&gates, 3210)),
        (GateState::Awaited, Unknown)
    );
}

#[test]
fn a_question_is_asked_once_an_interval() {
    let (mut gates, up) = (Gates::new(INTERVAL, at(0)), query("up"));
    let matter = BTreeSet::from([&up]);
    assert_eq!(gates.due(&matter, &NONE, at(5)), (vec![up.clone()], None));
    assert_eq!(gates.due(&matter, &NONE, at(6)), (vec![], None), "asked");
    gates.answered(&up, Bad, at(7));
    assert_eq!(gates.due(&matter, &NONE, at(7)), (vec![], Some(at(35))));
    assert_eq!(
        gates.due(&matter, &NONE, at(35)).0,
        std::slice::from_ref(&up)
    );
    gates.answered(&up, Bad, at(36));
    // Queries that do not matter are not asked, and are forgotten.
    assert_eq!(gates.due(&BTreeSet::new(), &NONE, at(36)), (vec![], None));
    assert_eq!(gates.state(&up, at(36)), GateState::Awaited);
    assert_eq!(
        gates.due(&matter, &NONE, at(37)).0,
        std::slice::from_ref(&up)
    );
    gates.answered(&query("another"), Good, at(38));
    assert_eq!(
        gates.state(&query("another"), at(38)),
        GateState::Awaited,
        "nobody asked that"
    );
}

/// Nobody waits for it, so one answer is enough; and who has mended a source hears of it.
#[test]
fn a_gate_that_nothing_waits_for_is_asked_once_and_until_there_is_an_answer() {
    let (mut gates, up, broken) = (Gates::new(INTERVAL, at(0)), query("up"), query("up ="));
    let both = BTreeSet::from([&up, &broken]);
    assert_eq!(
        gates.due(&NONE, &both, at(5)).0,
        [up.clone(), broken.clone()]
    );
    assert_eq!(gates.due(&NONE, &both, at(6)), (vec![], None), "both asked");
    gates.answered(&up, Good, at(6));
    gates.answered(&broken, Unknown, at(6));
    assert_eq!(gates.due(&NONE, &both, at(7)), (vec![], Some(at(305))));
    assert_eq!(
        gates.due(&NONE, &both, at(305)).0,
        std::slice::from_ref(&broken)
    );
    gates.answered(&broken, Good, at(306));
    assert_eq!(gates.due(&NONE, &both, at(100_000)), (vec![], None));
    // It begins to matter, and is asked at once; it ends to, and is not.
    let (of_up, of_broken) = (BTreeSet::from([&up]), BTreeSet::from([&broken]));
    assert_eq!(
        gates.due(&of_up, &both, at(100_010)).0,
        std::slice::from_ref(&up)
    );
    gates.answered(&up, Good, at(100_011));
    assert_eq!(gates.due(&NONE, &both, at(100_012)), (vec![], None));
    // A gate that is changed is another one; a pool that is made again, too.
    assert_eq!(gates.due(&NONE, &of_broken, at(100_013)), (vec![], None));
    assert_eq!(gates.due(&NONE, &both, at(100_014)).0, [up]);
}

/// Returns what is asked, as long as something is due and each question is answered.
fn asked_until_none_is_due(
    gates: &mut Gates,
    matter: &BTreeSet<&PrometheusGate>,
    others: &BTreeSet<&PrometheusGate>,
    now: Duration,
) -> Vec<PrometheusGate> {
    let mut asked = vec![];
    loop {
        let (due, _) = gates.due(matter, others, now);
        if due.is_empty() {
            return asked;
        }
        assert!(due.len() <= AT_ONCE, "{} at once", due.len());
        assert!(
            due.len() < AT_ONCE || gates.due(matter, others, now).0.is_empty(),
            "as many are under way"
        );
        for query in &due {
            gates.answered(query, Unknown, now);
        }
        asked.extend(due);
    }
}

/// There are 64 places, and those that matter have them first.
#[test]
fn gates_that_nothing_waits_for_take_no_place_from_those_that_matter() {
    let many: Vec<PrometheusGate> = (0..200)
        .map(|nth| query(&format!("up == {nth:03}")))
        .collect();
    let mut gates = Gates::new(INTERVAL, at(0));
    let all = many.iter().collect();
    let mut ask_all = |matter: &BTreeSet<&PrometheusGate>, now| {
        asked_until_none_is_due(&mut gates, matter, &all, now)
    };
    assert_eq!(ask_all(&NONE, at(0)), many[..QUERIES_MAX]);
    let matter: BTreeSet<&PrometheusGate> = many[150..].iter().collect();
    assert_eq!(ask_all(&matter, at(1)), many[150..]);
}

fn answers() -> impl Strategy<Value = Vec<(GateState, u64)>> {
    let answer = prop_oneof![3 => Just(Good), 1 => Just(Bad), 1 => Just(Unknown)];
    prop::collection::vec(
        (answer, prop_oneof![3 => 30_u64..40, 1 => 40_u64..300]),
        0..40,
    )
}

proptest! {
    /// Open is what was good three times in a row, and not long ago; whatever comes when.
    #[test]
    fn nothing_else_opens_a_gate(answers in answers(), later in 0_u64..200) {
        let (mut gates, up) = (Gates::new(INTERVAL, at(0)), query("up"));
        let (mut now, mut row, mut last) = (0, 0, None);
        for (answer, after) in answers {
            now += after;
            ask(&mut gates, &up, answer, at(now));
            let in_time = last.is_some_and(|last| now - last < 90);
            row = if answer == Good { if in_time { row + 1 } else { 1 } } else { 0 };
            last = Some(now);
            prop_assert_eq!(gates.state(&up, at(now)) == GateState::Open, row >= 3, "after {} s", now);
        }
        let open = row >= 3 && later < 90;
        prop_assert_eq!(gates.state(&up, at(now + later)) == GateState::Open, open);
    }
}
