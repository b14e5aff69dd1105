//! Reports for people and programs.

mod glance;
mod node;

use anstream::adapter::strip_str;
use brupop_api::printable::is_unprintable;
use brupop_core::decide::TO_GO_ON;
use insta::assert_snapshot;
use serde_json::json;

use super::fixtures::{
    NS, draining, event, fleet, glance, idle, item, node, page, pool, shadow, updated,
    watched_fleet,
};
use super::{history, why};
use crate::arguments::Output;
use crate::event::latest;
use crate::gather::{AboutNode, Around, Fleet};
use crate::leads::Leads;
use crate::page::{Page, View, rendered};

fn text(view: &impl View) -> String {
    text_on(view, &page())
}

fn text_on(view: &impl View, page: &Page) -> String {
    strip_str(&rendered(view, Output::Table, page).unwrap()).to_string()
}

fn yaml(view: &impl View) -> String {
    rendered(view, Output::Yaml, &page()).unwrap()
}

fn about(shadow: brupop_api::Item<brupop_api::BottlerocketShadow>) -> AboutNode {
    AboutNode {
        pools: vec![],
        namespace: NS.to_owned(),
        shadow: shadow.body.ok(),
        fleet: Some(fleet()),
        node: Ok(None),
        events: vec![],
        notes: vec![],
        leads: Leads::Yes,
    }
}

const LIMIT: [&str; 3] = ["False", "LimitReached", "waiting for a free slot"];

fn around(leads: Leads) -> Around {
    Around {
        leads,
        not_started: vec![],
        cordoned: Some(vec!["node-0".to_owned(), "node-2".to_owned()]),
    }
}

fn halted() -> Fleet {
    Fleet {
        namespace: NS.to_owned(),
        object: Some(fleet()),
        shadows: vec![],
        pools: vec![],
        around: around(Leads::Yes),
    }
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
        event(
            "BottlerocketShadow",
            "brs-node-2",
            "2026-11-21T03:44:00Z",
            "Updated",
            "the node runs 1.20.0",
        ),
    ];
    let view = history::of(&fleet(), (events, vec![]));
    assert_snapshot!("history", text(&view));
    assert_snapshot!("history_yaml", yaml(&view));
}

#[test]
fn the_latest_events_are_kept_in_order() {
    let events = (0..5)
        .map(|minute| {
            event(
                "Node",
                "n",
                &format!("2026-11-21T03:0{minute}:00Z"),
                "R",
                "m",
            )
        })
        .rev();
    let at: Vec<_> = latest(&events.collect::<Vec<_>>(), 2)
        .into_iter()
        .filter_map(|event| Some(event.at?.to_string()))
        .collect();
    assert_eq!(at, ["2026-11-21T03:03:00Z", "2026-11-21T03:04:00Z"]);
}

/// Agents write versions and messages, and anyone who creates Events writes all of them.
#[test]
fn nobody_else_drives_the_terminal() {
    let evil = "a\u{1b}[2J\nb\u{202e}c";
    let status = json!({"current_state": "Idle", "current_version": evil, "target_version": evil, "message": evil});
    let shadow = || {
        shadow(
            evil,
            &json!({"state": "Idle", "version": evil}),
            status.clone(),
            ["False", evil, evil],
        )
    };
    let mut object = fleet();
    let status = object.status.as_mut().unwrap();
    evil.clone_into(&mut status.versions[0].version);
    let mut found = about(shadow());
    found.events = vec![event(evil, evil, "2026-11-21T03:00:00Z", evil, evil)];
    let history = history::of(&object, (found.events.clone(), vec![]));
    let shadows = vec![shadow(), draining(evil), item(evil, json!({}))];
    let fleet = Fleet {
        object: Some(object),
        shadows,
        pools: vec![pool(evil)],
        ..halted()
    };
    let (status, why) = (glance(&fleet), why::of(evil, &found).unwrap());
    let texts = [text(&status), text(&why), text(&history)];
    let programs = [&yaml(&status), &yaml(&why), &yaml(&history)].map(String::clone);
    for shown in texts.iter().chain(&programs) {
        assert!(shown.contains("u{1b}"), "{shown}");
        let lines: Vec<&str> = shown
            .lines()
            .filter(|line| line.contains(is_unprintable))
            .collect();
        assert_eq!(lines, [""; 0]);
        // The line break is none.
        assert!(shown.lines().all(|line| !line.starts_with('b')), "{shown}");
    }
}

/// A ledger that was written past the schema may have any text as a version.
#[test]
fn no_command_holds_what_others_wrote() {
    let evil = "$(touch x)";
    let words = format!("to resume: `kubectl brupop resume --version {evil}`");
    let mut object = fleet();
    let status = object.status.as_mut().unwrap();
    evil.clone_into(&mut status.versions[0].version);
    let (spec, says) = (
        json!({"state": "Idle", "version": evil}),
        ["False", "VersionHalted", &words],
    );
    let agents = json!({"current_state": "Idle", "target_version": evil, "message": words});
    let shadow = || {
        let mut shadow = shadow("node-1", &spec, agents.clone(), says);
        shadow.body.as_mut().unwrap().status.as_mut().unwrap().pool = Some(evil.to_owned());
        shadow
    };
    let mut found = about(shadow());
    found.events = vec![event("Node", "node-1", "2026-11-21T03:00:00Z", "R", &words)];
    let page = Page {
        flags: " --kubeconfig mine".to_owned(),
        ..page()
    };
    let fleet = Fleet {
        object: Some(object),
        shadows: vec![shadow()],
        pools: vec![],
        ..halted()
    };
    let views = [
        text_on(&glance(&fleet), &page),
        text_on(&why::of("node-1", &found).unwrap(), &page),
    ];
    for shown in views {
        let commands: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        assert!(
            !shown.contains("Halted:")
                || commands.contains(&"kubectl brupop --kubeconfig mine resume --version VERSION"),
            "{shown}"
        );
        for command in commands {
            assert!(
                command.starts_with("kubectl brupop --kubeconfig mine ")
                    && !command.contains("touch"),
                "{shown}"
            );
        }
        assert!(
            shown.contains("'kubectl brupop resume --version $(touch x)'"),
            "as they wrote it: {shown}"
        );
        assert!(shown.contains("\"$(touch x)\""), "{shown}");
    }
}
