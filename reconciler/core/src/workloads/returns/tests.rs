//! Whose pods come back to a node each time that they are evicted.

use super::*;

/// Looks at these pods, `<owner><number>`, in the drain that began then. Returns who returns, and which pods are held.
fn look(
    returns: &mut Returns,
    began: &str,
    pods: &[&str],
    seconds: u64,
) -> (Vec<String>, Vec<String>) {
    let pods = pods
        .iter()
        .map(|pod| ((*pod).to_owned(), pod[..1].to_owned()));
    let found = returns.observe("brs-n", Some(began), pods, Duration::from_secs(seconds));
    (found.owners, found.held.into_iter().collect())
}

const NOBODY: (Vec<String>, Vec<String>) = (vec![], vec![]);

fn those(owners: &[&str], pods: &[&str]) -> (Vec<String>, Vec<String>) {
    [owners, pods]
        .map(|them| them.iter().map(|it| (*it).to_owned()).collect())
        .into()
}

#[test]
fn who_comes_back_twice_is_returning() {
    let mut returns = Returns::default();
    assert_eq!(look(&mut returns, "then", &["a1", "a2", "b1"], 0), NOBODY);
    for uid in ["a1", "a2", "b1"] {
        returns.eviction_begins(uid);
    }
    assert_eq!(
        look(&mut returns, "then", &["a2", "a3", "b1"], 1),
        those(&[], &["a3"]),
        "the first time"
    );
    let later = look(&mut returns, "then", &["a2", "a3", "b1"], 11);
    assert_eq!(later, NOBODY, "the scheduler has seen the cordon");
    returns.eviction_begins("a3");
    let found = look(&mut returns, "then", &["a4", "a5", "b1"], 12);
    assert_eq!(found, those(&["a"], &["a4", "a5"]), "a2 and a3 went");
    let found = look(&mut returns, "then", &["b2", "a5"], 13);
    assert_eq!(found, those(&["a"], &["a5", "b2"]), "b only once");
    assert_eq!(
        look(&mut returns, "later", &["a5", "b2"], 14),
        NOBODY,
        "another drain"
    );
}

#[test]
fn pods_of_a_slow_scheduler_are_evicted() {
    let mut returns = Returns::default();
    look(&mut returns, "then", &["a1"], 0);
    returns.eviction_begins("a1");
    assert_eq!(look(&mut returns, "then", &["a2"], 0), those(&[], &["a2"]));
    let next = returns
        .observe(
            "brs-n",
            Some("then"),
            [("a2".into(), "a".into())].into_iter(),
            Duration::ZERO,
        )
        .next;
    assert_eq!(next, Some(SCHEDULER_LAG));
    assert_eq!(look(&mut returns, "then", &["a2"], 10), NOBODY);
    returns.eviction_begins("a2");
    assert_eq!(look(&mut returns, "then", &[], 11), NOBODY);
}

#[test]
fn pods_that_were_not_evicted_count_for_nothing() {
    let mut returns = Returns::default();
    for number in 0..9 {
        let name = format!("a{number}");
        assert_eq!(
            look(&mut returns, "then", &[&name, "b1"], number),
            NOBODY,
            "they crash by themselves"
        );
        returns.eviction_begins("b1");
    }
    assert_eq!(
        returns.observe("brs-n", None, [].into_iter(), Duration::ZERO),
        Returning::default()
    );
    returns.retain(|_| false);
    assert!(returns.0.is_empty());
}
