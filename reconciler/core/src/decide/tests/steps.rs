//! One update, view by view.

use super::world::*;

#[test]
fn a_staged_node_is_taken_out_in_order() {
    let fleet = fleet();
    let mut view = staged();
    (view.time.exclude, view.time.exclusion_over) = (true, false);
    let decision = decide(&fleet, &view);
    assert_eq!(
        sets(write(&decision), Field::ExcludedFromLoadBalancers),
        Some(Value::Set)
    );
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);

    let excluded = Marker {
        shadow_uid: UID.into(),
        attempt: 1,
        excluded_at: Some("then".into()),
        ..Marker::default()
    };
    node(&mut view, |node| {
        (node.marker, node.excluded) = (Some(Ok(excluded.clone())), true);
    });
    assert_eq!(decide(&fleet, &view).reason, Reason::LeavingLoadBalancers);
    view.time.exclusion_over = true;
    let decision = decide(&fleet, &view);
    assert_eq!(
        sets(write(&decision), Field::Unschedulable),
        Some(Value::Set)
    );
    assert_eq!(
        sets(write(&decision), Field::UpdatingTaint),
        Some(Value::Set)
    );

    // By the leader before this one.
    let cordoned = Marker {
        term: 3,
        ..marker(1, false)
    };
    marked(&mut view, &cordoned);
    assert_eq!(decide(&fleet, &view).step, Some(Step::Evict));
    drained(&mut view);
    let granted = |view: &NodeView<'_>, claim| {
        let decision = decide(&fleet, view);
        assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
        assert_eq!(
            sets(write(&decision), Field::SpecRebootGrantedBootId),
            Some(Value::text(FIRST_BOOT))
        );
        assert!(
            write(&decision)
                .tests
                .contains(&(Field::StatusRebootClaimedBootId, claim))
        );
        let Some(confirm) = decision.confirm else {
            panic!("it is a grant")
        };
        assert!(confirm.tests.contains(&(Field::Unschedulable, Value::Set)));
        let Some(Value::Marker(marker)) = sets(&confirm, Field::Marker) else {
            panic!("it marks the Node")
        };
        assert_eq!(marker.drained_at.as_deref(), Some(fleet.now), "drained now");
        assert_eq!(marker.term, fleet.term, "by this leader");
    };
    granted(&view, Value::Absent);
    // The Node was written, and the grant was not.
    node(&mut view, |node| node.marker = Some(Ok(DRAINED.clone())));
    granted(&view, Value::Absent);
    // A claim of an earlier boot is spent.
    shadow(&mut view, |shadow| {
        shadow.status.reboot_claimed_boot_id = Some("an earlier boot".into());
    });
    granted(&view, Value::text("an earlier boot"));
}

#[test]
fn each_view_has_its_step() {
    let left = [PodKey {
        namespace: "shop".into(),
        name: "cart-0".into(),
        uid: "u".into(),
    }];
    let cordoned = staged().marked_by(&CORDONED);
    let back = updating(RebootedIntoUpdate, RebootedIntoUpdate).rebooted(NEW);
    for (what, view, step) in rows! {
        "it begins", idle() => Some(Step::Stage(NEW));
        "it is staged", staged() => Some(Step::Cordon);
        "pods are evicted", cordoned => Some(Step::Evict);
        "uncordoned", cordoned.with_node(|it| it.unschedulable = false) => Some(Step::CordonAgain);
        "it is empty but for pods that are left", cordoned.with(drained).with(|it| plan(it, |plan| plan.left = left.to_vec()))
            => Some(Step::Grant);
        "the same while the image is downloaded", updating(StagedAndPerformedUpdate, Idle).with(|it| it.busy_control_plane = Some("c"))
            => None;
        "another node of the control plane goes down", cordoned.with(drained).with(|it| it.busy_control_plane = Some("c"))
            => Some(Step::Abort(Abort::PoolClosed));
        "it is back, and monitored", back => Some(Step::Monitor);
        "it fell back", back.rebooted(OLD) => Some(Step::Abort(Abort::FellBack));
        "it was monitored", watched() => Some(Step::Finish);
    } {
        assert_eq!(decide(&fleet(), &view).step, step, "{what}");
    }
}

#[test]
fn no_node_is_emptied_without_admission() {
    let alone = FleetFacts {
        enforced: false,
        ..fleet()
    };
    for (fleet, exclude) in rows! {
        alone => false;
        FleetFacts { paused: true, ..alone } => true;
    } {
        let view = staged().with(|view| view.time.exclude = exclude);
        let decision = decide(&fleet, &view);
        assert_eq!(
            (decision.step, decision.reason),
            (None, Reason::AdmissionNotEnforced)
        );
        let step = decide(&fleet, &view.marked_by(&CORDONED)).step;
        assert_eq!(step, Some(Step::Evict), "what has begun goes on");
    }
}

#[test]
fn without_a_slot_no_node_is_emptied() {
    assert_eq!(decide(&without_slots(), &staged()).step, None);
    let other = slot(SHADOW, "an earlier shadow", 1);
    assert_eq!(
        decide(
            &FleetFacts {
                slots: &other,
                ..fleet()
            },
            &staged()
        )
        .step,
        None
    );
}

