//! The fleet at a glance.

use brupop_api::{BottlerocketShadow, Item};

use super::*;

#[test]
fn a_fleet_in_mid_update() {
    let rebooted = json!({"state": "RebootedIntoUpdate", "version": "1.20.0", "from_version": "1.19.4", "attempt": 1,
        "state_transition_timestamp": "2026-11-21T03:58:30Z"});
    let runs =
        json!({"current_state": "RebootedIntoUpdate", "current_version": "1.20.0", "attempt": 1});
    let monitored = "the node runs the new version, and is being monitored";
    let node_paused = "the host chooses no update; a person has paused the node (annotation brupop.bottlerocket.aws/pause)";
    let mut paused = updated("node-7");
    let status = paused.body.as_mut().unwrap().status.as_mut().unwrap();
    node_paused.clone_into(&mut status.conditions[0].message);
    let halted_version = "too many nodes failed to reach 1.19.9";
    let mut shadows = vec![
        draining("node-0"),
        shadow("node-1", &rebooted, runs, ["True", "Monitoring", monitored]),
        updated("node-2"),
        updated("node-3"),
        paused,
        idle("node-4", ["False", "VersionHalted", halted_version]),
        item("node-5", json!({"spec": {"state": "Idle"}})),
        item("node-6", json!({"spec": {"state": "Dreaming"}})),
    ];
    shadows.extend((10..18).map(|number| idle(&format!("node-{number}"), LIMIT)));
    want_the_halted_one(&mut shadows);
    for item in &mut shadows[..4] {
        let status = item.body.as_mut().unwrap().status.as_mut();
        status.unwrap().pool = Some("web".to_owned());
    }
    let view = glance(&Fleet {
        shadows,
        pools: vec![pool("web"), pool("db")],
        ..halted()
    });
    let counts = (view.nodes, view.updated_nodes, view.moving.len());
    assert_eq!(counts, (16, Some(3), 2));
    assert_snapshot!("status", text(&view));
    assert_snapshot!("status_yaml", yaml(&view));
    let tall = |rows| {
        let rows = Some(rows);
        text_on(&view, &Page { rows, ..page() })
    };
    assert_eq!(tall(60).matches("\nNODES\n").count(), 1);
    assert!(tall(40).contains("\nVERSIONS\n"), "{}", tall(40));
}

/// The host of the last of these wants the version that is halted.
fn want_the_halted_one(shadows: &mut [Item<BottlerocketShadow>]) {
    let last = shadows.last_mut().and_then(|item| item.body.as_mut().ok());
    let status = last.and_then(|shadow| shadow.status.as_mut()).unwrap();
    status.target_version = Some("1.19.9".to_owned());
}

/// With names as EKS gives them, and five pools.
#[test]
fn a_terminal_shows_what_moves_first() {
    let of = |number: u8| format!("ip-10-0-12-{number}.eu-central-1.compute.internal");
    let waits = |number, reason, why| idle(&of(number), ["False", reason, why]);
    let canary = "the pool canary-eu-central-1a goes first (spec.dependsOn): it has not finished this version";
    let monitored = json!({"state": "MonitoringUpdate", "version": "1.20.0", "attempt": 1,
        "state_transition_timestamp": "2026-11-21T03:58:30Z"});
    let runs =
        json!({"current_state": "MonitoringUpdate", "current_version": "1.20.0", "attempt": 1});
    let until = "the node runs the new version, and is being monitored until 2026-11-21T04:08:30Z";
    let said = ["True", "Monitoring", until];
    let mut shadows = vec![draining(&of(0)), shadow(&of(1), &monitored, runs, said)];
    shadows.extend((10..18).map(|number| waits(number, "LimitReached", LIMIT[2])));
    shadows.extend((20..40).map(|number| waits(number, "WaitingForPool", canary)));
    let closed = "the maintenance window is closed; it opens at 2026-11-22T02:00:00Z";
    shadows.push(waits(50, "OutsideWindow", closed));
    let pools = "canary-eu-central-1a workers-eu-central-1a workers-eu-central-1b gpu db";
    let pools = pools.split(' ').map(pool).collect();
    want_the_halted_one(&mut shadows);
    let view = glance(&Fleet {
        shadows,
        pools,
        ..halted()
    });
    for columns in [60, 80, 120] {
        let columns_of = Page {
            columns: Some(columns),
            ..page()
        };
        let shown = text_on(&view, &columns_of);
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns.into()), "{widest:?}: {shown}");
        for node in [of(0), of(10), of(20), of(50)] {
            assert!(shown.contains(&node), "{node}: {shown}");
        }
        // The reason why most wait is told once.
        assert_eq!(shown.matches("WaitingForPool").count(), 1, "{shown}");
        let at = |what: &str| shown.lines().position(|line| line == what).unwrap();
        let sections = ["MOVING", "WAITING", "POOLS"].map(at);
        assert!(sections.is_sorted(), "{shown}");
        assert!(columns < 80 || at("POOLS") < 23, "{shown}");
        assert_snapshot!(format!("status_{columns}"), shown);
    }
}

