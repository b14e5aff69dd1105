use anstream::adapter::strip_str;
use brupop_api::printable::is_unprintable;
use brupop_core::decide::Reason;
use insta::assert_snapshot;
use serde_json::json;

use super::fixtures::{
    NS, draining, event, fleet, idle, item, node, page, pool, shadow, updated, watched_fleet,
};
use super::{history, latest, status, why};
use crate::arguments::Output;
use crate::gather::{AboutNode, Fleet, Past};
use crate::leads::Leads;
use crate::page::{Page, View, rendered};

fn text(view: &impl View) -> String {
    strip_str(&view.text(&page())).to_string()
}

fn yaml(view: &impl View) -> String {
    rendered(view, Output::Yaml, &page()).unwrap()
}

fn about(shadow: brupop_api::Item<brupop_api::BottlerocketShadow>) -> AboutNode {
    AboutNode {
        pools: vec![],
        namespace: NS.to_owned(),
        shadow: Some(shadow),
        fleet: Some(fleet()),
        node: Ok(None),
        events: vec![],
        notes: vec![],
        leads: Leads::Yes,
    }
}

const LIMIT: [&str; 3] =
    ["False", "LimitReached", "waiting for a free slot (`kubectl brupop status` shows who has them)"];

#[test]
fn a_fleet_in_mid_update() {
    let rebooted = json!({"state": "RebootedIntoUpdate", "version": "1.20.0", "attempt": 1,
        "state_transition_timestamp": "2026-11-21T03:58:30Z"});
    let runs = json!({"current_state": "RebootedIntoUpdate", "current_version": "1.20.0", "attempt": 1});
    let mut shadows = vec![
        draining("node-0"),
        shadow(
            "node-1",
            &rebooted,
            runs,
            ["True", "ReturningToService", "the node is being put back into service"],
        ),
        updated("node-2"),
        updated("node-3"),
        shadow(
            "node-7",
            &json!({"state": "Idle"}),
            json!({"current_state": "Idle", "current_version": "1.20.0"}),
            [
                "False",
                "NoUpdate",
                "the host knows of no update; a person has paused the node (annotation brupop.bottlerocket.aws/pause)",
            ],
        ),
        idle("node-4", ["False", "VersionHalted", "too many nodes failed to reach 1.19.9"]),
        item("node-5", json!({"spec": {"state": "Idle"}})),
        item("node-6", json!({"spec": {"state": "Dreaming"}})),
    ];
    shadows.extend((10..18).map(|number| idle(&format!("node-{number}"), LIMIT)));
    let view = status::of(&Fleet { shadows, pools: vec![pool("web"), pool("db")], ..halted() });
    assert_eq!((view.nodes, view.up_to_date, view.moving.len()), (16, 3, 2));
    assert_snapshot!("status", text(&view));
    assert_snapshot!("status_yaml", yaml(&view));
}

/// With names as EKS gives them, and five pools.
#[test]
fn a_terminal_shows_what_moves_first() {
    let of = |number: u8| format!("ip-10-0-12-{number}.eu-central-1.compute.internal");
    let waits = |number, reason, why| idle(&of(number), ["False", reason, why]);
    let canary = "the pool canary-eu-central-1a goes first (spec.after): it is not done with this version";
    let monitored = json!({"state": "MonitoringUpdate", "version": "1.20.0", "attempt": 1,
        "state_transition_timestamp": "2026-11-21T03:58:30Z"});
    let runs = json!({"current_state": "MonitoringUpdate", "current_version": "1.20.0", "attempt": 1});
    let said = [
        "True",
        "Monitoring",
        "the node runs the new version, and is being monitored until 2026-11-21T04:08:30Z",
    ];
    let mut shadows = vec![draining(&of(0)), shadow(&of(1), &monitored, runs, said)];
    shadows.extend((10..18).map(|number| waits(number, "LimitReached", LIMIT[2])));
    shadows.extend((20..40).map(|number| waits(number, "WaitingForPool", canary)));
    shadows.push(waits(
        50,
        "OutsideWindow",
        "the maintenance window is closed; it opens at 2026-11-22T02:00:00Z",
    ));
    let pools = ["canary-eu-central-1a", "workers-eu-central-1a", "workers-eu-central-1b", "gpu", "db"];
    let pools = pools.map(pool).to_vec();
    let view = status::of(&Fleet { shadows, pools, ..halted() });
    for columns in [60, 80, 120] {
        let shown = strip_str(&view.text(&Page { columns: Some(columns), ..page() })).to_string();
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns.into()), "{widest:?}: {shown}");
        for node in [of(0), of(10), of(20), of(50)] {
            assert!(shown.contains(&node), "{node}: {shown}");
        }
        // The reason why most wait is told once.
        assert_eq!(shown.matches("WaitingForPool").count(), 1, "{shown}");
        let at = |what: &str| shown.lines().position(|line| line == what).unwrap();
        assert!(at("MOVING") < at("WAITING") && at("WAITING") < at("POOLS"), "{shown}");
        assert!(columns < 80 || at("POOLS") < 23, "{shown}");
        assert_snapshot!(format!("status_{columns}"), shown);
    }
}

