//! Tests of shadows that nobody may write: a quota, a rule of somebody else, or a webhook that is down.

use std::sync::LazyLock;

use brupop_api::Object;

use super::world::*;

const WHY: &str = "the node's shadow: frozen";

/// Pods came after it was seen empty.
static DRAINED_BEFORE: LazyLock<Marker> = LazyLock::new(|| Marker {
    was_drained: true,
    ..CORDONED.clone()
});

fn denied(view: &mut NodeView<'static>) {
    led(view, |led| led.shadow_denied = Some(WHY.to_owned()));
}

/// The decision for a node whose shadow takes no change. It is told, whatever is tried.
fn decided(view: &NodeView<'static>) -> Decided<'static> {
    let decision = decide(&fleet(), &view.with(denied));
    assert_eq!(
        decision.reason,
        Reason::NodeChangesDenied(WHY),
        "{:?}",
        decision.step
    );
    decision
}

#[test]
fn a_denied_shadow_puts_its_node_back_unless_a_grant_may_be_on_its_way() {
    let taken_back = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    for view in [staged(), taken_back] {
        let undone = decided(&view.marked_by(&CORDONED));
        assert_eq!(write(&undone).object, Object::Node("n"));
        for field in [Field::Unschedulable, Field::UpdatingTaint, Field::Marker] {
            assert_eq!(
                sets(write(&undone), field),
                Some(Value::Absent),
                "{field:?}"
            );
        }
        // From then on, and where the node was drained, the update is to be given up.
        for view in [
            view,
            view.marked_by(&DRAINED),
            view.marked_by(&DRAINED_BEFORE),
            view.marked_by(&CORDONED).not_ready(),
        ] {
            assert_eq!(next_state(&decided(&view)), Some(Idle));
        }
    }
}

#[test]
fn a_granted_reboot_goes_on_where_the_shadow_takes_no_change() {
    let waits = decide(&fleet(), &granted(true).marked_by(&DRAINED).with(denied));
    assert_eq!((waits.step, waits.reason), (None, Reason::Rebooting));
    let back = granted(true).marked_by(&DRAINED).rebooted(NEW).with(denied);
    assert_eq!(decide(&fleet(), &back).reason, Reason::ReturningToService);
}

#[test]
fn a_shadow_that_cannot_be_made_or_moved_is_told() {
    let none = idle().with(|view| view.shadow = None);
    assert!(matches!(
        decided(&none).step,
        Some(Step::CreateShadow { .. })
    ));
    assert!(decided(&idle()).write.is_some(), "the slot is used up");
    let without_slot = decide(&without_slots(), &idle().with(denied));
    assert_eq!(
        (without_slot.step, without_slot.reason),
        (None, Reason::NodeChangesDenied(WHY))
    );
}
