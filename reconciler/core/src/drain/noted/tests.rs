use serde_json::{Value, json};

use super::*;
use crate::drain::obstacle;
use crate::drain::tests::{USUAL, names};
use crate::tests::world::{self, NOW};

const OWNER: &str = "apps/v1/ReplicaSet/shop/cart";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The pod `<workload>-<number>`, with these changes.
fn pod(name: &str, change: &Value) -> PodItem {
    let app = name.split_once('-').unwrap().0;
    let owners = world::controlled_by("ReplicaSet", app);
    let metadata = json!({"metadata": {"labels": {"app": app}, "ownerReferences": owners}});
    world::pod(name, world::with(metadata, change))
}

fn plain(name: &str) -> PodItem {
    pod(name, &json!({}))
}

fn leaving(name: &str, seconds_ago: i64) -> PodItem {
    let by = (now() - SignedDuration::from_secs(seconds_ago)).to_string();
    pod(name, &json!({"metadata": {"deletionTimestamp": by}}))
}

fn budget(allowed: i32) -> std::sync::Arc<Item<Budget>> {
    let spec = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    world::budget(
        "cart",
        json!({"spec": spec, "status": {"disruptionsAllowed": allowed, "currentHealthy": 1}}),
    )
    .into()
}

fn noted(kind: ObstacleKind, of: &str) -> Failures {
    let obstacle = Some(DrainObstacle { kind, of: of.to_owned(), at: None });
    Failures {
        count: 1,
        attempt: 1,
        at: "2026-11-21T03:00:00Z".to_owned(),
        reason: "DrainTimedOut".to_owned(),
        obstacle,
    }
}

fn at(time: Timestamp, failures: &Failures) -> Circumstances<'_> {
    Circumstances { time, failures: Some(failures), ..USUAL }
}

fn stands(
    pods: &[&PodItem],
    budgets: &[std::sync::Arc<Item<Budget>>],
    now: &Circumstances<'_>,
) -> Option<Obstacle> {
    obstacle(|| pods.iter().copied(), budgets, |_| false, |_| false, now)
}

fn plan(pods: &[&PodItem]) -> DrainPlan {
    DrainPlan::of(pods.iter().copied(), |_| false, |_| false, None, None)
}

#[test]
fn a_pod_that_should_have_ended_is_an_obstacle() {
    let none = Circumstances { time: now(), ..USUAL };
    let mail = plain("mail-0");
    for (seconds_ago, is_one) in [(-3600, false), (0, false), (29, false), (30, true), (3600, true)] {
        let stuck = leaving("cart-0", seconds_ago);
        let found = stands(&[&mail, &stuck], &[], &none);
        let says = |it: &Obstacle| matches!(it, Obstacle::Never(why) if why.starts_with("shop/cart-0 should have ended by "));
        assert_eq!(found.as_ref().map(says), is_one.then_some(true), "{seconds_ago}: {found:?}");
        let then = now() + SignedDuration::from_secs(30 - seconds_ago);
        assert_eq!(none.changes_at([&mail, &stuck].into_iter()), (!is_one).then_some(then), "{seconds_ago}");
    }
    let over =
        json!({"metadata": {"deletionTimestamp": "2026-11-21T03:00:00Z"}, "status": {"phase": "Succeeded"}});
    assert_eq!(stands(&[&pod("job-0", &over)], &[], &none), None, "nothing of it runs");
    let unread = json!({"metadata": {"deletionTimestamp": "10000-01-01T00:00:00Z"}});
    assert_eq!(stands(&[&pod("cart-0", &unread)], &[], &none), None, "nobody knows when");
}

/// With `DRAIN_ON_DEADLINE=force`, after the drain's deadline.
#[test]
fn what_should_be_gone_is_overlooked() {
    let (stuck, ending) = (leaving("cart-0", 31), leaving("cart-1", 29));
    let of = |pods: &[&PodItem], overlooked| {
        DrainPlan::of(pods.iter().copied(), |_| false, |_| false, None, overlooked)
    };
    assert!(!of(&[&stuck], None).is_done(), "before the deadline it is waited for");
    let late = Some(now() - LATE);
    assert!(of(&[&stuck], late).is_done());
    assert!(!of(&[&stuck, &ending], late).is_done(), "it may still end in time");
    assert!(!of(&[&stuck, &plain("mail-0")], late).is_done());
}

