//! Tests of the nodes that begin.

use super::first_pools::rules;
use super::world::*;

#[test]
fn nothing_is_written_without_our_term() {
    for ledger_term in [None, Some(3), Some(5)] {
        let fleet = FleetFacts {
            ledger_term,
            ..fleet()
        };
        assert_eq!(decide(&fleet, &idle()).step, None);
        assert_eq!(allocate(&fleet, &[idle()]).write, None);
    }
}

#[test]
fn a_shadow_comes_and_goes_with_its_opted_in_node() {
    let marker = marker(3, true);
    let unlabelled = idle().with_node(|node| node.labelled = false);
    let create = |attempt| Some(Step::CreateShadow { attempt });
    let delete = || Some(Step::DeleteShadow);
    for (what, view, step) in rows! {
        "opted in", NodeView { shadow: None, ..idle() } => create(None);
        // At the next attempt, so that the old marker is over.
        "lost in mid-update", NodeView { shadow: None, ..idle().marked_by(&marker) } => create(Some(4));
        "opted out", unlabelled => delete();
        "opted out, and gone", NodeView { shadow: None, ..unlabelled } => None;
        "of an earlier node", NodeView { owner_uid: Some("an earlier node"), ..idle() } => delete();
        "of a node that is gone", NodeView { node: None, ..idle() } => delete();
    } {
        assert_eq!(decide(&fleet(), &view).step, step, "{what}");
    }
}

/// Other tests of the write that takes slots are in `slot_writes.rs`.
#[test]
fn only_slots_that_are_taken_test_the_pause() {
    let tests_pause = |write: &Write<'_>| {
        write
            .tests
            .iter()
            .any(|(field, _)| *field == Field::Generation)
    };
    assert!(tests_pause(
        &allocate(&without_slots(), &[idle()]).write.unwrap()
    ));
    let over = idle().with_shadow(|shadow| {
        (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1));
        shadow.status.target_version = Some(OLD.into());
    });
    let returned = allocate(&fleet(), &[over]).write.unwrap();
    assert_eq!(sets(&returned, Field::Slot(SHADOW)), Some(Value::Absent));
    assert!(!tests_pause(&returned));
}

#[test]
fn a_slot_comes_before_the_spec_moves() {
    assert_eq!(decide(&without_slots(), &idle()).step, None);
    let decision = decide(&fleet(), &idle());
    for (field, value) in [
        (Field::SpecState, Value::State(StagedAndPerformedUpdate)),
        (Field::SpecVersion, Value::text(NEW)),
        (Field::SpecFromVersion, Value::text(OLD)),
        (Field::SpecAttempt, Value::Number(1)),
        (Field::SpecLeaderTerm, Value::Number(4)),
        (Field::SpecBaselineBootId, Value::text(FIRST_BOOT)),
    ] {
        assert_eq!(sets(write(&decision), field), Some(value), "{field:?}");
    }
}

