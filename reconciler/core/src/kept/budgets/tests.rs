use super::*;
use crate::tests::world;
use serde_json::json;

/// One that asks for a label of this key.
fn budget(namespace: &str, name: &str, key: &str, allowed: i32) -> Item<Budget> {
    let labels = world::with(json!({"app": null}), &json!({key: "v"}));
    let change = json!({"metadata": {"namespace": namespace}, "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed}});
    world::budget(name, change)
}

fn of<'b>(budgets: &'b [Arc<Item<Budget>>], namespace: &str) -> Vec<&'b Item<Budget>> {
    budgets
        .iter()
        .map(AsRef::as_ref)
        .filter(|budget| budget.namespace() == namespace)
        .collect()
}

/// A tenant may make any number of them, and larger ones.
#[test]
fn the_budgets_of_a_namespace_are_bounded() {
    let mut budgets = KeptBudgets::default();
    let long = "k".repeat(300);
    let hoard = |budgets: &mut KeptBudgets| {
        (0..5_000)
            .for_each(|number| budgets.listed(budget("hoarder", &format!("b-{number}"), &long, 1)));
    };
    budgets.list_begins();
    budgets.listed(budget("shop", "cart", "app", 1));
    hoard(&mut budgets);
    assert!(
        budgets.listed.bytes < OF_NAMESPACE_MAX,
        "{}",
        budgets.listed.bytes
    );
    budgets.list_ends();
    let all = budgets.all();
    assert!(of(&all, "shop")[0].body.is_ok() && of(&all, "shop").len() == 1);
    let hoarded: Vec<_> = of(&all, "hoarder")
        .iter()
        .map(|budget| budget.body.clone())
        .collect();
    assert_eq!(hoarded, [Err(Unreadable::TooMany)], "one stands for all");
    assert!(budgets.has_too_many());
    // Nobody knows whether that is the last one.
    budgets.remove(&budget("hoarder", "b-0", &long, 1));
    budgets.put(budget("hoarder", "b-1", &long, 1));
    assert!(budgets.has_too_many());
    budgets.list_begins();
    budgets.listed(budget("hoarder", "b-0", "app", 1));
    budgets.list_ends();
    assert!(!budgets.has_too_many() && budgets.all().len() == 1);
}

#[test]
fn the_namespace_with_most_gives_way_first() {
    let mut all = Namespaces::default();
    let long = "k".repeat(300);
    for namespace in 0..30 {
        all.put(budget(&format!("usual-{namespace}"), "b", "app", 1));
        // Each of these alone has no more than it may.
        for number in 0..650 {
            all.put(budget(
                &format!("many-{namespace}"),
                &format!("b-{number}"),
                &long,
                1,
            ));
        }
    }
    assert!(all.bytes <= OF_ALL_MAX);
    let too_many: Vec<&String> = all
        .all
        .iter()
        .filter(|(_, of)| of.too_many)
        .map(|(name, _)| name)
        .collect();
    assert!(
        !too_many.is_empty() && too_many.iter().all(|name| name.starts_with("many")),
        "{too_many:?}"
    );
    assert_eq!(
        all.all
            .values()
            .filter(|of| !of.too_many && of.budgets.len() == 1)
            .count(),
        30
    );
    assert_eq!(
        all.bytes,
        all.all
            .values()
            .flat_map(|of| of.budgets.values())
            .map(|it| bytes(it))
            .sum::<usize>()
    );
}

/// What is worked out from them is made again after every change, also after one that is worth no pass.
#[test]
fn each_change_is_counted_and_some_matter() {
    let mut budgets = KeptBudgets::default();
    budgets.list_begins();
    budgets.listed(budget("shop", "cart", "app", 1));
    budgets.list_ends();
    assert!(budgets.all()[0].metadata.resource_version.is_none());
    let mut after = |budget| (budgets.put(budget), budgets.revision());
    assert_eq!(
        after(budget("shop", "cart", "app", 0)),
        (false, 2),
        "fewer than before wake nobody"
    );
    assert_eq!(after(budget("shop", "cart", "app", 1)), (true, 3));
    assert_eq!(after(budget("shop", "cart", "tier", 1)), (true, 4));
    budgets.remove(&budget("shop", "cart", "tier", 1));
    assert_eq!((budgets.revision(), budgets.all().len()), (5, 0));
    assert_eq!((budgets.now.bytes, budgets.now.all.len()), (0, 0));
}
