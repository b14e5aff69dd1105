//! A fleet in mid-roll-out, as `plan` shows it.

use std::collections::BTreeMap;

use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::printable::is_printable;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus, State};

use super::*;
use crate::process::tests::{not_leading, reconciler};
use brupop_core::cluster::LedNode;
use brupop_core::drain::Obstacle;
use brupop_core::facts::{FleetFacts, NodeView, PoolFacts, TimeFacts};
use brupop_core::leader::Ahead;
use brupop_core::objects::Clock;
use brupop_core::objects::NodeFacts;
use brupop_core::rules::GateState;
use brupop_core::window::Until;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;

/// Facts borrow from it, and tests are short.
fn leaked<T>(facts: T) -> &'static T {
    Box::leak(Box::new(facts))
}

/// Changes what the agent has reported.
fn report(view: &mut NodeView<'_>, change: impl FnOnce(&mut BottlerocketShadowStatus)) {
    let shadow = view.shadow.as_mut().unwrap();
    let mut status = shadow.status.clone();
    change(&mut status);
    shadow.status = leaked(status);
}

/// A node without pods whose drain nothing stands in the way of, or this.
fn led(undrainable: Option<&str>) -> &'static LedNode {
    let mut led = LedNode::default();
    led.plan = Some(Arc::default());
    led.obstacle = undrainable.map(|why| Obstacle::Never(why.to_owned()));
    leaked(led)
}

fn node(shadow: &'static str, paused: bool) -> NodeView<'static> {
    let name = names::node_of_shadow(shadow).unwrap();
    NodeView {
        node: Some(leaked(NodeFacts {
            name: name.into(),
            uid: name.into(),
            boot_id: "b".into(),
            version: Some("1.19.4".into()),
            paused,
            ..NodeFacts::example()
        })),
        agent_ready: true,
        shadow: Some(ShadowFacts {
            name: shadow,
            uid: shadow,
            generation: 1,
            spec: leaked(BottlerocketShadowSpec::default()),
            status: leaked(BottlerocketShadowStatus {
                current_version: Some("1.19.4".into()),
                target_version: Some("1.20.0".into()),
                current_state: Some(State::Idle),
                boot_id: Some("b".into()),
                ..BottlerocketShadowStatus::default()
            }),
        }),
        owner_uid: Some(name),
        led: led(None),
        time: TimeFacts {
            exclusion_over: true,
            ..TimeFacts::default()
        },
        ..NodeView::nothing(shadow)
    }
}

fn observed<'a>(
    views: Vec<NodeView<'a>>,
    slots: &'a BTreeMap<String, Slot>,
    versions: &'a [VersionRecord],
) -> Observed<'a> {
    let two = Box::leak(Box::new(PoolFacts {
        limit: 2,
        ..PoolFacts::DEFAULT
    }));
    let fleet = FleetFacts {
        slots,
        versions,
        default_pool: two,
        ..FleetFacts::EXAMPLE
    };
    let views = views.into_iter().map(|view| view.with_slot_of(&fleet));
    Observed {
        fleet,
        views: views.collect(),
        too_long: vec![],
        not_opted_in: 0,
        clock: Clock::new(Timestamp::UNIX_EPOCH, Ahead::NONE),
    }
}

#[test]
fn rows_say_who_runs_starts_and_waits() {
    let mut running = node("brs-e", false);
    running.shadow.as_mut().unwrap().spec = leaked(BottlerocketShadowSpec {
        state: State::StagedAndPerformedUpdate,
        version: Some("1.20.0".into()),
        attempt: Some(1),
        baseline_boot_id: Some("b".into()),
        ..BottlerocketShadowSpec::default()
    });
    let mut stuck = node("brs-c", false);
    stuck.led = led(Some(
        "the PodDisruptionBudget shop/cart wants all of its 2 pods healthy",
    ));
    let views = vec![
        node("brs-a", false),
        node("brs-b", true),
        stuck,
        node("brs-d", false),
        running,
        node("brs-f", false),
    ];
    let slots = BTreeMap::from([(
        "brs-e".to_owned(),
        Slot {
            uid: "brs-e".to_owned(),
            attempt: 1,
            ..Slot::default()
        },
    )]);
    let observed = observed(views, &slots, &[]);
    let plan = plan(&observed, &observed.decide(), held(&observed.fleet));
    let rows: Vec<_> = plan
        .nodes
        .iter()
        .map(|row| (row.node.as_str(), row.next, row.reason))
        .collect();
    assert_eq!(
        rows,
        [
            ("e", NodePlan::Running, "Staging"),
            ("a", NodePlan::Starts, "Staging"),
            ("d", NodePlan::Waits(1), "LimitReached"),
            ("f", NodePlan::Waits(2), "LimitReached"),
            ("b", NodePlan::Stays, "NodePaused"),
            ("c", NodePlan::Stays, "CannotDrain"),
        ]
    );
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(
        json["nodes"][2]["next"],
        json!({"what": "waits", "turn": 1})
    );
    assert_eq!((&json["inUse"], &json["limit"]), (&json!(1), &json!(2)));
}