#[test]
fn a_cordon_that_was_there_before_stays() {
    let decision = decide(
        &fleet(),
        &staged().with_node(|node| node.unschedulable = true),
    );
    let marker = marker_of(&decision);
    assert_eq!(marker.cordoned_at, None);
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);

    let back = updating(RebootedIntoUpdate, RebootedIntoUpdate)
        .marked_by(&marker)
        .rebooted(NEW);
    let decision = decide(&fleet(), &back);
    assert_eq!(decision.reason, Reason::ReturningToService);
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);
    assert_eq!(
        sets(write(&decision), Field::UpdatingTaint),
        Some(Value::Absent)
    );
}

#[test]
fn an_uncordoned_node_is_cordoned_and_drained_again() {
    let view = granted(false).marked_by(&DRAINED);
    assert_eq!(decide(&fleet(), &view).reason, Reason::RebootGranted);
    let view = view.with_node(|node| node.unschedulable = false);
    let decision = decide(&fleet(), &view);
    assert_eq!(
        sets(write(&decision), Field::SpecRebootGrantedBootId),
        Some(Value::Absent)
    );
    assert!(
        write(&decision)
            .tests
            .contains(&(Field::StatusRebootClaimedBootId, Value::Absent))
    );

    let decision = decide(
        &fleet(),
        &view.with_shadow(|shadow| shadow.spec.reboot_granted_boot_id = None),
    );
    let marker = marker_of(&decision);
    assert_eq!((marker.drained_at, marker.was_drained), (None, true));
    assert_eq!(
        sets(write(&decision), Field::Unschedulable),
        Some(Value::Set)
    );
}

/// Who uncordons a node again and again does not keep its slot for ever.
#[test]
fn no_uncordon_lengthens_a_drain() {
    for marker in [&CORDONED, &DRAINED] {
        let uncordoned = staged()
            .marked_by(marker)
            .with_node(|it| it.unschedulable = false);
        let again = marker_of(&decide(&fleet(), &uncordoned));
        assert_eq!(again.drain_started_at, marker.drain_started_at);
        assert_ne!(again.cordoned_at, marker.cordoned_at);
    }
}

#[test]
fn pods_after_the_drain_are_evicted_first() {
    let mut view = staged().marked_by(&DRAINED);
    // Somebody uncordoned the node and cordoned it again, and nobody saw.
    let decision = decide(&fleet(), &view);
    let marker = marker_of(&decision);
    assert_eq!(
        (marker.drained_at.as_deref(), marker.was_drained),
        (None, true)
    );
    assert_eq!(
        marker.drain_started_at, DRAINED.drain_started_at,
        "the deadline stays what it is"
    );
    assert!(
        write(&decision)
            .tests
            .contains(&(Field::Unschedulable, Value::Set))
    );
    assert_eq!(decision.reason, Reason::Draining);

    unknown_pods(&mut view);
    let decision = decide(&fleet(), &view);
    assert_eq!(
        (decision.step, decision.reason),
        (None, Reason::Draining),
        "a new leader looks first"
    );

    drained(&mut view);
    let decision = decide(&fleet(), &view);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    let Some(confirm) = &decision.confirm else {
        panic!("on a fresh list: {decision:?}")
    };
    assert!(
        confirm.tests.contains(&(Field::Unschedulable, Value::Set)),
        "and on the Node as it is then"
    );
    assert!(
        confirm
            .tests
            .iter()
            .any(|(field, value)| *field == Field::Marker && *value != Value::Absent)
    );
    assert_eq!(decision.reason, Reason::Draining, "nothing is granted");
}

