//! Tests of undoing: only our own changes that still exist.

use brupop_api::names;

use super::world::*;

/// A change of a Node: its field, how the marker tells of it, and how the Node shows it.
type Row = (Field<'static>, fn(&mut Marker), fn(&mut NodeFacts));

const OURS: Option<&str> = Some(KEPT_FROM_AUTOSCALERS);
const ROWS: [Row; 5] = [
    (
        Field::Unschedulable,
        |it| it.cordoned_at = Some("then".into()),
        |it| it.unschedulable = true,
    ),
    (
        Field::ExcludedFromLoadBalancers,
        |it| it.excluded_at = Some("then".into()),
        |it| it.excluded = true,
    ),
    (
        Field::UpdatingTaint,
        |it| it.tainted = true,
        |it| it.tainted = true,
    ),
    (
        Field::DoNotDisrupt,
        |it| it.do_not_disrupt = true,
        |it| annotate(it, [OURS, None]),
    ),
    (
        Field::ScaleDownDisabled,
        |it| it.scale_down_disabled = true,
        |it| annotate(it, [None, OURS]),
    ),
];

fn nothing_done() -> Marker {
    Marker {
        shadow_uid: UID.into(),
        attempt: 3,
        term: 2,
        ..Marker::default()
    }
}

/// Returns what this step writes.
fn written<'a>(step: Step<'a>, view: &NodeView<'a>) -> Write<'a> {
    step.write(&fleet(), view).unwrap()
}

#[test]
fn what_is_there_and_ours_is_undone() {
    for (field, tell, show) in ROWS {
        for (ours, there) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut marker = nothing_done();
            if ours {
                tell(&mut marker);
            }
            let view = idle().with_node(|node| {
                node.marker = Some(Ok(marker));
                if there {
                    show(node);
                }
            });
            let write = written(Step::Undo, &view);
            let expected = (ours && there).then_some(Value::Absent);
            assert_eq!(
                sets(&write, field),
                expected,
                "{field:?}, ours: {ours}, there: {there}"
            );
            assert_eq!(
                sets(&write, Field::Marker),
                Some(Value::Absent),
                "{field:?}"
            );
            assert_eq!(
                write.sets.len(),
                1 + usize::from(ours && there),
                "{field:?}: nothing else"
            );
        }
    }
}

#[test]
fn autoscalers_may_replace_a_node_that_died_during_its_update() {
    let marker = Marker {
        do_not_disrupt: true,
        scale_down_disabled: true,
        ..CORDONED.clone()
    };
    for view in [
        idle(),
        idle().with_node(|node| node.labelled = false),
        idle().with_shadow(|shadow| shadow.uid = "another"),
    ] {
        let dead = view.marked_by(&marker).not_ready();
        assert_eq!(decide(&fleet(), &dead).reason, Reason::NodeNotReady);
        assert_eq!(decide(&fleet(), &dead).step, None);
        let rest = marker_of(&decide(&fleet(), &dead.with(|it| it.time.lost = true)));
        assert!(!rest.keeps_autoscalers_away() && rest.cordoned_at == marker.cordoned_at);
        let released = dead.marked_by(&rest).with(|it| it.time.lost = true);
        assert_eq!(decide(&fleet(), &released).step, None, "once");
    }
}

#[test]
fn a_request_ends_with_its_update() {
    let marker = Marker {
        tainted: true,
        ..nothing_done()
    };
    let attempt = marker.attempt;
    let cases = [
        ("1.20.0", Some("1.20.0"), attempt, true),
        ("1.19.4", Some("1.20.0"), attempt, true), // It was given up.
        ("1.19.4", None, attempt, false),
        ("1.19.4", Some("1.20.0"), attempt + 1, false), // The marker is of the one before.
    ];
    for (runs, version, attempt, is_past) in cases {
        let view = idle()
            .with_node(|node| {
                (node.update_now, node.marker) = (true, Some(Ok(marker.clone())));
                node.version = Some(runs.to_owned());
            })
            .with_shadow(|shadow| {
                (shadow.spec.version, shadow.spec.attempt) =
                    (version.map(str::to_owned), Some(attempt));
            });
        let decision = decide(&without_slots(), &view);
        let write = write(&decision);
        let removed = sets(write, Field::UpdateNow).is_some();
        let tested = (Field::UpdateNow, Value::text("true"));
        assert_eq!((removed, write.tests.contains(&tested)), (is_past, is_past));
    }
}

#[test]
fn past_retry_goes_with_the_next_change_of_the_node() {
    let failed = |attempt| LastFailure {
        attempt,
        ..LastFailure::default()
    };
    let (failures, again) = (failed(2), failed(3));
    let marker = Marker {
        tainted: true,
        ..nothing_done()
    };
    for (retry, failures, marker, goes) in [
        (Some(2), Some(&again), Some(&marker), true),
        (Some(2), None, Some(&marker), true),
        (Some(2), Some(&failures), Some(&marker), false),
        (Some(4), Some(&again), Some(&marker), false),
        (None, Some(&again), Some(&marker), false),
        (Some(2), Some(&again), None, false),
    ] {
        let view = idle()
            .with_node(|node| (node.retry, node.marker) = (retry, marker.cloned().map(Ok)))
            .with_shadow(|shadow| {
                (shadow.spec.attempt, shadow.spec.last_failure) = (Some(3), failures.cloned());
            });
        let decision = decide(&without_slots(), &view);
        let write = decision.write.as_ref();
        assert_eq!(write.is_some(), marker.is_some(), "it is worth no write");
        let number =
            write.and_then(|write| write.tests.iter().find(|(field, _)| *field == Field::Retry));
        assert_eq!(number.is_some(), goes, "{retry:?} after {failures:?}");
        assert_eq!(
            write.and_then(|write| sets(write, Field::Retry)).is_some(),
            goes
        );
        let Some(write) = write.filter(|_| goes) else {
            continue;
        };
        let node = |retry: &str| {
            let annotations = json!({names::MARKER_ANNOTATION: marker.map(Marker::render), names::RETRY_ANNOTATION: retry});
            json!({"metadata": {"uid": "node-uid", "annotations": annotations}})
        };
        let read = node("2");
        let patch = write.patch(&read);
        for (found, taken) in [("2", true), ("3", false)] {
            let mut found = node(found);
            assert_eq!(
                json_patch::patch(&mut found, &patch).is_ok(),
                taken,
                "{patch}"
            );
            assert!(
                !taken || found["metadata"]["annotations"][names::RETRY_ANNOTATION].is_null(),
                "{found}"
            );
        }
    }
}

#[test]
fn owners_of_evicted_pods_stay_in_the_marker() {
    let evicted_owners = BTreeMap::from([("apps/v1/ReplicaSet/shop/cart".to_owned(), 3)]);
    let rest = Marker {
        evicted_owners,
        ..nothing_done()
    };
    let marker = Marker {
        tainted: true,
        drained_at: Some("then".into()),
        ..rest.clone()
    };
    let view = idle().with_node(|node| node.marker = Some(Ok(marker)));
    let write = written(Step::PutBack, &view);
    assert_eq!(
        sets(&write, Field::Marker),
        Some(Value::Marker(std::borrow::Cow::Owned(rest)))
    );
}
