//! Tests of the texts of all Events.

use super::super::*;
use crate::cluster::LedNode;
use crate::drain::DrainPlan;
use crate::objects::NodeFacts;
use crate::status::left_by_people;
use brupop_api::printable::is_printable;
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus};
use std::sync::Arc;

/// Facts borrow from it, and tests are short.
fn leaked<T>(facts: T) -> &'static T {
    Box::leak(Box::new(facts))
}

fn view() -> NodeView<'static> {
    NodeView {
        node: Some(leaked(NodeFacts::example())),
        shadow: Some(ShadowFacts {
            name: "brs-n",
            uid: "u",
            generation: 1,
            spec: leaked(BottlerocketShadowSpec {
                version: Some("2.0.0".into()),
                attempt: Some(4),
                ..BottlerocketShadowSpec::default()
            }),
            status: leaked(BottlerocketShadowStatus {
                current_version: Some("1.0.0".into()),
                attempt: Some(4),
                ..BottlerocketShadowStatus::default()
            }),
        }),
        ..NodeView::nothing("brs-n")
    }
}

#[test]
fn some_of_the_pods_that_are_left_are_named() {
    let left = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|name| PodKey {
        namespace: "shop".into(),
        name: name.into(),
        uid: "u".into(),
    });
    for (left, says) in [
        (&left[..1], "reboots: shop/a"),
        (&left[..], "shop/g, shop/h and 2 more"),
    ] {
        let mut view = view();
        let mut led = LedNode::default();
        let plan = DrainPlan {
            left: left.to_vec(),
            ..DrainPlan::default()
        };
        led.plan = Some(Arc::new(plan));
        view.led = &led;
        let note = EventText::of_step(&view, Step::Grant).unwrap().note;
        assert!(note.contains(says) && !note.contains("shop/i"), "{note}");
    }
}

#[test]
fn a_persons_cordon_is_said_to_stay() {
    for stays in [false, true] {
        let mut view = view();
        view.node = Some(leaked(NodeFacts {
            unschedulable: stays,
            ..NodeFacts::example()
        }));
        let event = EventText::of_step(&view, Step::Cordon);
        let says = event.map(|event| (event.reason, event.note.ends_with("stays cordoned")));
        assert_eq!(says, stays.then_some(("StaysCordoned", true)));
    }
}

#[test]
fn what_stays_on_the_host_is_told() {
    let undone = "its agent undoes its changes to the host";
    let stays = "if 2.0.0 is activated, the host boots it";
    for (why, attempt, current, told) in [
        (Abort::NodePaused, Some(4), "1.0.0", Some(undone)),
        (Abort::NotLabelled, Some(4), "1.0.0", Some(stays)),
        (Abort::OtherTarget, Some(3), "1.0.0", None),
        (Abort::NotLabelled, Some(3), "1.0.0", None),
        (Abort::NotLabelled, Some(4), "2.0.0", None),
        (Abort::NotConfirmed, Some(4), "1.0.0", None),
    ] {
        let mut view = view();
        view.shadow.as_mut().unwrap().status = leaked(BottlerocketShadowStatus {
            attempt,
            current_version: Some(current.into()),
            ..BottlerocketShadowStatus::default()
        });
        let note = EventText::of_step(&view, Step::Abort(why)).unwrap().note;
        for text in [undone, stays] {
            assert_eq!(note.contains(text), told == Some(text), "{note}");
        }
        let (note, _) = note.split_once("; what to do").unwrap_or((&note, ""));
        assert_eq!(note.ends_with("wanted 2.0.0)"), told.is_none(), "{note}");
    }
}

#[test]
fn events_are_printable_whatever_is_quoted() {
    let hostile = "1.0.0\u{1b}[2J\nUpdated: \u{9b}\u{202e}";
    let shown = r"1.0.0\u{1b}[2J\nUpdated: \u{9b}\u{202e}";
    let mut view = view();
    let shadow = view.shadow.as_mut().unwrap();
    shadow.spec = leaked(BottlerocketShadowSpec {
        version: Some(hostile.into()),
        ..shadow.spec.clone()
    });
    shadow.status = leaked(BottlerocketShadowStatus {
        current_version: Some(hostile.into()),
        ..shadow.status.clone()
    });
    let pod = PodKey {
        namespace: "shop".into(),
        name: hostile.into(),
        uid: "u".into(),
    };
    let halted = VersionRecord {
        version: hostile.to_owned(),
        variant: hostile.to_owned(),
        ..VersionRecord::default()
    };
    for event in [
        EventText::of_step(&view, Step::Stage("2.0.0")).unwrap(),
        EventText::of_step(&view, Step::Finish).unwrap(),
        EventText::of_step(&view, Step::Abort(Abort::StepFailed)).unwrap(),
        EventText::of_refusal(&view, &pod, hostile),
        EventText::of_no_opt_in(hostile),
        EventText::of_halts(&[halted]).unwrap(),
    ] {
        let (note, action) = event.printable();
        assert!(
            note.contains(shown) && is_printable(&note) && is_printable(&action),
            "{note:?}"
        );
    }
    let long = EventText::of_refusal(&view, &pod, &"é\n".repeat(5000));
    assert!((1000..=1024).contains(&long.printable().0.len()));
}

#[test]
fn a_refused_label_says_what_to_do() {
    let denied = |rule: &str| {
        EventText::of_no_opt_in(&format!(
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {rule}: x"
        ))
    };
    let (ours, theirs) = (denied("reconciler-node-labels"), denied("nodes-are-frozen"));
    assert!(ours.note.contains("component auto-label"), "{}", ours.note);
    let theirs = theirs.note;
    assert!(
        theirs.contains("nodes-are-frozen") && !theirs.contains("component"),
        "{theirs}"
    );
    let another = "ValidatingAdmissionPolicy … reconciler-node-labels of another node";
    assert_eq!(ours, EventText::of_no_opt_in(another));
    assert!(
        (1000..=1024).contains(
            &EventText::of_no_opt_in(&"long".repeat(1000))
                .printable()
                .0
                .len()
        )
    );
    let leave_out =
        "kubectl label node n-1 bottlerocket.aws/updater-interface-version=none --overwrite";
    assert!(
        EventText::of_opt_in("n-1").note.ends_with(leave_out),
        "{}",
        EventText::of_opt_in("n-1").note
    );
}

#[test]
fn what_people_left_on_a_node_is_told() {
    for (paused, update_now, says) in [
        (false, false, None),
        (true, false, Some("has paused the node")),
        (false, true, Some("has requested its next update at once")),
        (
            true,
            true,
            Some("has paused the node (annotation brupop.bottlerocket.aws/pause), and requested"),
        ),
    ] {
        let node = Some(leaked(NodeFacts {
            paused,
            update_now,
            ..NodeFacts::example()
        }));
        let told = left_by_people(&NodeView { node, ..view() });
        assert_eq!(told.is_some(), says.is_some(), "{told:?}");
        assert!(
            told.is_none_or(|told| says.is_some_and(|says| told.contains(says))),
            "{told:?}"
        );
    }
}