fn halted() -> Fleet {
    Fleet {
        namespace: NS.to_owned(),
        object: Some(fleet()),
        shadows: vec![],
        pools: vec![],
        leads: Leads::Yes,
    }
}

#[test]
fn a_fleet_that_is_held_back() {
    let counts = json!({"nodes": 0, "inUse": 0, "updated": 0, "pending": 0, "notOptedIn": 2});
    let status = json!({"term": 1, "counts": counts, "conditions": [
        {"type": "AdmissionEnforced", "status": "False", "reason": "NotRefused", "message": "the webhook let it through",
            "lastTransitionTime": "2026-11-21T01:00:00Z"},
        {"type": "OtherOperator", "status": "True", "reason": "NotRuledOut", "message": "brupop-apiserver is in the namespace x",
            "lastTransitionTime": "2026-11-21T01:00:00Z"},
    ]});
    // A fleet out of Git begins with the status that the API server gives it.
    let new = watched_fleet(&json!({}), &json!({"observedGeneration": 0})).object;
    let object = Some(watched_fleet(&json!({"paused": true}), &status).object);
    let gone = "2026-11-21T03:00:00Z".parse().ok();
    assert_snapshot!(
        "status_held_back",
        text(&status::of(&Fleet { object, leads: Leads::No(gone), ..halted() }))
    );
    for object in [None, Some(new)] {
        assert_snapshot!("status_without_operator", text(&status::of(&Fleet { object, ..halted() })));
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
        let view = status::of(&Fleet { shadows: vec![updated("node-0")], pools, ..halted() });
        assert_eq!(view.pools.iter().filter(|line| line.paused).count(), count);
        let shown = text(&view);
        let lines: Vec<String> =
            shown.lines().filter(|line| line.starts_with("Paused:")).map(str::to_owned).collect();
        lines
    };
    assert_eq!(paused(0), [""; 0]);
    assert_eq!(
        paused(1),
        ["Paused: no update starts in one pool before `kubectl brupop resume --pool web-0`"]
    );
    assert_eq!(
        paused(2),
        ["Paused: no update starts in 2 pools before `kubectl brupop resume --pool web-0`, \
          `kubectl brupop resume --pool web-1`"]
    );
    let [many] = &paused(9)[..] else { panic!("one line") };
    assert!(many.contains("in 9 pools") && many.ends_with("--pool web-5` and 3 more"), "{many}");
}

/// Conditions follow versions by seconds, and one reason can be about several things.
#[test]
fn nodes_wait_for_what_their_sentence_says() {
    let waits = |node, why| idle(node, ["False", "WaitingForPool", why]);
    let shadows = vec![
        updated("node-5"),
        idle("node-1", ["False", "NoUpdate", "the host knows of no update"]),
        waits("node-2", "the pool canary goes first"),
        waits("node-3", "the pool web goes first"),
        waits("node-4", "the pool web goes first"),
    ];
    let status = status::of(&Fleet { shadows, ..halted() });
    assert_eq!(status.up_to_date, 1);
    let groups: Vec<_> =
        status.waiting.iter().map(|group| (group.message.as_str(), group.nodes.len())).collect();
    let not_said = "their hosts know of an update; the reconciler has not said yet what they wait for";
    assert_eq!(groups, [("the pool web goes first", 2), (not_said, 1), ("the pool canary goes first", 1)]);
}