#[test]
fn what_holds_updates_for_now_is_named_and_left_out() {
    let until = Until::At("2026-11-22T02:00:00Z".parse().unwrap());
    let web = PoolFacts {
        name: "web",
        starts: Starts::OutsideWindow(until),
        gate: Some((GateState::Closed, "quiet")),
        ..PoolFacts::DEFAULT
    };
    let invalid = PoolFacts {
        starts: Starts::Invalid("no"),
        ..web.clone()
    };
    let fleet = FleetFacts {
        paused: true,
        pools: std::slice::from_ref(&web),
        ..FleetFacts::EXAMPLE
    };
    let said = held(&fleet).join("\n");
    let expected = [
        "paused",
        "pool web: the maintenance window is closed; it opens at 2026-11-22T02:00:00Z",
        "pool web: the gate quiet of its pool is closed",
    ];
    assert!(expected.iter().all(|it| said.contains(it)), "{said}");
    let open = released(&web);
    assert_eq!((open.starts, open.gate), (Starts::Open, None));
    assert_eq!(released(&invalid).starts, Starts::Invalid("no"));
}

/// As a terminal would be driven, and a line forged, by a stolen agent, kubelet or marker.
#[test]
fn a_plan_is_printable_whatever_agents_say() {
    const HOSTILE: &str = "1.0.0\u{1b}[2J\nnode-9  1.20.0\u{9b}\u{202e}";
    let (slots, long) = (BTreeMap::new(), HOSTILE.repeat(200));
    let variant = node("brs-a", false).node.unwrap().variant().to_owned();
    let versions = [VersionRecord {
        version: HOSTILE.to_owned(),
        variant,
        halted_at: Some(HOSTILE.to_owned()),
        ..VersionRecord::default()
    }];
    let mut lies = node("brs-a", false);
    report(&mut lies, |status| {
        status.current_version = Some(HOSTILE.into());
        status.target_version = Some(long);
    });
    let mut fails = node("brs-b", false);
    report(&mut fails, |status| {
        status.problem = Some(brupop_api::Problem::RefreshFailed);
        status.message = Some(HOSTILE.into());
        status.target_version = Some(HOSTILE.into());
    });
    let mut stuck = node("brs-c", false);
    stuck.led = led(Some(HOSTILE));
    let mut unreadable = node("brs-d", false);
    let marker = Some(Err(HOSTILE.to_owned()));
    unreadable.node = unreadable.node.map(|node| {
        let node = node.clone();
        leaked(NodeFacts { marker, ..node })
    });
    let observed = observed(vec![lies, fails, stuck, unreadable], &slots, &versions);
    let plan = plan(&observed, &observed.decide(), held(&observed.fleet));
    let text = printed(&plan);
    assert!(text.lines().all(is_printable), "{text}");
    // The halted version, and each node, has something to tell.
    assert!(
        text.matches(r"1.0.0\u001b[2J\nnode-9").count() >= 5,
        "{text}"
    );
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read, json!(plan));
}

#[tokio::test]
async fn an_empty_cluster_is_decided_on_without_a_write() {
    let (reconciler, mut writes) = not_leading();
    let plan = reconciler.dry_run(false).await.unwrap();
    assert_eq!((plan.nodes.len(), writes.recv().await), (0, None));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_read_in_time_is_named() {
    let silent = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    let (_, elected) = watch::channel(None);
    let reconciler = reconciler(Client::new(silent, "ns"), elected);
    let refused = reconciler.dry_run(true).await.unwrap_err();
    assert_eq!(
        refused,
        "not read within 20 s: Nodes, shadows, the fleet, the agents' pods, pools"
    );
}