type Change = fn(&mut NodeView<'_>);

#[test]
fn a_drain_without_grant_ends_by_deadline() {
    let (unknown, known): (Change, Change) = (unknown_pods, |_| ());
    let (timed_out, goes_on) = (Reason::Aborting(Abort::DrainTimedOut), Reason::Draining);
    let granted = Some(RebootedIntoUpdate);
    for (says, pods, unschedulable, force, reason, next) in rows! {
        "its pods cannot be looked at", unknown, true, false, timed_out => Some(Idle);
        "its pods come back each time", known, true, false, timed_out => Some(Idle);
        "no fresh list agrees", drained, true, false, timed_out => Some(Idle);
        "with force they are deleted", known, true, true, goes_on => None;
        "with force it is tried on", drained, true, true, goes_on => granted;
        "uncordoned after its drain", drained, false, false, timed_out => Some(Idle);
        "the same with force", drained, false, true, timed_out => Some(Idle);
    } {
        let view = staged()
            .marked_by(&DRAINED)
            .with_node(|node| node.unschedulable = unschedulable);
        let mut view = NodeView { force, ..view }.with(pods);
        view.time.drain_overdue = true;
        let decision = decide(&fleet(), &view);
        assert_eq!(
            (decision.reason, next_state(&decision)),
            (reason, next),
            "{says}"
        );
        view.time.drain_overdue = false;
        let decision = decide(&fleet(), &view);
        assert!(
            !matches!(decision.reason, Reason::Aborting(_)),
            "in time: {says}"
        );
    }
}

#[test]
fn empty_boot_id_in_mid_update_waits() {
    let late = |view: &mut NodeView<'_>| view.time.step_overdue = true;
    for view in [
        staged(),
        staged().marked_by(&CORDONED),
        granted(false).marked_by(&DRAINED),
        granted(true).marked_by(&DRAINED),
    ] {
        for view in [view, view.with(late), view.with(late).not_ready()] {
            let view = view.with_node(|node| node.boot_id = String::new());
            let decision = decide(&fleet(), &view);
            assert_eq!(
                (decision.step, decision.reason.as_str()),
                (None, "NotUnderstood")
            );
            // A claim says that the host went down; nothing else does.
            let counts = view.time.step_overdue
                && !view.node.unwrap().is_ready()
                && view.shadow.unwrap().is_claimed();
            assert_eq!(allocate(&fleet(), &[view]).write.is_some(), counts);
        }
    }
    let fell_back = staged().rebooted(OLD);
    assert_eq!(
        decide(&fleet(), &fell_back).reason,
        Reason::Aborting(Abort::FellBack),
        "a boot ID that is known"
    );
}

#[test]
fn after_the_claim_only_the_node_counts() {
    let mut view = granted(true).marked_by(&DRAINED);
    assert_eq!(decide(&fleet(), &view).reason, Reason::Rebooting);
    // Neither a deadline nor a person takes back a reboot that was claimed.
    view.time.step_overdue = true;
    node(&mut view, |node| node.paused = true);
    let decision = decide(&fleet(), &view);
    let sentence = decision.reason.message();
    assert_eq!(
        (decision.step, decision.reason.as_str()),
        (None, "RebootOverdue")
    );
    assert!(
        sentence.contains("reports from the old boot") && !sentence.contains("come back"),
        "{sentence}"
    );
    view.agent_ready = false;
    assert_eq!(decide(&fleet(), &view).reason, Reason::AgentSilent);
    let sentence = decide(&fleet(), &view.not_ready()).reason.message();
    assert!(sentence.contains("has not come back"), "{sentence}");
    view.agent_ready = true;
    // Its remedy is not to delete the Node.
    for (problem, reason) in [
        (Problem::NotNextToBoot, Reason::NotNextToBoot("m")),
        (Problem::RebootRefused, Reason::RebootRefused("m")),
        (Problem::HostUnreachable, Reason::RebootOverdue("")),
    ] {
        let says = |status: &mut BottlerocketShadowStatus| {
            (status.problem, status.message) = (Some(problem), Some("m".into()));
        };
        let view = view.with_shadow(|shadow| says(&mut shadow.status));
        let of = |view| decide(&fleet(), view).reason.as_str();
        assert_eq!(of(&view), reason.as_str(), "a host that lives");
        assert_eq!(of(&view.not_ready()), "RebootOverdue", "{problem:?}");
    }
    view.time.step_overdue = false;

    let mut view = view.rebooted(NEW);
    assert_eq!(
        decide(&fleet(), &view.not_ready()).reason,
        Reason::Rebooting
    );
    // Ready in the new boot: back into service, whether the agent has said anything or not.
    let decision = decide(&fleet(), &view);
    assert_eq!(
        sets(write(&decision), Field::Unschedulable),
        Some(Value::Absent)
    );
    let rest = marker_of(&decision);
    assert!(!rest.holds_changes() && !rest.evicted_owners.is_empty());

    node(&mut view, |node| {
        (node.unschedulable, node.tainted, node.marker) = (false, false, Some(Ok(rest.clone())));
    });
    assert_eq!(decide(&fleet(), &view).reason, Reason::AgentNotReported);
    shadow(&mut view, |shadow| {
        shadow.status.current_state = Some(RebootedIntoUpdate);
    });
    assert_eq!(next_state(&decide(&fleet(), &view)), Some(MonitoringUpdate));
}

#[test]
fn an_update_of_another_operator_is_left_alone() {
    for state in [
        StagedAndPerformedUpdate,
        RebootedIntoUpdate,
        MonitoringUpdate,
        ErrorReset,
    ] {
        for labelled in [false, true] {
            let view = updating(state, StagedAndPerformedUpdate)
                .with_shadow(|it| (it.spec.attempt, it.status.attempt) = (None, None))
                .with(|it| it.time.step_overdue = true)
                .with_node(|node| {
                    node.labelled = labelled;
                    (node.unschedulable, node.excluded) = (true, true);
                });
            let decision = decide(&fleet(), &view);
            assert_eq!(
                (decision.step, decision.reason),
                (None, Reason::OtherOperatorsUpdate),
                "{state:?}"
            );
            assert_eq!(allocate(&without_slots(), &[view]).write, None, "{state:?}");
            assert!(
                crate::decide::new_term(None, &[view]).1.sets.len() == 1,
                "no slot"
            );
        }
    }
}

#[test]
fn a_host_that_rebooted_into_the_update_by_itself_is_not_rebooted() {
    let decision = decide(&fleet(), &staged().rebooted(NEW));
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootGrantedBootId), None);
}