/// Each backs off until a time of its own; programs are told all of them.
#[test]
fn many_causes_do_not_fill_the_screen() {
    let backs_off = |number| {
        let why = format!("the node waits until 2026-11-21T04:{number}:00Z");
        idle(&format!("node-{number}"), ["False", "BackingOff", &why])
    };
    let shadows = (10..22).map(backs_off).chain([idle("node-1", LIMIT)]).collect();
    let view = status::of(&Fleet { shadows, ..halted() });
    assert_eq!(view.waiting.len(), 13);
    let shown = text(&view);
    assert_eq!(shown.matches("BackingOff").count(), 4, "{shown}");
    let others = "BackingOff    9      each for a cause of its own, which `kubectl brupop why NODE` tells";
    assert!(shown.contains(others) && shown.contains("LimitReached"), "{shown}");
}

#[test]
fn a_node_that_moves() {
    let mut found = about(draining("node-0"));
    found.events = vec![
        event(
            "BottlerocketShadow",
            "brs-node-0",
            "2026-11-21T03:51:00Z",
            "DrainBlocked",
            "shop/cart-1 is not evicted: its budget",
        ),
        event(
            "BottlerocketShadow",
            "brs-node-0",
            "2026-11-21T03:45:00Z",
            "UpdateStarted",
            "the update from 1.19.4 to 1.20.0 begins",
        ),
        event(
            "Node",
            "node-0",
            "2026-11-21T03:50:00Z",
            "NodeNotSchedulable",
            "Node node-0 status is now: NodeNotSchedulable",
        ),
    ];
    found.notes = vec!["you may not list events in the namespace default".to_owned()];
    let view = why::of("node-0", &found).unwrap();
    assert_snapshot!("why_draining", text(&view));
    assert_snapshot!("why_draining_yaml", yaml(&view));
}

#[test]
fn a_node_that_waits() {
    let spec = json!({"state": "Idle", "failures": {"count": 2, "attempt": 3, "at": "2026-11-21T03:20:00Z", "reason": "FellBack"}});
    let status = json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0",
        "problem": "RefreshFailed", "message": "the repository does not answer"});
    let waits = shadow("node-1", &spec, status, ["False", "BackingOff", "the last attempt was given up"]);
    assert_snapshot!("why_backing_off", text(&why::of("node-1", &about(waits)).unwrap()));
    let unknown = idle("node-1", ["False", "OfAnotherRelease", "a later release has reasons of its own"]);
    assert_snapshot!("why_of_another_release", text(&why::of("node-1", &about(unknown)).unwrap()));
    let queued = why::of("node-1", &about(idle("node-1", LIMIT))).unwrap();
    assert_eq!(queued.slots.as_deref(), Some("1 of 2 in use, by node-0"));
    assert!(text(&queued).contains("1 of 2 in use, by node-0"), "{}", text(&queued));
}

/// The condition Progressing is False while the node is idle, too.
#[test]
fn a_node_waits_no_longer_than_its_update_is_known() {
    let since = |progressing: [&str; 3], known: [&str; 2]| {
        let mut shadow = idle("node-1", progressing);
        let [is, at] = known;
        let known = json!({"type": "UpdateAvailable", "status": is, "reason": "R", "message": "m", "lastTransitionTime": at});
        let conditions = &mut shadow.body.as_mut().unwrap().status.as_mut().unwrap().conditions;
        conditions.push(serde_json::from_value(known).unwrap());
        let view = why::of("node-1", &about(shadow)).unwrap();
        let shown = text(&view);
        assert!(shown.contains(view.since.as_deref().unwrap()), "{shown}");
        view.since.unwrap()
    };
    let transition = "2026-11-21T03:30:00Z";
    let (later, earlier) = ("2026-11-21T03:58:00Z", "2026-11-21T03:00:00Z");
    let draining = ["True", "Draining", "m"];
    let up_to_date = ["False", "NoUpdate", "m"];
    for (progressing, known, expected) in [
        (LIMIT, ["True", later], later),
        (LIMIT, ["True", earlier], transition),
        (LIMIT, ["True", "soon"], transition),
        (LIMIT, ["False", later], transition),
        (draining, ["True", later], transition),
        (up_to_date, ["True", later], transition),
    ] {
        assert_eq!(since(progressing, known), expected, "{progressing:?}, {known:?}");
    }
}

