use super::*;
use kube::core::Status;

#[test]
fn a_failing_watch_forgets_and_invents_nothing() {
    let failed = |code| {
        let status = Status {
            code,
            ..Status::default()
        };
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(
            status.boxed(),
        )))
    };
    for before in [
        None,
        Some(FoundWorkload::Unknown),
        Some(FoundWorkload::Gone),
    ] {
        let after = |shown| after(before, shown);
        assert_eq!(after(failed(503)), before);
        assert_eq!(after(failed(429)), before);
        assert_eq!(
            after(failed(403)),
            Some(FoundWorkload::Unknown),
            "nobody waits for what nobody may see"
        );
        assert_eq!(
            after(failed(400)),
            Some(FoundWorkload::Unknown),
            "nor for what cannot be asked"
        );
        assert_eq!(after(Ok(None)), Some(FoundWorkload::Gone));
    }
}

#[test]
fn workloads_of_updates_come_before_those_of_nodes_that_wait() {
    let workload = |of: &str, number: usize| {
        Workload::parse(&format!("apps/v1/ReplicaSet/{of}/w{number:03}")).unwrap()
    };
    let set = |of: &str, count: usize| {
        (0..count)
            .map(|number| workload(of, number))
            .collect::<BTreeSet<_>>()
    };
    // Those that wait were there first.
    let waiting = choose([set("zoo", 1), set("a", MAX_WORKLOAD_WATCHES)], |_| false);
    assert_eq!(waiting.len(), MAX_WORKLOAD_WATCHES);
    assert!(waiting.contains(&workload("zoo", 0)));
    let more = choose([set("zoo", 100), set("a", MAX_WORKLOAD_WATCHES)], |it| {
        waiting.contains(it)
    });
    assert_eq!(more.len(), MAX_WORKLOAD_WATCHES);
    assert!(
        (0..100).all(|number| more.contains(&workload("zoo", number))),
        "they make room"
    );
    let last = workload("zoo", 599);
    let again = choose([set("zoo", 600), BTreeSet::new()], |it| *it == last);
    assert!(
        again.contains(&last) && again.len() == MAX_WORKLOAD_WATCHES,
        "what is watched stays so"
    );
}
