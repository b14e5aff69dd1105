//! Random objects as the API server may hold them.

use brupop_api::names;
use brupop_api::{Marker, Problem, State};
use proptest::collection::btree_map;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value as Json, json};

const VERSIONS: [&str; 3] = ["1.19.4", "1.20.0", "1.20.1-rc.1+aws"];
const BOOTS: [&str; 2] = [
    "5f0c9b1e-0000-4000-8000-000000000001",
    "5f0c9b1e-0000-4000-8000-000000000002",
];
const TIMES: [&str; 3] = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.000001Z",
    "2026-01-01T02:00:00+02:00",
];
const SLOTS: [&str; 3] = ["brs-a", "brs-b.example", "brs-c"];

type Member = (&'static str, BoxedStrategy<Option<Json>>);

fn some_of(values: &[Json]) -> BoxedStrategy<Option<Json>> {
    weighted(0.7, select(values.to_vec())).boxed()
}

/// Absent, null or one of these.
fn or_null(values: &[Json]) -> BoxedStrategy<Option<Json>> {
    prop_oneof![1 => Just(Some(Json::Null)), 5 => some_of(values)].boxed()
}

fn texts(texts: &[&str]) -> Vec<Json> {
    texts.iter().map(|text| json!(text)).collect()
}

fn object(members: Vec<Member>) -> impl Strategy<Value = Json> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(key, value)| (Just(key), value))
        .collect();
    members.prop_map(|members| {
        let present = members
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Json::Object(present.collect())
    })
}

fn numbers() -> Vec<Json> {
    (0..6).map(|number| json!(number)).collect()
}

pub fn shadow() -> impl Strategy<Value = Json> {
    let (versions, boots, times) = (texts(&VERSIONS), texts(&BOOTS), texts(&TIMES));
    let failures = [
        json!({"count": 1, "attempt": 2, "at": TIMES[0], "reason": "FellBack"}),
        json!({"count": 2, "at": TIMES[1], "reason": "Aborted"}),
        json!({"count": 2, "attempt": 3, "at": TIMES[1], "reason": "DrainTimedOut",
            "message": "shop/cart-0 is not evicted"}),
    ];
    let spec = object(vec![
        (
            "state",
            select(texts(&State::ALL.map(State::as_str)[..4]))
                .prop_map(Some)
                .boxed(),
        ),
        ("state_transition_timestamp", or_null(&times)),
        ("version", or_null(&versions)),
        ("from_version", or_null(&versions)),
        ("attempt", some_of(&numbers())),
        ("leader_term", some_of(&numbers())),
        ("baseline_boot_id", some_of(&boots)),
        ("reboot_granted_boot_id", some_of(&boots)),
        ("last_failure", or_null(&failures)),
    ]);
    let condition = json!({"type": "Progressing", "status": "False", "reason": "NoUpdate", "message": "",
        "lastTransitionTime": TIMES[0]});
    let conditions = vec![json!([condition]), json!([])];
    let staged = [
        json!({"version": VERSIONS[1], "at": "2026-01-01T00:00:00.1Z"}),
        json!({"version": VERSIONS[0], "at": TIMES[0], "prefetched": true}),
    ];
    let status = object(vec![
        ("current_version", some_of(&versions)),
        ("target_version", some_of(&versions)),
        (
            "current_state",
            some_of(&texts(&State::ALL.map(State::as_str))),
        ),
        ("crash_count", some_of(&numbers())),
        ("state_transition_failure_timestamp", or_null(&times)),
        ("attempt", some_of(&numbers())),
        ("boot_id", some_of(&boots)),
        ("staged", or_null(&staged)),
        ("reboot_claimed_boot_id", some_of(&boots)),
        (
            "problem",
            some_of(&texts(&Problem::ALL.map(Problem::as_str))),
        ),
        ("problem_since", or_null(&times)),
        (
            "message",
            some_of(&texts(&["", "~/\u{e9}\"", "looked for updates"])),
        ),
        ("conditions", some_of(&conditions)),
    ]);
    let status = prop_oneof![
        2 => Just(None),
        1 => Just(Some(json!({}))),
        1 => Just(Some(json!({"conditions": conditions[0]}))),
        6 => status.prop_map(Some),
    ];
    (spec, status).prop_map(|(spec, status)| halves(spec, status))
}

