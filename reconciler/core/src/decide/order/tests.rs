//! When a pool is done with a version.

use super::Service::{Left, Nowhere, Runs};
use super::*;
use crate::tests::world::{self, NOW, later as at};

/// What becomes of one note, step by step: (what the nodes say, seconds since the beginning, the note after that).
#[test]
fn a_pool_is_done_while_none_wants_the_version() {
    let done = |since: Option<i64>, longest_seconds| Some((since.map(at), longest_seconds));
    let mut note = None;
    for (what, service, wants, seconds, expected) in [
        ("nobody has it", Nowhere, true, 0, None),
        ("one has it, another wants it", Runs, true, 10, None),
        ("all have it", Runs, false, 20, done(Some(20), 0)),
        ("for a while", Runs, false, 30, done(Some(20), 0)),
        ("one joins that wants it", Runs, true, 50, done(None, 30)),
        ("it still wants it", Runs, true, 60, done(None, 30)),
        ("it has it", Runs, false, 70, done(Some(70), 30)),
        ("another joins, sooner", Runs, true, 80, done(None, 30)),
        ("it has it", Runs, false, 90, done(Some(90), 30)),
        (
            "all have gone on to a later version",
            Left,
            false,
            1000,
            done(Some(90), 30),
        ),
        (
            "one joins that wants it",
            Left,
            true,
            1090,
            done(None, 1000),
        ),
        ("it has it", Runs, false, 1100, done(Some(1100), 1000)),
        ("none is in service", Nowhere, false, 2200, done(None, 1100)),
        ("still none", Nowhere, false, 9000, done(None, 1100)),
        (
            "they have gone on, but not from there",
            Left,
            false,
            9100,
            done(None, 1100),
        ),
        (
            "one is in service again",
            Runs,
            false,
            9200,
            done(Some(9200), 1100),
        ),
    ] {
        let has_been = |since: &str| {
            u64::try_from(
                world::at(&at(seconds))
                    .duration_since(world::at(since))
                    .as_secs(),
            )
            .ok()
        };
        let before = note.map(|(since, longest_seconds)| DonePool {
            since,
            longest_seconds,
            ..DonePool::default()
        });
        note = super::done(service, wants, before.as_ref(), &at(seconds), has_been);
        assert_eq!(note, expected, "{what}");
    }
    assert_eq!(
        super::done(Nowhere, false, None, NOW, |_| None),
        None,
        "nothing is known"
    );
    assert_eq!(
        super::done(Left, false, None, NOW, |_| None),
        None,
        "nobody knows for how long it served"
    );
}

#[test]
fn a_version_serves_as_long_as_it_or_a_later_one_runs() {
    let standing = |runs: bool, comes| VersionSurvey {
        run_by: runs.then_some("aws").into_iter().collect(),
        comes,
        ..VersionSurvey::default()
    };
    let wanted = VersionSurvey {
        wanted_by: ["aws"].into(),
        ..VersionSurvey::default()
    };
    for (what, other, standing, expected) in [
        ("it runs", "1.20.0", standing(true, false), Runs),
        ("a later one runs", "1.21.0", standing(true, false), Left),
        (
            "a node is on its way to a later one",
            "1.21.0",
            standing(false, true),
            Left,
        ),
        ("a later one is only wanted", "1.21.0", wanted, Nowhere),
        (
            "it was rolled back",
            "1.9.0",
            standing(true, false),
            Nowhere,
        ),
        (
            "what runs is no version",
            "next",
            standing(true, false),
            Nowhere,
        ),
    ] {
        let standings = BTreeMap::from([(("canary", other), standing)]);
        assert_eq!(
            service(&standings, "canary", "1.20.0", &[]),
            expected,
            "{what}"
        );
        assert_eq!(
            service(&standings, "web", "1.20.0", &[]),
            Nowhere,
            "{what}, in another pool"
        );
    }
    assert_eq!(service(&BTreeMap::new(), "canary", "1.20.0", &[]), Nowhere);
}
