//! Reports for people and programs.

mod glance;
mod node;

use anstream::adapter::strip_str;
use brupop_api::printable::is_unprintable;
use brupop_core::decide::WHAT_TO_DO;
use insta::assert_snapshot;
use serde_json::json;

use super::fixtures::{
    NS, draining, event, events, fleet, glance, idle, item, node, page, pool, shadow, updated,
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
    let events = events(
        "03:00:01 BottlerocketFleet fleet VersionHalted 1.19.9: too many nodes failed
        03:44:00 BottlerocketShadow brs-node-2 Updated the node runs 1.20.0",
    );
    let view = history::of(&fleet(), (events, vec![]));
    assert_snapshot!("history", text(&view));
    assert_snapshot!("history_yaml", yaml(&view));
}

#[test]
fn the_latest_events_are_kept_in_order() {
    let events = events("03:04:00 Node n R m\n03:03:00 Node n R m\n03:02:00 Node n R m");
    let at = latest(&events, 2).into_iter().map(|event| event.at);
    let expected = [events[1].at, events[0].at];
    assert!(at.eq(expected), "{expected:?}");
}

/// Agents write versions and messages, and anyone who creates Events writes all of them.
#[test]
fn nobody_else_drives_the_terminal() {
    let evil = "a\u{1b}[2J\nb\u{202e}c";
    let status = json!({"current_state": "Idle", "current_version": evil, "target_version": evil, "message": evil});
    let spec = json!({"state": "Idle", "version": evil});
    let shadow = || shadow(evil, &spec, status.clone(), ["False", evil, evil]);
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
        // The line break is none.
        let drives = |line: &str| line.contains(is_unprintable) || line.starts_with('b');
        assert!(!shown.lines().any(drives), "{shown}");
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
        let resume = "kubectl brupop --kubeconfig mine resume --version VERSION";
        assert!(
            !shown.contains("Halted:") || commands.contains(&resume),
            "{shown}"
        );
        let (ours, theirs) = ("kubectl brupop --kubeconfig mine ", "touch");
        let is_ours = |command: &&str| command.starts_with(ours) && !command.contains(theirs);
        assert!(commands.iter().all(is_ours), "{shown}");
        // As they wrote it.
        for quoted in [
            "'kubectl brupop resume --version $(touch x)'",
            "\"$(touch x)\"",
        ] {
            assert!(shown.contains(quoted), "{shown}");
        }
    }
}
