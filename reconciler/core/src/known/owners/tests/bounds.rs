//! How much pools may cost, whatever they say.

use super::*;

/// The worst that the schema takes: selectors that differ in the last requirement, windows, pools that go first.
fn worst(nth: usize) -> Item<Pool> {
    let labels: serde_json::Map<String, Value> = (0..16)
        .map(|key| (format!("key-{key:02}"), json!("value")))
        .collect();
    let values: Vec<String> = (0..32).map(|value| format!("value-{value}")).collect();
    let not_in =
        |key: usize| json!({"key": format!("key-{key:02}"), "operator": "NotIn", "values": values});
    let mut expressions: Vec<Value> = (0..15).map(not_in).collect();
    expressions.push(json!({"key": "key-15", "operator": "In", "values": values}));
    let window = |minute: usize| json!({"schedule": format!("{minute}-59/2 * * * *"), "duration": "1m", "timeZone": "Europe/Berlin"});
    let after: Vec<Value> = (1..9)
        .map(|next| json!({"pool": format!("p{:04}", nth + next), "soak": "1h"}))
        .collect();
    let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
    let windows: Vec<Value> = (0..16).map(|minute| window(minute % 2)).collect();
    a_pool(
        &format!("p{nth:04}"),
        json!({"nodeSelector": selector, "dependsOn": after, "versions": {"minAge": "72h"}, "windows": windows}),
    )
}

/// A pass holds the reconciler's thread.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "it is about how long a pass takes"
)]
fn no_pass_is_held_up_by_many_pools() {
    let mut cluster = Cluster::default();
    let labels: serde_json::Map<String, Value> = (0..16)
        .map(|key| (format!("key-{key:02}"), json!("value")))
        .collect();
    for number in 0..100 {
        node(&format!("n{number}"), &json!(labels)).put(&mut cluster);
    }
    // Only the first 128 count.
    cluster.replace((0..200).map(worst));
    let now = at(NOW);
    let mut known = Known::default();
    let (mut longest, mut parts) = (std::time::Duration::ZERO, 0);
    let mut take = |part: &mut dyn FnMut() -> bool| {
        let began = std::time::Instant::now();
        let done = part();
        longest = longest.max(began.elapsed());
        done
    };
    while !take(&mut || known.prepare_pools(&cluster, now, &Policy::default())) {
        parts += 1;
        assert!(parts < 1000, "it comes to an end");
    }
    take(&mut || pools_at(&cluster, &known, &USUAL, now).next.is_some());
    // Far more than it takes: tests are not optimised, and share the machine. `make bench` has the time itself.
    assert!(longest.as_secs() < 2, "{longest:?} of {parts} parts");
    assert!(parts > 50, "{parts}");
    let pools = pools_at(&cluster, &known, &USUAL, now);
    let too_many = Starts::Invalid(crate::observe::TOO_MANY);
    assert_eq!(pools.all[POOLS_MAX].starts, too_many);
    assert!(pools.all[POOLS_MAX - 1].starts != too_many && pools.all.len() == 200);
    assert!(crate::observe::TOO_MANY.contains(&format!(" {POOLS_MAX} ")));
    assert_eq!(known.owners.len(), 100);
    assert!(
        known
            .owners
            .values()
            .all(|known| known.owner == Owner::Nobody)
    );
}

/// It holds the reconciler's thread, and its cluster is locked.
#[test]
#[allow(clippy::disallowed_methods, reason = "it is about how long it takes")]
fn a_list_of_many_pools_is_taken_in_in_less_time_than_it_is_read() {
    let mut cluster = Cluster::default();
    for number in 0..5_000 {
        node(&format!("n{number}"), &json!({})).put(&mut cluster);
    }
    let read = |priority: u64| -> Vec<Item<Pool>> {
        let selector = |nth: usize| tier(&nth.to_string());
        (0..4_000)
            .map(|nth| pool(&format!("p{nth:04}"), priority, &selector(nth)))
            .collect()
    };
    for (what, priority) in [("new", 0), ("the same", 0), ("changed", 1)] {
        let began = std::time::Instant::now();
        let listed = read(priority);
        let reading = began.elapsed();
        let began = std::time::Instant::now();
        cluster.replace(listed);
        assert!(
            began.elapsed() < reading,
            "{what}: {:?} after {reading:?}",
            began.elapsed()
        );
    }
}