/// Those of its pool, if that one is full; the fixtures' pools may have three, and two nodes of each are away.
#[test]
fn a_node_is_told_whose_slots_are_in_use() {
    let fleet = |of_web: usize| {
        let slot = |number| (format!("brs-node-{number}"), json!({"uid": "u", "attempt": 2, "pool": "web"}));
        let mut slots: serde_json::Map<_, _> = (0..of_web).map(slot).collect();
        slots.insert("brs-node-9".to_owned(), json!({"uid": "u", "attempt": 2, "pool": "db"}));
        watched_fleet(&json!({}), &json!({"term": 1, "limit": 8, "slots": slots})).object
    };
    let of_web = "3 of 3 in use in the pool web, by node-0, node-1, node-2";
    for (pool_of_node, slots, expected) in [
        ("web", 3, of_web),
        ("web", 2, "3 of 8 in use, by node-0, node-1, node-9"),
        ("db", 1, "2 of 8 in use, by node-0, node-9"),
        ("default", 1, "0 of MAX_CONCURRENT_UPDATE in use in the pool default"),
        ("default", 7, "8 of 8 in use, by node-0, node-1, node-2, node-3, node-4, node-5 and 2 more"),
    ] {
        let mut waits = idle("node-7", LIMIT);
        waits.body.as_mut().unwrap().status.as_mut().unwrap().pool = Some(pool_of_node.to_owned());
        let pools = vec![pool("web"), pool("db")];
        let fleet = Some(fleet(slots));
        let (object, shadows) = (fleet.clone(), vec![waits.clone()]);
        let glance = Fleet { object, shadows, pools: pools.clone(), ..halted() };
        let shown = text(&status::of(&glance));
        assert!(shown.contains(expected), "{shown}");
        let why = why::of("node-7", &AboutNode { fleet, pools, ..about(waits) }).unwrap();
        assert_eq!((why.slots.as_deref(), why.pool.as_deref()), (Some(expected), Some(pool_of_node)));
    }
}

#[test]
fn a_node_without_a_shadow() {
    let without = |node| AboutNode { shadow: None, fleet: None, node, ..about(idle("node-0", LIMIT)) };
    let unlabelled = why::of("node-0", &without(Ok(Some(node(&json!({}), &json!({})))))).unwrap();
    assert_eq!(unlabelled.reason.as_deref(), Some("NotLabelled"));
    assert_snapshot!("why_not_labelled", text(&unlabelled));
    let labelled = node(&json!({"bottlerocket.aws/updater-interface-version": "2.0.0"}), &json!({}));
    let labelled = why::of("node-0", &without(Ok(Some(labelled)))).unwrap();
    assert_eq!((labelled.reason, labelled.message.contains("has not created its shadow")), (None, true));
    let hidden = why::of("node-0", &without(Err("you may not get nodes".to_owned()))).unwrap();
    assert_eq!(hidden.notes, ["you may not get nodes"]);
    let none = why::of("node-9", &without(Ok(None))).unwrap_err().to_string();
    assert_eq!(none, "there is no Node node-9, and no shadow of it");
}

#[test]
fn what_happened() {
    let events = vec![
        event(
            "BottlerocketFleet",
            "fleet",
            "2026-11-21T03:00:01Z",
            "VersionHalted",
            "1.19.9: too many nodes failed",
        ),
        event("BottlerocketShadow", "brs-node-2", "2026-11-21T03:44:00Z", "Updated", "the node runs 1.20.0"),
    ];
    let view = history::of(&Past { fleet: fleet(), events, notes: vec![] });
    assert_snapshot!("history", text(&view));
    assert_snapshot!("history_yaml", yaml(&view));
}