const ROUTE: &str = "refresh failed with exit status 1: no route";
/// A change of an idle node that could otherwise begin.
type Change = fn(&mut NodeView<'static>);

fn says(view: &mut NodeView<'static>, problem: Problem, message: Option<&'static str>) {
    shadow(view, |it| {
        (it.status.problem, it.status.message) = (Some(problem), message.map(str::to_owned));
    });
}

#[test]
fn other_problems_hold_no_update_up() {
    for problem in Problem::ALL
        .into_iter()
        .filter(|problem| !problem.prevents_update())
    {
        // Not even in the words of another problem.
        let view = idle().with(|view| says(view, problem, Some(ROUTE)));
        assert_eq!(
            decide(&without_slots(), &view).reason,
            Reason::LimitReached,
            "{problem}"
        );
    }
}

#[test]
fn an_idle_node_says_why_it_waits() {
    use Problem::{CommandRefused, HostUnreachable, RefreshFailed};
    let asked_for_after_failure: Change = |s| {
        s.time.backing_off = true;
        node(s, |n| n.update_now = true);
    };
    let paused_after_failure: Change = |s| {
        s.time.backing_off = true;
        node(s, |n| n.paused = true);
    };
    let locked: Change = |s| {
        shadow(s, |w| w.status.target_version = None);
        says(s, Problem::NoUpdateChosen, Some(ROUTE));
    };
    let rows: [(&str, Change, Reason<'_>); 15] = [
        (
            "its agent's pod is not Ready",
            |s| s.agent_ready = false,
            Reason::AgentSilent,
        ),
        (
            "not ready",
            |s| node(s, |n| n.readiness = None),
            Reason::NodeNotReady,
        ),
        (
            "no report",
            |s| shadow(s, |w| w.status.current_version = None),
            Reason::AgentNotReported,
        ),
        (
            "no report since its boot",
            |s| node(s, |n| n.boot_id = SECOND_BOOT.into()),
            Reason::AgentNotReported,
        ),
        (
            "no update",
            |s| shadow(s, |w| w.status.target_version = None),
            Reason::NoUpdate,
        ),
        ("locked", locked, Reason::NoUpdateChosen(ROUTE)),
        (
            "already there",
            |s| shadow(s, |w| w.status.target_version = Some(OLD.into())),
            Reason::NoUpdate,
        ),
        (
            "cannot look",
            |s| says(s, RefreshFailed, Some(ROUTE)),
            Reason::RefreshFailed(ROUTE),
        ),
        (
            "cannot ask",
            |s| says(s, HostUnreachable, Some("silent")),
            Reason::HostUnreachable("silent"),
        ),
        (
            "no sentence",
            |s| says(s, CommandRefused, None),
            Reason::CommandRefused("CommandRefused"),
        ),
        (
            "its Node runs it already",
            |s| node(s, |n| n.version = Some(NEW.into())),
            Reason::NoUpdate,
        ),
        (
            "failed not long ago",
            |s| s.time.backing_off = true,
            Reason::BackingOff,
        ),
        (
            "asked for after a failure",
            asked_for_after_failure,
            Reason::BackingOff,
        ),
        (
            "paused by a person",
            |s| node(s, |n| n.paused = true),
            Reason::NodePaused,
        ),
        (
            "paused by a person after a failure",
            paused_after_failure,
            Reason::NodePaused,
        ),
    ];
    for (name, change, reason) in rows {
        let view = idle().with(change);
        assert_eq!(decide(&without_slots(), &view).reason, reason, "{name}");
        assert_eq!(allocate(&without_slots(), &[view]).write, None, "{name}");
        // A slot that was taken all the same is given back by way of a spent attempt.
        let decision = decide(&fleet(), &view);
        assert_eq!(
            sets(write(&decision), Field::SpecAttempt),
            Some(Value::Number(1)),
            "{name}"
        );
        assert_eq!(sets(write(&decision), Field::SpecState), None, "{name}");
    }
}

/// The update was given up, and its host would boot into it, or cannot even be asked.
#[test]
fn who_cannot_undo_its_last_update_says_why() {
    for (problem, reason) in [
        (None, Reason::Finishing),
        (Some(Problem::StepFailed), Reason::Finishing),
        (Some(Problem::CannotDisarm), Reason::CannotDisarm(ROUTE)),
        (
            Some(Problem::HostUnreachable),
            Reason::HostUnreachable(ROUTE),
        ),
        (Some(Problem::CommandRefused), Reason::CommandRefused(ROUTE)),
    ] {
        let view = idle().with_shadow(|it| {
            (it.spec.attempt, it.status.attempt) = (Some(1), Some(1));
            it.status.current_state = Some(StagedAndPerformedUpdate);
            (it.status.problem, it.status.message) = (problem, Some(ROUTE.into()));
        });
        // With the slot of this attempt, and without one.
        for fleet in [fleet(), without_slots()] {
            let decision = decide(&fleet, &view);
            assert_eq!(
                (decision.reason, decision.step),
                (reason, None),
                "{problem:?}"
            );
        }
        assert_eq!(
            allocate(&without_slots(), &[view]).write,
            None,
            "{problem:?}"
        );
    }
}

#[test]
fn pause_window_admission_and_too_many_pools_hold_new_updates_back() {
    let without = without_slots();
    for (closed, reason, is_asked) in rows! {
        FleetFacts { paused: true, ..without }, Reason::FleetPaused => false;
        FleetFacts { default_pool: outside(), ..without }, Reason::OutsideWindow(Until::Unknown) => true;
        FleetFacts { default_pool: &PoolFacts { starts: Starts::Frozen(Until::Unknown), ..PoolFacts::DEFAULT }, ..without },
            Reason::Frozen(Until::Unknown) => true;
        FleetFacts { enforced: false, ..without }, Reason::AdmissionNotEnforced => false;
        FleetFacts { pool_left_out: Some("p128"), ..without }, Reason::TooManyPools("p128") => false;
    } {
        assert_eq!(decide(&closed, &idle()).reason, reason);
        assert_eq!(allocate(&closed, &[idle()]).write, None);
        let write = allocate(&closed, &[asked_for()]).write;
        assert_eq!(write.is_some(), is_asked, "{reason:?}");
    }
}

/// By the reason an agent knows whether to download ahead, which it does while it waits for a window.
#[test]
fn a_closed_window_hides_nothing_that_a_person_must_lift() {
    let closed = FleetFacts {
        default_pool: outside(),
        ..without_slots()
    };
    let waits = Reason::OutsideWindow(Until::Unknown);
    let rules = rules(&json!({"versions": {"below": NEW}}));
    let [pools, not_allowed] = [None, Some(&rules)].map(|rules| {
        [PoolFacts {
            rules,
            ..outside().clone()
        }]
    });
    for (says, fleet, reason) in rows! {
        "nothing else", closed => waits;
        "not enforced", FleetFacts { enforced: false, ..closed } => waits;
        "the fleet is paused", FleetFacts { paused: true, ..closed } => Reason::FleetPaused;
        "another operator", FleetFacts { alone: false, ..closed } => Reason::OtherOperator;
    } {
        assert_eq!(decide(&fleet, &idle()).reason, reason, "{says}");
        let in_pool = FleetFacts {
            pools: &pools,
            ..fleet
        };
        assert_eq!(
            decide(&in_pool, &idle().in_pool(0)).reason,
            reason,
            "{says}, in a pool"
        );
    }
    let decision = decide(
        &FleetFacts {
            pools: &not_allowed,
            ..without_slots()
        },
        &idle().in_pool(0),
    );
    assert_eq!(decision.reason, Reason::VersionNotAllowed(NEW));
}

/// A pause and a closed window end what has begun before the node is cordoned. Afterwards nothing does.
#[test]
fn what_is_not_cordoned_yet_is_given_up() {
    let paused = FleetFacts {
        paused: true,
        ..fleet()
    };
    let outside = FleetFacts {
        default_pool: outside(),
        ..fleet()
    };
    let (given_up, goes_on, drains) = (
        Reason::Aborting(Abort::PoolClosed),
        Reason::Cordoning,
        Reason::Draining,
    );
    for (says, fleet, not_cordoned) in [
        ("open", fleet(), goes_on),
        ("paused", paused, given_up),
        ("outside its window", outside, given_up),
    ] {
        let view = staged();
        for (view, expected) in [(view, not_cordoned), (view.marked_by(&CORDONED), drains)] {
            assert_eq!(decide(&fleet, &view).reason, expected, "{says}");
        }
    }
    let leaving = staged().with_node(|node| node.leaving = true);
    assert_eq!(decide(&fleet(), &leaving).reason, given_up);
}

#[test]
fn beside_another_operator_nothing_starts() {
    let beside = FleetFacts {
        alone: false,
        ..without_slots()
    };
    let reason = Reason::OtherOperator;
    assert_eq!(decide(&beside, &idle()).reason, reason);
    assert_eq!(allocate(&beside, &[idle(), asked_for()]).write, None);
    // An update that we began without a slot, as after a loss of the ledger, is ours.
    let ours = staged();
    assert!(allocate(&beside, &[ours]).write.is_some());
    assert!(
        decide(
            &FleetFacts {
                alone: false,
                ..fleet()
            },
            &ours
        )
        .step
        .is_some()
    );
}
