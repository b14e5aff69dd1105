//! Tests of pods that stay on an emptied node, of its taint, and of its Node.

use super::world::*;
use crate::workloads::{Scale, Scales};

fn available(available: u32) -> Scale {
    let (is_leaving, wanted) = (false, 3);
    Scale {
        is_leaving,
        wanted,
        available,
    }
}

#[test]
fn the_cordon_notes_how_workloads_are() {
    let [cart, gone] = ["cart", "gone"].map(|name| format!("apps/v1/ReplicaSet/shop/{name}"));
    let scales = Scales::from([(cart.clone(), Some(available(3))), (gone, None)]);
    let view: NodeView<'_> = staged();
    let view = view.with(|view| led(view, |led| led.scales = Some(scales)));
    let noted = marker_of(&decide(&fleet(), &view)).evicted_owners;
    assert_eq!(noted, BTreeMap::from([(cart, 3)]));
}

/// Somebody has uncordoned it meanwhile. What was noted at the first cordon stays.
#[test]
fn another_cordon_notes_the_pods_that_came() {
    let scales = ["shop/cart", "shop/mail"];
    let scales = scales.map(|name| (format!("apps/v1/ReplicaSet/{name}"), Some(available(1))));
    let scales = Scales::from(scales);
    let before = Marker {
        emptied: false,
        ..CORDONED.clone()
    };
    let view = staged()
        .marked_by(&before)
        .with_node(|node| node.unschedulable = false)
        .with(|view| led(view, |led| led.scales = Some(scales)));
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), None);
    let marker = marker_of(&decision);
    assert!(marker.emptied);
    let empty = view.with(drained);
    assert!(!marker_of(&decide(&fleet(), &empty)).emptied);
    let numbers: Vec<u32> = marker.evicted_owners.into_values().collect();
    assert_eq!(numbers, [2, 1], "cart had two");
}

#[test]
fn a_reboot_waits_for_volumes_and_not_for_ever() {
    for (force, marker) in [(false, &*CORDONED), (false, &*DRAINED), (true, &*CORDONED)] {
        for (what, in_use, overdue, granted) in [
            ("volumes are still attached", true, false, false),
            ("it has waited for long enough", true, true, true),
            ("they are detached", false, false, true),
        ] {
            let view = staged()
                .marked_by(marker)
                .with_node(|node| node.volumes_in_use = usize::from(in_use))
                .with(|view| {
                    drained(view);
                    (view.force, view.time.volumes_overdue) = (force, overdue);
                });
            let decision = decide(&fleet(), &view);
            assert_eq!(decision.step == Some(Step::Grant), granted, "{what}");
            assert_eq!(decision.step.is_none(), !granted, "{what}");
            assert_eq!(
                decision.reason == Reason::DetachingVolumes,
                !granted,
                "{what}"
            );
        }
    }
}

#[test]
fn our_pods_are_listed_before_eviction() {
    let uids = ["uid-webhook".to_owned()];
    let mut view = staged().marked_by(&CORDONED);
    plan(&mut view, |plan| plan.operator_pods = uids.to_vec());
    assert_eq!(marker_of(&decide(&fleet(), &view)).operator_pods, uids);
}

const KEPT_AWAY: [Field<'_>; 2] = [Field::DoNotDisrupt, Field::ScaleDownDisabled];

fn written<'a>(decision: &Decided<'a>) -> [Option<Value<'a>>; 2] {
    KEPT_AWAY.map(|field| sets(write(decision), field))
}

#[test]
fn autoscalers_are_kept_away_while_cordoned() {
    let somebodys = Some("theirs");
    for there in [
        [None, None],
        [somebodys, None],
        [None, somebodys],
        [None, Some(KEPT_FROM_AUTOSCALERS)],
    ] {
        // Earlier values stay.
        let ours = there.map(|there| there.is_none());
        let gone = ours.map(|ours| ours.then_some(Value::Absent));

        let decision = decide(&fleet(), &staged().with_node(|it| annotate(it, there)));
        assert_eq!(decision.reason, Reason::Cordoning);
        let marker = marker_of(&decision);
        assert_eq!([marker.do_not_disrupt, marker.scale_down_disabled], ours);
        assert_eq!(
            written(&decision),
            ours.map(|ours| ours.then_some(Value::Set)),
            "{there:?}"
        );
        let tests = KEPT_AWAY.map(|field| write(&decision).tests.contains(&(field, Value::Absent)));
        assert_eq!(tests, ours, "{there:?}");

        let back: NodeView<'_> = updating(RebootedIntoUpdate, RebootedIntoUpdate).rebooted(OLD);
        let back = back.marked_by(&marker).with_node(|node| {
            annotate(node, there.map(|it| it.or(Some(KEPT_FROM_AUTOSCALERS))));
        });
        // A host that does not come back is for them to replace, once.
        let away = back.not_ready();
        assert_eq!(decide(&fleet(), &away).step, None);
        let late = away.with(|view| view.time.step_overdue = true);
        let decision = decide(&fleet(), &late);
        assert_eq!(decision.reason.as_str(), "RebootOverdue");
        assert_eq!(written(&decision), gone, "{there:?}");
        let after = marker_of(&decision);
        assert_eq!(
            after,
            Marker {
                do_not_disrupt: false,
                scale_down_disabled: false,
                ..marker.clone()
            }
        );
        assert_eq!(decide(&fleet(), &late.marked_by(&after)).step, None);
    }
}

#[test]
fn the_node_tells_what_runs() {
    let view = idle().with_node(|node| node.version = None);
    assert_eq!(
        decide(&without_slots(), &view).reason,
        Reason::NotBottlerocket
    );
    for goal in [RebootedIntoUpdate, MonitoringUpdate] {
        let view = updating(goal, goal)
            .rebooted(NEW)
            .with_node(|node| node.version = None);
        assert_eq!(
            decide(&fleet(), &view).reason,
            Reason::Aborting(Abort::NotBottlerocket),
            "{goal:?}"
        );
    }
    let leaving = idle().with_node(|node| node.leaving = true);
    assert_eq!(
        decide(&without_slots(), &leaving).reason,
        Reason::NodeLeaving
    );
}