/// Times are noted only while there are pools.
#[test]
fn a_version_is_not_seen_after_its_first_result() {
    let (early, late) = ("2026-11-19T04:00:00Z", "2026-11-20T04:00:00Z");
    for (noted, result, expected) in [
        (Some(early), Some(late), Some(early)),
        (Some(late), Some(early), Some(early)),
        (None, Some(late), Some(late)),
        (Some(late), None, Some(late)),
        (None, None, None),
    ] {
        let seen: serde_json::Map<_, _> =
            noted.map(|at| ("1.20.0".to_owned(), json!(at))).into_iter().collect();
        let record = json!({"firstSeen": result, "succeeded": 1});
        let status = json!({"slots": {}, "versions": {"1.20.0": record}, "seen": seen});
        let fleet = watched_fleet(&json!({}), &status).object;
        let view = history::of(&Past { fleet, events: vec![], notes: vec![] });
        assert_eq!(view.versions[0].first_seen.as_deref(), expected, "{noted:?}, {result:?}");
        assert_eq!(view.versions[0].first_result.as_deref(), result);
    }
}

#[test]
fn the_latest_events_are_kept_in_order() {
    let events =
        (0..5).map(|minute| event("Node", "n", &format!("2026-11-21T03:0{minute}:00Z"), "R", "m")).rev();
    let at: Vec<_> = latest(events.collect(), 2).into_iter().filter_map(|event| event.at).collect();
    assert_eq!(at, ["2026-11-21T03:03:00Z", "2026-11-21T03:04:00Z"]);
}

#[test]
fn what_is_told_on_shadow_and_node_is_told_once() {
    let told = |kind, name, at, message| event(kind, name, at, "Cordoned", message);
    let (shadow, node) = ("BottlerocketShadow", "Node");
    let events = vec![
        told(shadow, "brs-a", "2026-11-21T03:00:00.1Z", "for 1"),
        told(node, "a", "2026-11-21T03:00:00.3Z", "for 1"),
        told(shadow, "brs-b", "2026-11-21T03:00:00.2Z", "for 1"),
        // Each of these says something new.
        told(node, "a", "2026-11-21T03:00:01Z", "for 2"),
        told(shadow, "brs-a", "2026-11-21T03:00:09Z", "for 1"),
        told(shadow, "brs-a", "2026-11-21T03:00:10Z", "for 1"),
    ];
    let rows = latest(events, 9);
    let said: Vec<_> = rows.iter().map(|row| (row.about(), row.message.as_str())).collect();
    assert_eq!(said, [("b", "for 1"), ("a", "for 1"), ("a", "for 2"), ("a", "for 1"), ("a", "for 1")]);
}

/// A node whose agent has no pod has no logs either.
#[test]
fn a_silent_agent_may_have_no_pod() {
    let silent = Reason::of_word("AgentSilent").unwrap();
    let view =
        why::of("node-1", &about(idle("node-1", ["False", "AgentSilent", &silent.message()]))).unwrap();
    for told in [view.message.as_str(), view.remedy.as_deref().unwrap()] {
        assert!(told.contains("DaemonSet") && told.contains("if there is no pod"), "{told}");
    }
}

/// Agents write versions and messages, and anyone who creates Events writes all of them.
#[test]
fn nobody_else_drives_the_terminal() {
    let evil = "a\u{1b}[2J\nb\u{202e}c";
    let status =
        json!({"current_state": "Idle", "current_version": evil, "target_version": evil, "message": evil});
    let shadow =
        || shadow(evil, &json!({"state": "Idle", "version": evil}), status.clone(), ["False", evil, evil]);
    let mut object = fleet();
    let record = object.status.as_mut().unwrap().versions.remove("1.19.9").unwrap();
    object.status.as_mut().unwrap().versions.insert(evil.to_owned(), record);
    let mut found = about(shadow());
    found.events = vec![event(evil, evil, "2026-11-21T03:00:00Z", evil, evil)];
    let past = Past { fleet: object.clone(), events: found.events.clone(), notes: vec![] };
    let shadows = vec![shadow(), draining(evil), item(evil, json!({}))];
    let fleet = Fleet { object: Some(object), shadows, pools: vec![pool(evil)], ..halted() };
    let (status, why, history) = (status::of(&fleet), why::of(evil, &found).unwrap(), history::of(&past));
    let texts = [text(&status), text(&why), text(&history)];
    let programs = [&yaml(&status), &yaml(&why), &yaml(&history)].map(String::clone);
    for shown in texts.iter().chain(&programs) {
        assert!(shown.contains("u{1b}"), "{shown}");
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains(is_unprintable)).collect();
        assert_eq!(lines, [""; 0]);
        // The line break is none.
        assert!(shown.lines().all(|line| !line.starts_with('b')), "{shown}");
    }
}
