use super::*;

fn seen(goal: State, reached: State) -> Seen {
    Seen {
        has_shadow: true,
        has_node: true,
        goal,
        reached: Some(reached),
        ready: true,
        boot_id: "a".into(),
        ..Seen::default()
    }
}

#[test]
fn updates_are_told_apart() {
    use State::{Idle, StagedAndPerformedUpdate};
    let zero = Instant::now();
    let at = |millis| zero + Duration::from_millis(millis);
    let marked = Seen {
        marked: true,
        ..seen(Idle, Idle)
    };
    let rows = [
        (0, seen(Idle, Idle)),
        (10, seen(StagedAndPerformedUpdate, Idle)),
        (20, seen(StagedAndPerformedUpdate, StagedAndPerformedUpdate)),
        (30, seen(Idle, StagedAndPerformedUpdate)),
        (40, marked),
        (50, seen(Idle, Idle)),
        (60, seen(StagedAndPerformedUpdate, Idle)),
    ];
    let mut history = History::default();
    history.nodes.insert(
        "a".into(),
        rows.map(|(millis, seen)| (at(millis), seen)).into(),
    );
    assert_eq!(
        history.updates("a"),
        [(at(10), Some(at(50))), (at(60), None)]
    );
    assert_eq!(history.updates("b"), []);
}

#[test]
fn unavailable_nodes_are_counted_at_every_moment() {
    let zero = Instant::now();
    let at = |millis| zero + Duration::from_millis(millis);
    let away = |is| Seen {
        cordoned: is,
        ..seen(State::Idle, State::Idle)
    };
    let mut history = History::default();
    history.nodes.insert(
        "a".into(),
        vec![
            (at(0), away(false)),
            (at(10), away(true)),
            (at(20), away(false)),
        ],
    );
    history.nodes.insert(
        "b".into(),
        vec![
            (at(0), away(false)),
            (at(20), away(true)),
            (at(40), away(false)),
        ],
    );
    history.nodes.insert(
        "c".into(),
        vec![
            (at(0), away(false)),
            (at(30), away(true)),
            (at(35), away(false)),
        ],
    );
    assert_eq!(history.most_unavailable(), 2);
    assert_eq!(history.most_unavailable_since(at(34)), 2);
    assert_eq!(
        history.most_unavailable_since(at(36)),
        1,
        "what came before does not count"
    );
    assert_eq!(history.most_unavailable_since(at(40)), 0);
}
