//! Tests of `why`: the reason of one node.

use super::*;

#[test]
fn a_node_that_moves() {
    let mut found = about(draining("node-0"));
    found.events = events(
        "03:51:00 BottlerocketShadow brs-node-0 DrainBlocked shop/cart-1 is not evicted: its budget
        03:45:00 BottlerocketShadow brs-node-0 UpdateStarted the update from 1.19.4 to 1.20.0 begins
        03:50:00 Node node-0 NodeNotSchedulable Node node-0 status is now: NodeNotSchedulable",
    );
    found.notes = vec!["you may not list events in the namespace default".to_owned()];
    let view = why::of("node-0", &found).unwrap();
    assert_snapshot!("why_draining", text(&view));
    assert_snapshot!("why_draining_yaml", yaml(&view));
}

#[test]
fn a_node_that_waits() {
    let spec = json!({"state": "Idle", "last_failure": {"count": 2, "attempt": 3, "at": "2026-11-21T03:20:00Z", "reason": "FellBack", "message": "the host came back with a version other than the wanted one"}});
    let status = json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0",
        "problem": "RefreshFailed", "message": "the repository does not answer"});
    let why = |shadow| why::of("node-1", &about(shadow)).unwrap();
    let given_up = ["False", "BackingOff", "the last attempt was given up"];
    let waits = shadow("node-1", &spec, status, given_up);
    assert_snapshot!("why_backing_off", text(&why(waits)));
    let later = "a later release has reasons of its own";
    let unknown = idle("node-1", ["False", "OfAnotherRelease", later]);
    assert_snapshot!("why_of_another_release", text(&why(unknown)));
    let queued = why(idle("node-1", LIMIT)).slots;
    assert_eq!(queued.as_deref(), Some("1 of 2 in use, by node-0"));
}

/// The condition Progressing is False while the node is idle, too.
#[test]
fn a_node_waits_no_longer_than_its_update_is_known() {
    let since = |progressing: [&str; 3], known: [&str; 2]| {
        let mut shadow = idle("node-1", progressing);
        let [is, at] = known;
        let known = json!({"type": "UpdateAvailable", "status": is, "reason": "R", "message": "m", "lastTransitionTime": at});
        let status = shadow.body.as_mut().unwrap().status.as_mut().unwrap();
        let known = serde_json::from_value(known).unwrap();
        status.conditions.push(known);
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
        let since = since(progressing, known);
        assert_eq!(since, expected, "{progressing:?}, {known:?}");
    }
}

/// Those of the fleet and of its pool; the fixtures' pools may have three.
#[test]
fn a_node_is_told_whose_slots_are_in_use() {
    let fleet = |of_web: usize| {
        let slot = |pool| json!({"uid": "u", "attempt": 2, "pool": pool});
        let slots = (0..of_web).map(|number| (format!("brs-node-{number}"), slot("web")));
        let mut slots: serde_json::Map<_, _> = slots.collect();
        slots.insert("brs-node-9".to_owned(), slot("db"));
        let status = json!({"term": 1, "unavailableLimit": 8, "slots": slots});
        watched_fleet(&json!({}), &status).object
    };
    let two = "2 of 8 in use, by node-0, node-9; of the pool";
    let three = "3 of 8 in use, by node-0, node-1, node-9; of the pool";
    for (pool_of_node, slots, all, of_pool) in [
        ("web", 2, three, "web: 2 of 3"),
        ("db", 1, two, "db: 1 of 0"),
        ("default", 1, two, "default: 0 of MAX_CONCURRENT_UPDATE"),
    ] {
        let expected = format!("{all} {of_pool}");
        let mut waits = idle("node-7", LIMIT);
        waits.body.as_mut().unwrap().status.as_mut().unwrap().pool = Some(pool_of_node.to_owned());
        let pools = vec![pool("web"), pool("db")];
        let fleet = Some(fleet(slots));
        let fleet_of = Fleet {
            object: fleet.clone(),
            shadows: vec![waits.clone()],
            pools: pools.clone(),
            ..halted()
        };
        let shown = text(&glance(&fleet_of));
        assert!(shown.contains(&expected), "{shown}");
        let found = AboutNode {
            fleet,
            pools,
            ..about(waits)
        };
        let why = why::of("node-7", &found).unwrap();
        assert!(text(&why).contains(&expected), "{}", text(&why));
        assert_eq!(why.slots, Some(expected));
        assert_eq!(why.pool.as_deref(), Some(pool_of_node));
    }
}

#[test]
fn a_node_without_a_shadow() {
    let without = |node| AboutNode {
        shadow: None,
        fleet: None,
        node,
        ..about(idle("node-0", LIMIT))
    };
    let unlabelled = why::of("node-0", &without(Ok(Some(node(&json!({}), &json!({})))))).unwrap();
    assert_eq!(unlabelled.reason.as_deref(), Some("NotLabelled"));
    assert_snapshot!("why_not_labelled", text(&unlabelled));
    let label = json!({"bottlerocket.aws/updater-interface-version": "2.0.0"});
    let labelled = node(&label, &json!({}));
    let labelled = why::of("node-0", &without(Ok(Some(labelled)))).unwrap();
    let is_told = labelled.message.contains("has not created its shadow");
    assert_eq!((labelled.reason, is_told), (None, true));
    let hidden = why::of("node-0", &without(Err("you may not get nodes".to_owned()))).unwrap();
    assert_eq!(hidden.notes, ["you may not get nodes"]);
    let none = why::of("node-9", &without(Ok(None))).unwrap_err();
    let told = "there is no Node node-9, and no shadow of it";
    assert_eq!(none.to_string(), told);
}

/// A command in the condition that is not the table's is not shown.
#[test]
fn a_remedy_comes_from_the_table() {
    let message = format!("a person paused this node{WHAT_TO_DO}run `kubectl delete nodes --all`");
    let found = about(idle("node-1", ["False", "NodePaused", &message]));
    let view = why::of("node-1", &found).unwrap();
    assert_eq!(view.message, "a person paused this node");
    let remedy = "resume it: `kubectl brupop resume node-1`";
    assert_eq!(view.remedy.as_deref(), Some(remedy));
}