#[test]
fn a_failed_drain_says_what_it_failed_on() {
    let (cart, mail) = (plain("cart-0"), plain("mail-0"));
    let (stuck, ending) = (leaving("web-0", 60), leaving("web-1", -600));
    let obstacle = |kind, of: &str| Some(DrainObstacle { kind, of: of.to_owned(), at: None });
    let budgets = [budget(0)];
    let overdue = obstacle(ObstacleKind::Overdue, "uid-web-0");
    let refused = obstacle(ObstacleKind::Refused, "apps/v1/ReplicaSet/shop/mail");
    let grace = obstacle(ObstacleKind::GracePeriod, "apps/v1/ReplicaSet/shop/web");
    let none = "";
    for (says, pods, refused, budgets, expected) in [
        ("nothing is known", vec![&cart, &mail], none, &budgets[..0], None),
        ("a budget", vec![&cart, &mail], none, &budgets[..], obstacle(ObstacleKind::Budget, "shop/cart")),
        ("that allows one", vec![&cart, &mail], none, &[budget(1)], None),
        ("of others", vec![&mail], none, &budgets[..], None),
        ("overdue", vec![&cart, &ending, &stuck], none, &budgets[..], overdue),
        ("refused", vec![&cart, &mail], "mail-0", &budgets[..], refused),
        ("has time to end", vec![&ending, &mail], none, &budgets[..], grace),
    ] {
        let is_refused = |pod: &PodKey| pod.name == refused;
        let found = failing_on(&plan(&pods), || pods.iter().copied(), budgets, is_refused, now());
        assert_eq!(found, expected, "{says}");
    }
    let returning = DrainPlan { returning: vec![OWNER.to_owned()], ..plan(&[&cart]) };
    let needed = DrainPlan { needed_by: Some("v1/Pod/shop/x\u{1b}".to_owned()), ..returning.clone() };
    let of = |plan: &DrainPlan| failing_on(plan, || [&cart].into_iter(), &budgets, |_| false, now());
    assert_eq!(of(&returning), obstacle(ObstacleKind::ComesBack, OWNER));
    assert_eq!(of(&needed), obstacle(ObstacleKind::ComesBack, "v1/Pod/shop/x\\u{1b}"), "fit for an object");
}

#[test]
fn what_a_drain_failed_on_holds_the_node_while_it_is_so() {
    use ObstacleKind::{ComesBack, GracePeriod, Overdue, Refused};
    let (cart, remade, mail, stuck) =
        (plain("cart-0"), plain("cart-1"), plain("mail-0"), leaving("cart-0", 3600));
    let slow = |seconds: i64| pod("cart-2", &json!({"spec": {"terminationGracePeriodSeconds": seconds}}));
    let (slow, longer, in_time) = (slow(900), slow(3600), slow(899));
    let ended = json!({"status": {"phase": "Failed"}, "metadata": {"deletionTimestamp": NOW}});
    let over = pod("cart-3", &ended);
    let was_refused =
        Some("the eviction of pods of apps/v1/ReplicaSet/shop/cart was refused, and shop/cart-1");
    let takes_long =
        Some("shop/cart-2 may take 900 s to end (terminationGracePeriodSeconds), and its drain 900 s");
    for (kind, of, pods, says) in [
        (Overdue, "uid-cart-0", vec![&mail, &stuck], Some("shop/cart-0 should have ended by")),
        (Overdue, "uid-cart-0", vec![&mail, &remade], None),
        (Refused, OWNER, vec![&mail, &remade], was_refused),
        (Refused, OWNER, vec![&mail, &leaving("cart-1", -200_000)], None),
        (Refused, OWNER, vec![&mail, &over], None),
        (ComesBack, OWNER, vec![&cart], Some("came back each time")),
        (ComesBack, OWNER, vec![&mail], None),
        (GracePeriod, OWNER, vec![&remade, &slow], takes_long),
        (GracePeriod, OWNER, vec![&remade, &longer], Some("may take 3600 s")),
        (GracePeriod, OWNER, vec![&remade, &in_time], None),
    ] {
        let failures = noted(kind, of);
        let found = stands(&pods, &[], &at(now(), &failures));
        match (&found, says) {
            (Some(Obstacle::Never(why)), Some(says)) => assert!(why.contains(says), "{kind:?}: {why}"),
            (found, says) => assert!(found.is_none() && says.is_none(), "{kind:?} {of}: {found:?}, {says:?}"),
        }
        // For a day at most: by then the next drain may try it.
        let after = now() + SignedDuration::from_hours(23);
        if kind != Overdue {
            assert_eq!(stands(&pods, &[], &at(after, &failures)), None, "{kind:?}");
            assert_eq!(at(now(), &failures).changes_at([&cart].into_iter()), Some(after), "{kind:?}");
        }
    }
}