#[test]
fn a_fleet_that_is_held_back() {
    // A quota refuses the shadow of one.
    let nodes = halted().shadows.len() + 1;
    let status = json!({"term": 1, "nodes": nodes, "notOptedInNodes": 2, "conditions": [
        {"type": "AdmissionEnforced", "status": "False", "reason": "NotRefused", "message": "the webhook let it through",
            "lastTransitionTime": "2026-11-21T01:00:00Z"},
        {"type": "OtherOperator", "status": "True", "reason": "NotRuledOut", "message": "brupop-apiserver is in the namespace x",
            "lastTransitionTime": "2026-11-21T01:00:00Z"},
    ]});
    // A fleet out of Git begins with the status that the API server gives it.
    let new = watched_fleet(&json!({}), &json!({"observedGeneration": 0})).object;
    let object = Some(watched_fleet(&json!({"paused": true}), &status).object);
    let gone = "2026-11-21T03:00:00Z".parse().ok();
    let around = Around {
        cordoned: None,
        ..around(Leads::No(gone))
    };
    let held_back = Fleet {
        object,
        around,
        ..halted()
    };
    assert_snapshot!("status_held_back", text(&glance(&held_back)));
    for object in [None, Some(new)] {
        let fleet = Fleet { object, ..halted() };
        assert_snapshot!("status_without_operator", text(&glance(&fleet)));
    }
}

/// Nothing else says so, if no node of theirs waits.
#[test]
fn a_paused_pool_is_told_while_it_is_up_to_date() {
    let paused = |count: usize| {
        let paused = |number: usize| {
            let mut pool = pool(&format!("web-{number}"));
            pool.body.as_mut().unwrap().paused = number < count;
            pool
        };
        let pools = (0..9).map(paused).collect();
        let view = glance(&Fleet {
            shadows: vec![updated("node-0")],
            pools,
            ..halted()
        });
        assert_eq!(view.pools.iter().filter(|line| line.paused).count(), count);
        let shown = text(&view);
        let lines = shown.lines().filter(|line| line.starts_with("Paused:"));
        lines.collect::<String>()
    };
    for (count, pools, remedy) in [
        (1, "web-0", "web-0`"),
        (2, "web-0, web-1", "POOL`"),
        (
            9,
            "web-0, web-1, web-2, web-3, web-4, web-5 and 3 more",
            "POOL`",
        ),
    ] {
        let resume = "resume it: `kubectl brupop resume --pool";
        let line = format!("Paused:  no update starts in {pools}; {resume} {remedy}");
        assert_eq!(paused(count), line);
    }
    assert_eq!(paused(0), "");
}

/// One reason can be about several things.
#[test]
fn nodes_wait_for_what_their_sentence_says() {
    let waits = |node, why| idle(node, ["False", "WaitingForPool", why]);
    let shadows = vec![
        updated("node-5"),
        waits("node-2", "the pool canary goes first"),
        waits("node-3", "the pool web goes first"),
        waits("node-4", "the pool web goes first"),
    ];
    let status = glance(&Fleet {
        shadows,
        ..halted()
    });
    assert_eq!(status.updated_nodes, Some(1));
    let groups = status.waiting.iter();
    let groups = groups.map(|group| (group.message.as_str(), group.nodes.len()));
    let (web, canary) = ("the pool web goes first", "the pool canary goes first");
    assert_eq!(groups.collect::<Vec<_>>(), [(web, 2), (canary, 1)]);
}

/// Each backs off until a time of its own; programs are told all of them.
#[test]
fn many_causes_do_not_fill_the_screen() {
    let backs_off = |number| {
        let why = format!("the node waits until 2026-11-21T04:{number}:00Z");
        idle(&format!("node-{number}"), ["False", "BackingOff", &why])
    };
    let shadows = (10..22)
        .map(backs_off)
        .chain([idle("node-1", LIMIT)])
        .collect();
    let view = glance(&Fleet {
        shadows,
        ..halted()
    });
    assert_eq!(view.waiting.len(), 13);
    let shown = text(&view);
    assert_eq!(shown.matches("BackingOff").count(), 4, "{shown}");
    for told in [
        "BackingOff    9      for different causes, which `kubectl brupop why NODE` shows",
        "LimitReached",
    ] {
        assert!(shown.contains(told), "{shown}");
    }
}
