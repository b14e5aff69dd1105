//! Whether the fleet is idle.

use brupop_api::conditions::ConditionStatus;
use brupop_api::names;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Watched as _};
use crate::status::fleet::idle;
use crate::tests::world::{annotated, node, read, rows, shadow};

fn put_node(cluster: &mut Cluster, name: &str, marker: Option<&str>) {
    let marker = marker.map_or_else(
        || json!({}),
        |marker| annotated(names::MARKER_ANNOTATION, marker),
    );
    node(name, marker).put(cluster);
}

fn put_shadow(cluster: &mut Cluster, name: &str, state: &str) {
    shadow(
        &names::shadow_name(name),
        json!({"state": state}),
        json!({}),
    )
    .put(cluster);
}

fn message(cluster: &Cluster, slots: &Value) -> (ConditionStatus, String) {
    let condition = idle(cluster.busy_nodes(&read(slots.clone())));
    (
        condition.status,
        condition.message.split(' ').next().unwrap().to_owned(),
    )
}

#[test]
fn a_fleet_at_rest_is_idle() {
    let none = json!({});
    let mut cluster = Cluster::default();
    assert_eq!(
        message(&cluster, &none),
        (ConditionStatus::True, "no".to_owned())
    );
    put_node(&mut cluster, "n", None);
    put_shadow(&mut cluster, "n", "Idle");
    put_node(&mut cluster, "without-shadow", None);
    put_shadow(&mut cluster, "without-node", "Idle");
    assert_eq!(
        message(&cluster, &none),
        (ConditionStatus::True, "no".to_owned())
    );
}

#[test]
fn whatever_is_left_to_do_is_counted_once() {
    let marker = json!({"shadow_uid": "u", "attempt": 1, "tainted": true}).to_string();
    let (none, slot) = (json!({}), json!({"brs-n": {"uid": "u", "attempt": 1}}));
    for (why, slots, marker, state) in rows! {
        "everything at once", &slot, Some(marker.as_str()) => Some("RebootedIntoUpdate");
        "a slot that is about to be given back", &slot, None => Some("Idle");
        "a slot without a shadow", &slot, None => None;
        "a marker that is to be undone", &none, Some(&marker) => Some("Idle");
        "a marker that cannot be read", &none, Some("?") => Some("Idle");
        "a marker without a shadow", &none, Some(&marker) => None;
        "an update without a slot", &none, None => Some("MonitoringUpdate");
        "a shadow that cannot be read", &none, None => Some("?");
    } {
        let mut cluster = Cluster::default();
        put_node(&mut cluster, "n", marker);
        if let Some(state) = state {
            put_shadow(&mut cluster, "n", state);
        }
        assert_eq!(
            message(&cluster, slots),
            (ConditionStatus::False, "1".to_owned()),
            "{why}"
        );
    }
}

#[test]
fn nodes_and_shadows_that_are_gone_count() {
    let mut cluster = Cluster::default();
    put_shadow(&mut cluster, "without-node", "StagedAndPerformedUpdate");
    let slots = json!({"brs-without-both": {"uid": "u", "attempt": 1}});
    assert_eq!(
        message(&cluster, &slots),
        (ConditionStatus::False, "2".to_owned())
    );
}