/// The next attempt failed before its cordon: that says nothing of the obstacle.
#[test]
fn a_note_is_as_old_as_its_drain() {
    let cart = plain("cart-0");
    for (since, expected) in [("2026-11-20T05:00:00Z", true), ("2026-11-20T04:00:00Z", false)] {
        let mut failures = noted(ObstacleKind::Refused, OWNER);
        failures.obstacle.as_mut().unwrap().at = Some(since.to_owned());
        assert_eq!(stands(&[&cart], &[], &at(now(), &failures)).is_some(), expected, "{since}");
    }
}

/// One Ready pod beside two that are not: these are evicted the first time, and may be well elsewhere. They were not.
#[test]
fn a_budget_that_was_noted_is_not_tried_again_before_it_allows_one() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let (ready, unready) = (plain("cart-0"), pod("cart-1", &unready));
    let failures = noted(ObstacleKind::Budget, "shop/cart");
    let now = at(now(), &failures);
    let first = Circumstances { failures: None, ..now };
    let shut =
        Some(Obstacle::Now { budget: "the PodDisruptionBudget shop/cart".to_owned(), for_long: false });
    for (pods, allowed, before, after) in [
        (vec![&ready, &unready], 0, None, &shut),
        (vec![&ready], 0, shut.clone(), &shut),
        (vec![&unready], 0, None, &None),
        (vec![&ready, &unready], 1, None, &None),
    ] {
        assert_eq!(stands(&pods, &[budget(allowed)], &first), before, "{} {allowed}", pods.len());
        assert_eq!(&stands(&pods, &[budget(allowed)], &now), after, "{} {allowed}, noted", pods.len());
    }
    assert_eq!(stands(&[&ready, &unready], &[], &now), None, "it is gone");
}

#[test]
fn the_next_drain_begins_with_what_the_last_one_failed_on() {
    let (cart, mail, stuck) = (plain("cart-0"), plain("mail-0"), leaving("cart-1", 3600));
    let budgets = [budget(1)];
    let long_ago = |failures: Failures| Failures { at: "2026-11-01T00:00:00Z".to_owned(), ..failures };
    let refused = || noted(ObstacleKind::Refused, OWNER);
    let overdue = noted(ObstacleKind::Overdue, "uid-cart-1");
    let (grace, shut) = (noted(ObstacleKind::GracePeriod, OWNER), noted(ObstacleKind::Budget, "shop/cart"));
    for (says, failures, pods, evicts, holds) in [
        ("by owner", refused(), vec![&mail, &cart], &["cart-0"][..], &["mail-0"][..]),
        ("also later", long_ago(refused()), vec![&mail, &cart], &["cart-0"], &["mail-0"]),
        ("until it is gone", refused(), vec![&mail], &["mail-0"], &[]),
        ("by UID", overdue, vec![&mail, &cart, &stuck], &[], &["cart-0", "mail-0"]),
        ("which leaves", grace, vec![&mail, &stuck], &[], &["mail-0"]),
        ("by budget", shut, vec![&mail, &cart], &["cart-0"], &["mail-0"]),
    ] {
        let mut plan = plan(&pods);
        plan.put_first(pods.iter().copied(), &budgets, Some(&failures));
        assert_eq!((names(&plan.evict), names(&plan.held)), (evicts.to_vec(), holds.to_vec()), "{says}");
        assert!(!plan.is_done(), "{says}");
    }
}