/// Anyone who may edit pools can make hundreds of the largest that the schema takes.
#[test]
fn pools_are_bounded_in_sum() {
    let value = |number: usize| format!("{number:x>63}");
    let values: Vec<String> = (0..32).map(value).collect();
    let large = |nth: usize| {
        let expressions: Vec<Value> = (0..16)
            .map(|number| json!({"key": format!("k-{number}"), "operator": "In", "values": values}))
            .collect();
        pool(
            &format!("large-{nth}"),
            9,
            &json!({"matchExpressions": expressions}),
        )
    };
    let small = || pool("small", 3, &tier("web"));
    let given_up = |cluster: &Cluster| {
        let all = cluster
            .pools
            .values()
            .filter(|pool| pool.item.ok().unwrap().is_given_up());
        all.map(|pool| (pool.item.name().to_owned(), pool.invalid().unwrap()))
            .collect::<Vec<_>>()
    };
    let one = large(0);
    let named = |nth: usize| renamed(&one, format!("large-{nth:03}"));
    let mut listed: Vec<_> = std::iter::once(small())
        .chain((0..900).map(named))
        .collect();
    Item::<Pool>::bound(&mut listed);
    let kept = |item: &Item<Pool>| !item.ok().unwrap().is_given_up();
    assert!(listed.iter().filter(|item| kept(item)).count() < 700 && kept(&listed[0]));
    let mut cluster = Cluster::default();
    cluster.replace(listed);
    assert!(cluster.has_given_pools_up());
    node("n", &json!({})).put(&mut cluster);
    assert_eq!(
        owner_in(&cluster),
        Some(Owner::Nobody),
        "they hold up no other node"
    );
    let first = given_up(&cluster);
    assert!(first[0].1.contains("delete pools"), "{first:?}");
    // Each comes back whole whenever its status is written.
    for nth in 890..900 {
        named(nth).put(&mut cluster);
    }
    assert_eq!(given_up(&cluster), first, "the same ones");
    cluster.replace([small(), named(1)]);
    assert!(!cluster.has_given_pools_up() && given_up(&cluster).is_empty());
}

fn renamed(item: &Item<Pool>, name: String) -> Item<Pool> {
    let mut another = item.clone();
    another.metadata.name = Some(name);
    another.body.as_mut().unwrap().metadata.name = another.metadata.name.clone();
    another
}

#[test]
fn what_is_left_of_pools_that_are_given_up_is_bounded_too() {
    let text = |length: usize, number: usize| format!("{number:x>length$}");
    let values: Vec<String> = (0..32).map(|number| text(63, number)).collect();
    let expressions: Value = (0..16)
        .map(|nth| json!({"key": text(317, nth), "operator": "NotIn", "values": values}))
        .collect();
    // No schema bounds keys.
    let labels: serde_json::Map<String, Value> =
        (0..16).map(|nth| (text(10_000, nth), json!("v"))).collect();
    for selector in [
        json!({"matchExpressions": expressions}),
        json!({"matchLabels": labels}),
    ] {
        let bytes = |item: &Item<Pool>| {
            let requirements = item.ok().unwrap().selector.clone().into_iter().flatten();
            requirements.map(|it| it.to_string().len()).sum::<usize>()
        };
        let one = pool("one", 9, &selector);
        let number = (96 << 20) / bytes(&one);
        let mut listed: Vec<_> = (0..number)
            .map(|nth| renamed(&one, format!("p{nth:04}")))
            .collect();
        listed.push(pool("small", 3, &tier("web")));
        Item::<Pool>::bound(&mut listed);
        let kept: usize = listed.iter().map(bytes).sum();
        assert!(
            (24 << 20..48 << 20).contains(&kept),
            "{kept} bytes of {number} selectors"
        );
        let mut cluster = Cluster::default();
        node("n", &json!({})).put(&mut cluster);
        cluster.replace(listed);
        let all: Vec<&Pool> = cluster
            .pools
            .values()
            .filter_map(|pool| pool.item.ok())
            .collect();
        let [without, with] =
            [all.iter().find(|pool| pool.selector.is_none()), all.last()].map(Option::unwrap);
        let why = without.rules.as_ref().unwrap_err().to_string();
        assert!(
            why.contains("It holds all nodes") && with.rules.is_ok(),
            "{why}"
        );
        assert!(
            matches!(owner_in(&cluster), Some(Owner::Conflict(_))),
            "they hold all nodes"
        );
    }
}

#[test]
fn nothing_is_kept_of_the_owners_of_pools() {
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c"});
    let read = |owners: usize| -> Item<Pool> {
        read(
            json!({"metadata": {"name": "a", "uid": "u", "ownerReferences": vec![owner.clone(); owners]},
            "spec": {"nodeSelector": {}}}),
        )
    };
    let [with, without] = [read(20_000), read(0)];
    assert_eq!(with.body.unwrap().metadata, without.body.unwrap().metadata);
}

#[test]
fn windows_weigh_what_they_are_in_memory() {
    let window = json!({"schedule": "* * * * *", "duration": "1s"});
    let one = a_pool("a", json!({"windows": vec![window; 16]}));
    let mut listed: Vec<_> = (0..400)
        .map(|nth| renamed(&one, format!("p{nth}")))
        .collect();
    Item::<Pool>::bound(&mut listed);
    let kept = listed
        .iter()
        .filter(|item| !item.ok().unwrap().is_given_up())
        .count();
    let of_one = 16 * 5_000;
    assert!(
        (1..(32 << 20) / of_one).contains(&kept),
        "{kept} pools of {of_one} bytes are kept"
    );
}