fn halves(spec: Json, status: Option<Json>) -> Json {
    let mut object = Map::from_iter([("spec".to_owned(), spec)]);
    object.extend(status.map(|status| ("status".to_owned(), status)));
    Json::Object(object)
}

pub fn node() -> impl Strategy<Value = Json> {
    let marker = json!({"term": 2, "attempt": 7, "shadow_uid": "u", "tainted": true}).to_string();
    let nonsense = "{\"attempt\": 7".to_owned();
    let evicted = ["apps/v1/Deployment/shop/cart", "x/v1/A&B <c>/shop/\u{2028}"]
        .map(|owner| (owner.to_owned(), 3));
    let drains = Marker {
        attempt: 1,
        evicted_owners: evicted.into_iter().collect(),
        ..Marker::default()
    };
    let words = [
        Marker::default().render(),
        drains.render(),
        marker,
        nonsense,
    ]
    .map(|text| json!(text));
    let labels = object(vec![
        (
            names::EXCLUDE_FROM_LB_LABEL,
            some_of(&texts(&["true", "", "somebody"])),
        ),
        (
            names::UPDATER_INTERFACE_LABEL,
            some_of(&texts(&[names::UPDATER_INTERFACE_VERSION, "none", ""])),
        ),
        ("example.com/label", some_of(&texts(&["a", "b"]))),
    ]);
    let annotations = object(vec![
        (names::MARKER_ANNOTATION, some_of(&words)),
        (
            names::DO_NOT_DISRUPT_ANNOTATION,
            some_of(&texts(&["true", "1h"])),
        ),
        (
            names::SCALE_DOWN_DISABLED_ANNOTATION,
            some_of(&texts(&["true", "false"])),
        ),
        ("example.com/annotation", some_of(&texts(&["a", ""]))),
    ]);
    let foreign = json!({"key": "example.com/taint", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    let other = json!({"key": "example.com/taint", "effect": "NoSchedule"});
    let ours = json!({"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"});
    let theirs = json!({"key": names::UPDATING_TAINT, "value": "by-hand", "effect": "NoExecute"});
    let taints = subsequence(vec![foreign, other, ours, theirs], 0..=3)
        .prop_shuffle()
        .prop_map(Json::Array);
    let spec = object(vec![
        ("unschedulable", weighted(0.5, Just(json!(true))).boxed()),
        ("taints", weighted(0.7, taints).boxed()),
    ]);
    let metadata = object(vec![
        ("labels", weighted(0.8, labels).boxed()),
        ("annotations", weighted(0.8, annotations).boxed()),
    ]);
    (metadata, spec).prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec}))
}

pub fn fleet() -> impl Strategy<Value = Json> {
    let slot = object(vec![
        ("uid", select(texts(&["u1", "u2"])).prop_map(Some).boxed()),
        ("attempt", select(numbers()).prop_map(Some).boxed()),
        ("counted", some_of(&[json!(true)])),
    ]);
    let slots = btree_map(select(SLOTS.map(str::to_owned).to_vec()), slot, 0..3)
        .prop_map(|slots| json!(slots));
    let failure = json!({"node": "a", "at": TIMES[0], "reason": "FellBack"});
    let record = (
        subsequence(vec!["1.20.0", "1.20.1", "1.20.2"], 0..3),
        object(vec![
            ("reportedAt", or_null(&texts(&TIMES))),
            ("failures", some_of(&[json!([]), json!([failure])])),
            ("succeeded", some_of(&numbers())),
            ("haltedAt", or_null(&texts(&TIMES))),
        ]),
    );
    let versions = record.prop_map(|(versions, record)| {
        let of = |version: &str| {
            let mut record = record.clone();
            (record["version"], record["variant"]) = (json!(version), json!("aws"));
            record
        };
        versions.into_iter().map(of).collect::<Json>()
    });
    let status = object(vec![
        ("term", some_of(&numbers())),
        ("slots", weighted(0.7, slots).boxed()),
        ("versions", weighted(0.7, versions).boxed()),
        (
            "donePools",
            some_of(&[
                json!([]),
                json!([{"pool": "canary", "version": "1.20.0", "since": TIMES[0]}]),
            ]),
        ),
        ("unavailableLimit", some_of(&numbers())),
        ("lastFinished", or_null(&texts(&TIMES))),
    ]);
    weighted(0.8, status).prop_map(|status| halves(json!({"paused": false}), status))
}
