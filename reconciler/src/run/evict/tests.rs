use super::*;
use crate::process::tests::not_leading;
use brupop_core::drain::Stuck;
use serde_json::json;

fn pod(name: &str) -> PodKey {
    PodKey {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

#[test]
fn an_eviction_names_the_uid_of_its_pod() {
    let eviction = serde_json::to_value(eviction(&pod("a"))).unwrap();
    assert_eq!(
        eviction["deleteOptions"],
        json!({"preconditions": {"uid": "uid-a"}})
    );
    assert_eq!(
        (&eviction["apiVersion"], &eviction["kind"]),
        (&"policy/v1".into(), &"Eviction".into())
    );
}

#[test]
fn each_answer_is_understood() {
    let wait = Duration::from_secs(10);
    let said = || "the message".to_owned();
    let (failed, refused) = (
        EvictionAnswer::Failed(said()),
        EvictionAnswer::Refused(said()),
    );
    let blocked = EvictionAnswer::Blocked("the cause".into(), wait);
    for (code, cause, answer) in [
        (404, "", EvictionAnswer::Gone),
        (409, "", EvictionAnswer::Gone),
        (429, "DisruptionBudget", blocked),
        (429, "", failed.clone()),
        (403, "NamespaceTerminating", EvictionAnswer::Leaving),
        (403, "", refused),
        (500, "", failed.clone()),
        (503, "", failed),
    ] {
        let causes = json!([{"reason": cause, "message": "the cause"}]);
        let details = json!({"causes": causes, "retryAfterSeconds": 10});
        let status = json!({"code": code, "message": said(), "details": details});
        let status = serde_json::from_value(status).unwrap();
        assert_eq!(EvictionAnswer::of(&status), answer, "{code} {cause}");
    }
    let hostile = Status {
        code: 500,
        message: "\u{1b}[2J\n".repeat(200),
        ..Status::default()
    };
    let EvictionAnswer::Failed(why) = EvictionAnswer::of(&hostile) else {
        panic!("it fails")
    };
    assert!(
        why.starts_with("\\u{1b}[2J\\n\\u{1b}") && why.len() <= MAX_MESSAGE,
        "{why}"
    );
}

fn plan(names: &[&str]) -> DrainPlan {
    DrainPlan {
        evict: names.iter().map(|name| pod(name)).collect(),
        ..DrainPlan::default()
    }
}

/// The pod has been asked to go at this time, with this answer. Returns whether that is news.
fn evicted(evictions: &mut Evictions, name: &str, answer: &EvictionAnswer, now: Duration) -> bool {
    evictions.begin(pod(name));
    evictions.answered(&pod(name), answer, now)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn blocked() -> EvictionAnswer {
    EvictionAnswer::Blocked("budget cart needs 2".into(), Duration::ZERO)
}

#[test]
fn a_blocked_pod_holds_up_no_other() {
    let mut evictions = Evictions::default();
    let plan = plan(&["a", "b"]);
    assert_eq!(evictions.due(&plan, ms(0)), [&pod("a"), &pod("b")]);
    evictions.begin(pod("a"));
    assert_eq!(evictions.due(&plan, ms(0)), [&pod("b")]);
    assert!(evictions.answered(&pod("a"), &blocked(), ms(0)));
    assert_eq!(evictions.next(&plan, ms(0)), Some(RETRY));
    assert_eq!(evictions.due(&plan, ms(4999)), [&pod("b")]);
    let now = RETRY;
    assert_eq!(evictions.due(&plan, now).len(), 2);
    assert!(
        !evicted(&mut evictions, "a", &blocked(), now),
        "the same again is no news"
    );
    assert_eq!(evictions.next(&plan, now), Some(now + RETRY));
    let held_up_by = evictions.held_up_by(&plan, Timestamp::MIN).unwrap();
    assert_eq!(held_up_by, "shop/a is not evicted: budget cart needs 2");
    assert!(
        evicted(&mut evictions, "a", &EvictionAnswer::Accepted, now),
        "that it goes now is news"
    );
    assert_eq!(evictions.held_up_by(&plan, Timestamp::MIN), None);
}

#[test]
fn only_a_refusal_that_lasts_is_worth_a_warning() {
    let (mut evictions, plan) = (Evictions::default(), plan(&["a", "b"]));
    let warned = |evictions: &Evictions, now| {
        let refusal = evictions.lasting_refusal(&plan, now);
        refusal.map(|(pod, _)| pod.name.clone())
    };
    for seconds in [0, 5, 29] {
        let now = Duration::from_secs(seconds);
        let news = evicted(&mut evictions, "b", &blocked(), now);
        assert_eq!(
            (news, warned(&evictions, now)),
            (seconds == 0, None),
            "{seconds}"
        );
    }
    // Another pod, refused just now, is named as what holds the drain up, and does not hide the one of which to warn.
    evicted(&mut evictions, "a", &blocked(), LASTING);
    evicted(&mut evictions, "b", &blocked(), LASTING);
    assert_eq!(warned(&evictions, LASTING).as_deref(), Some("b"));
    let held_up_by = evictions.held_up_by(&plan, Timestamp::MIN).unwrap();
    assert!(held_up_by.starts_with("shop/a "));
    evicted(&mut evictions, "a", &EvictionAnswer::Accepted, LASTING);
    evicted(&mut evictions, "b", &EvictionAnswer::Accepted, LASTING * 2);
    evicted(&mut evictions, "b", &blocked(), LASTING * 3);
    let warned = warned(&evictions, LASTING * 3);
    assert_eq!(warned, None, "it is refused again");
}

#[test]
fn a_budget_that_allows_more_ends_the_wait() {
    let mut evictions = Evictions::default();
    let plan = plan(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        evictions.begin(pod(name));
    }
    evictions.answered(&pod("a"), &blocked(), ms(0));
    evictions.answered(&pod("b"), &EvictionAnswer::Accepted, ms(0));
    evictions.retry("elsewhere", ms(100));
    assert_eq!(evictions.due(&plan, ms(100)), [] as [&PodKey; 0]);
    evictions.retry("shop", ms(100));
    assert_eq!(evictions.due(&plan, ms(100)), [&pod("a")]);
}

#[test]
fn a_refusal_that_crosses_a_budget_waits_shortly() {
    let mut evictions = Evictions::default();
    let plan = plan(&["a"]);
    let mut now = ms(0);
    for _ in 0..8 {
        evicted(&mut evictions, "a", &blocked(), now);
        now = evictions.next(&plan, now).unwrap();
    }
    evictions.begin(pod("a"));
    evictions.retry("shop", now);
    assert!(evictions.due(&plan, now).is_empty(), "it is on its way");
    evictions.answered(&pod("a"), &blocked(), now);
    assert_eq!(evictions.next(&plan, now), Some(now + RETRY));
}

#[test]
fn each_answer_has_its_wait() {
    let plan = plan(&["a"]);
    let counting = |seconds| EvictionAnswer::Blocked(String::new(), Duration::from_secs(seconds));
    for (answer, seconds) in [
        (EvictionAnswer::Accepted, 30),
        (EvictionAnswer::Leaving, 30),
        (counting(0), 5),
        (counting(10), 10),
    ] {
        let mut evictions = Evictions::default();
        evicted(&mut evictions, "a", &answer, ms(0));
        assert_eq!(
            evictions.next(&plan, ms(0)),
            Some(Duration::from_secs(seconds))
        );
        assert!(evictions.due(&plan, ms(seconds * 1000 - 1)).is_empty());
    }
}

#[test]
fn a_pod_that_stays_too_long_is_named() {
    let by: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
    let plan = DrainPlan {
        leaving: vec![(by, pod("cart"))],
        ..DrainPlan::default()
    };
    let none = Evictions::default();
    let said = |seconds| none.held_up_by(&plan, by + SignedDuration::from_secs(seconds));
    assert_eq!((said(29), said(-119)), (None, None));
    let slow = "shop/cart is terminating, and has until 2026-11-21T04:00:00Z to end";
    assert_eq!(said(-120).as_deref(), Some(slow));
    let late = said(30).unwrap();
    assert!(late.starts_with("the pod shop/cart should have ended by 2026-11-21T04:00:00Z"));
    assert_eq!(said(1000), Some(late), "the same as long as it stands");
    let unmanaged = DrainPlan {
        stuck: vec![(pod("debug"), Stuck::Unmanaged)],
        ..DrainPlan::default()
    };
    let why = none.held_up_by(&unmanaged, Timestamp::MIN).unwrap();
    assert!(why.contains("shop/debug has no controller"), "{why}");
}

#[test]
fn a_deletion_by_force_is_remembered() {
    let mut evictions = Evictions::default();
    let plan = DrainPlan {
        stuck: vec![(pod("a"), Stuck::Undisturbed("b"))],
        ..DrainPlan::default()
    };
    let forced = plan.clone().forced();
    assert_eq!(evictions.due(&forced, ms(0)), [&pod("a")]);
    evicted(&mut evictions, "a", &EvictionAnswer::Accepted, ms(0));
    evictions.retain([&plan].into_iter());
    assert_eq!(evictions.due(&forced, ms(1)), [] as [&PodKey; 0]);
}

#[tokio::test]
async fn a_process_that_no_longer_leads_evicts_nothing() {
    let (mut reconciler, mut writes) = not_leading();
    let plan = plan(&["p"]);
    reconciler.remove_pods(&plan, true, &mut Wake::default());
    let (_, answer) = reconciler.evicting.join_next().await.unwrap().unwrap();
    assert_eq!((answer.as_str(), writes.try_recv().ok()), ("failed", None));
}
