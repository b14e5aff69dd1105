//! Random objects as the API server may hold them, and random writes to them.

use brupop_api::fleet::{NodeFailure, Slot, VersionRecord};
use brupop_api::names;
use brupop_api::shadow::{DrainObstacle, Failures, ObstacleKind, Staged};
use brupop_api::{Field, Marker, Problem, State, Value};
use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;

/// Of a shadow, but for those that are its agent's.
const SHADOW_FIELDS: [Field<'static>; 10] = [
    Field::Uid,
    Field::Generation,
    Field::SpecState,
    Field::SpecTransitionTimestamp,
    Field::SpecVersion,
    Field::SpecAttempt,
    Field::SpecLeaderTerm,
    Field::SpecBaselineBootId,
    Field::SpecRebootFromBootId,
    Field::SpecFailures,
];
pub const NODE_FIELDS: [Field<'static>; 9] = [
    Field::Uid,
    Field::Unschedulable,
    Field::ExcludedFromLoadBalancers,
    Field::UpdatingTaint,
    Field::DoNotDisrupt,
    Field::ScaleDownDisabled,
    Field::Marker,
    Field::UpdaterInterface,
    Field::OsImage,
];
pub const FLEET_FIELDS: [Field<'static>; 13] = [
    Field::Uid,
    Field::Generation,
    Field::Term,
    Field::Slots,
    Field::Slot("brs-a"),
    Field::Slot("brs-b.example~x/y"),
    Field::VersionRecord("1.20.0"),
    Field::VersionRecord("1.20.1"),
    Field::VersionRecord("1.20.2"),
    Field::PoolRecord { pool: "web", version: "1.20.0" },
    Field::Seen("1.20.0"),
    Field::Seen("1.20.1"),
    Field::LastFinished,
];

const VERSIONS: [&str; 3] = ["1.19.4", "1.20.0", "1.20.1-rc.1+aws"];
const BOOTS: [&str; 2] = ["5f0c9b1e-0000-4000-8000-000000000001", "5f0c9b1e-0000-4000-8000-000000000002"];
const TIMES: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2026-01-01T02:00:00+02:00"];
const SLOTS: [&str; 3] = ["brs-a", "brs-b.example~x/y", "brs-c"];

/// Which part of which object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ShadowSpec,
    ShadowStatus,
    Node,
    Fleet,
}

/// Where the value of a test comes from.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "few are made, one at a time")]
pub enum Expected {
    /// From the object as it was read, as decisions do.
    AsRead,
    /// From the object as it is now: true, by luck.
    AsStored,
    /// From nowhere.
    Guess(Value<'static>),
}

/// One write: against an object as it was read, and as it is by now.
#[derive(Clone, Debug)]
pub struct Case {
    pub read: Json,
    /// None: as it was read.
    pub stored: Option<Json>,
    pub tests: Vec<(Field<'static>, Expected)>,
    pub sets: Vec<(Field<'static>, Value<'static>)>,
    /// The patch is made of the typed object (as an agent does), not of the very JSON that was read.
    pub typed: bool,
}

impl Kind {
    pub fn fields(self) -> Vec<Field<'static>> {
        match self {
            Self::ShadowSpec | Self::ShadowStatus => [&SHADOW_FIELDS[..], &Field::OF_AGENTS].concat(),
            Self::Node => NODE_FIELDS.into(),
            Self::Fleet => FLEET_FIELDS.into(),
        }
    }

    /// The fields that a write of this kind may set.
    pub fn settable(self) -> Vec<Field<'static>> {
        let half = match self {
            Self::ShadowSpec => "/spec/",
            Self::ShadowStatus | Self::Fleet => "/status/",
            Self::Node => "/",
        };
        let only_tested = [Field::Uid, Field::Generation, Field::Slots, Field::OsImage];
        let fields = self.fields().into_iter();
        fields.filter(|field| field.pointer().starts_with(half) && !only_tested.contains(field)).collect()
    }
}

/// A write of this kind with its object.
pub fn case(kind: Kind) -> impl Strategy<Value = Case> {
    let object = || match kind {
        Kind::ShadowSpec | Kind::ShadowStatus => shadow().boxed(),
        Kind::Node => node().boxed(),
        Kind::Fleet => fleet().boxed(),
    };
    let newer = weighted(0.4, (object(), any::<u64>(), any::<u64>()));
    let (fields, settable) = (kind.fields(), kind.settable());
    let tests = subsequence(fields, 0..=5).prop_flat_map(|fields| {
        let expected = |field| {
            let guess = value(field).prop_map(Expected::Guess);
            (Just(field), prop_oneof![6 => Just(Expected::AsRead), 1 => Just(Expected::AsStored), 1 => guess])
        };
        fields.into_iter().map(expected).collect::<Vec<_>>()
    });
    let most = settable.len().min(5);
    let sets = subsequence(settable, 0..=most).prop_shuffle().prop_flat_map(|fields| {
        fields.into_iter().map(|field| (Just(field), value_to_set(field))).collect::<Vec<_>>()
    });
    let typed =
        any::<bool>().prop_map(move |typed| typed && matches!(kind, Kind::ShadowSpec | Kind::ShadowStatus));
    (object(), newer, tests, sets, typed).prop_map(|(read, newer, tests, sets, typed)| {
        let stored = newer.map(|(other, a, b)| {
            // A quarter of the leaves have changed.
            let mut bits = a & b;
            let mut stored = mixed(&read, &other, &mut bits);
            never_less(&read, &mut stored);
            stored
        });
        Case { read, stored, tests, sets, typed }
    })
}

/// One object out of two, leaf by leaf.
fn mixed(one: &Json, other: &Json, bits: &mut u64) -> Json {
    if let (Some(one), Some(other)) = (one.as_object(), other.as_object()) {
        let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        let both = keys.into_iter().filter_map(|key| {
            let member = match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => Some(mixed(one, other, bits)),
                (one, other) => if flip(bits) { other } else { one }.cloned(),
            };
            Some((key.clone(), member?))
        });
        return Json::Object(both.collect());
    }
    if flip(bits) { other } else { one }.clone()
}

fn flip(bits: &mut u64) -> bool {
    *bits = bits.rotate_right(1);
    *bits & 1 == 1
}

/// The schema refuses what falls or goes away, so it cannot have happened.
fn never_less(before: &Json, after: &mut Json) {
    for (half, field) in [("spec", "attempt"), ("spec", "leader_term"), ("status", "term")] {
        let Some(old) = before[half][field].as_u64() else { continue };
        // The API server puts a status without a term in the place of one that is removed.
        if half == "status" && !after[half].is_object() {
            after[half] = json!({});
        }
        if after[half].is_object() && after[half][field].as_u64().is_none_or(|new| new < old) {
            after[half][field] = json!(old);
        }
    }
}

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
    let members: Vec<_> = members.into_iter().map(|(key, value)| (Just(key), value)).collect();
    members.prop_map(|members| {
        let present = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Json::Object(present.collect())
    })
}

fn numbers() -> Vec<Json> {
    (0..4).map(|number| json!(number)).collect()
}

fn shadow() -> impl Strategy<Value = Json> {
    let (versions, boots, times) = (texts(&VERSIONS), texts(&BOOTS), texts(&TIMES));
    let failures = [
        json!({"count": 1, "attempt": 2, "at": TIMES[0], "reason": "FellBack"}),
        json!({"count": 2, "at": TIMES[1], "reason": "Aborted"}),
        json!({"count": 2, "attempt": 3, "at": TIMES[1], "reason": "DrainTimedOut",
            "obstacle": {"kind": "Budget", "of": "shop/cart"}}),
    ];
    let spec = object(vec![
        ("state", select(texts(&State::ALL.map(State::as_str)[..4])).prop_map(Some).boxed()),
        ("state_transition_timestamp", or_null(&times)),
        ("version", or_null(&versions)),
        ("attempt", some_of(&numbers())),
        ("leader_term", some_of(&numbers())),
        ("baseline_boot_id", some_of(&boots)),
        ("reboot_from_boot_id", some_of(&boots)),
        ("failures", or_null(&failures)),
    ]);
    let condition = json!({"type": "Progressing", "status": "False", "reason": "NoUpdate", "message": "",
        "lastTransitionTime": TIMES[0]});
    let conditions = vec![json!([condition]), json!([])];
    let status = object(vec![
        ("current_version", some_of(&versions)),
        ("target_version", some_of(&versions)),
        ("current_state", some_of(&texts(&State::ALL.map(State::as_str)))),
        ("crash_count", some_of(&numbers())),
        ("state_transition_failure_timestamp", or_null(&times)),
        ("attempt", some_of(&numbers())),
        ("boot_id", some_of(&boots)),
        ("staged", or_null(&[json!({"version": VERSIONS[1], "at": "2026-01-01T00:00:00.1Z"})])),
        ("reboot_requested", some_of(&boots)),
        ("problem", some_of(&texts(&Problem::ALL.map(Problem::as_str)))),
        ("problem_since", or_null(&times)),
        ("message", some_of(&texts(&["", "~/\u{e9}\"", "looked for updates"]))),
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

fn node() -> impl Strategy<Value = Json> {
    let marker = json!({"term": 2, "attempt": 7, "shadow_uid": "u", "tainted": true}).to_string();
    let nonsense = "{\"attempt\": 7".to_owned();
    let words = [Marker::default().render(), marker, nonsense].map(|text| json!(text));
    let labels = object(vec![
        (names::EXCLUDE_FROM_LB_LABEL, some_of(&texts(&["true", "", "somebody"]))),
        (names::UPDATER_INTERFACE_LABEL, some_of(&texts(&[names::UPDATER_INTERFACE_VERSION, "none", ""]))),
        ("example.com/label", some_of(&texts(&["a", "b"]))),
    ]);
    let annotations = object(vec![
        (names::MARKER_ANNOTATION, some_of(&words)),
        (names::DO_NOT_DISRUPT_ANNOTATION, some_of(&texts(&["true", "1h"]))),
        (names::SCALE_DOWN_DISABLED_ANNOTATION, some_of(&texts(&["true", "false"]))),
        ("example.com/annotation", some_of(&texts(&["a", ""]))),
    ]);
    let foreign = json!({"key": "example.com/taint", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    let other = json!({"key": "example.com/taint", "effect": "NoSchedule"});
    let ours = json!({"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"});
    let theirs = json!({"key": names::UPDATING_TAINT, "value": "by-hand", "effect": "NoExecute"});
    let taints = weighted(0.7, subsequence(vec![foreign, other, ours, theirs], 0..=3).prop_shuffle());
    let spec = (weighted(0.5, Just(json!(true))), taints).prop_map(|(unschedulable, taints)| {
        let members = [("unschedulable", unschedulable), ("taints", taints.map(Json::Array))];
        Json::Object(members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
    });
    let metadata = (weighted(0.8, labels), weighted(0.8, annotations)).prop_map(|(labels, annotations)| {
        let members = [("labels", labels), ("annotations", annotations)];
        Json::Object(members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
    });
    (metadata, spec).prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec}))
}

fn fleet() -> impl Strategy<Value = Json> {
    let slot = (select(vec!["u1", "u2"]), 0_u64..3)
        .prop_map(|(uid, attempt)| json!({"uid": uid, "attempt": attempt}));
    let slots =
        btree_map(select(SLOTS.map(str::to_owned).to_vec()), slot, 0..3).prop_map(|slots| json!(slots));
    let record = object(vec![
        ("firstSeen", or_null(&texts(&TIMES))),
        ("failures", some_of(&[json!([]), json!([{"node": "a", "at": TIMES[0], "reason": "FellBack"}])])),
        ("succeeded", some_of(&numbers())),
        ("halted", or_null(&[json!({"at": TIMES[0], "reason": "too many failures"})])),
    ])
    .boxed();
    let version = select(vec!["1.20.0".to_owned(), "1.20.1".to_owned()]);
    let pools =
        btree_map(select(vec!["web/1.20.0".to_owned(), "db/1.20.0".to_owned()]), record.clone(), 0..2);
    let versions = btree_map(version, record, 0..3).prop_map(|versions| json!(versions));
    let status = object(vec![
        ("term", some_of(&numbers())),
        ("slots", weighted(0.7, slots).boxed()),
        ("versions", weighted(0.7, versions).boxed()),
        ("poolVersions", weighted(0.7, pools.prop_map(|pools| json!(pools))).boxed()),
        ("seen", some_of(&[json!({}), json!({"1.20.0": TIMES[0]})])),
        ("limit", some_of(&numbers())),
        ("lastFinished", or_null(&texts(&TIMES))),
    ]);
    weighted(0.8, status).prop_map(|status| halves(json!({"paused": false}), status))
}

fn text(texts: &'static [&'static str]) -> BoxedStrategy<Value<'static>> {
    select(texts).prop_map(Value::text).boxed()
}

fn value_to_set(field: Field<'static>) -> BoxedStrategy<Value<'static>> {
    // Without a state there is no spec.
    if field == Field::SpecState {
        return select(&State::ALL[..]).prop_map(Value::State).boxed();
    }
    prop_oneof![1 => Just(Value::Absent), 2 => value(field)].boxed()
}

/// A value that may stand in this field.
fn value(field: Field<'static>) -> BoxedStrategy<Value<'static>> {
    match field {
        Field::Uid => text(&["00000000-0000-4000-8000-000000000000"]),
        Field::Generation
        | Field::SpecAttempt
        | Field::SpecLeaderTerm
        | Field::CrashCount
        | Field::StatusAttempt
        | Field::Term => (0_u64..6).prop_map(Value::Number).boxed(),
        Field::SpecState | Field::CurrentState => select(&State::ALL[..]).prop_map(Value::State).boxed(),
        Field::SpecTransitionTimestamp
        | Field::FailureTimestamp
        | Field::StatusProblemSince
        | Field::LastFinished
        | Field::Seen(_) => text(&TIMES),
        Field::SpecVersion | Field::CurrentVersion | Field::TargetVersion => text(&VERSIONS),
        Field::SpecBaselineBootId
        | Field::SpecRebootFromBootId
        | Field::StatusBootId
        | Field::StatusRebootRequested => text(&BOOTS),
        Field::StatusProblem => select(&Problem::ALL[..]).prop_map(Value::Problem).boxed(),
        Field::StatusMessage => text(&["", "another thing"]),
        Field::UpdaterInterface => text(&[names::UPDATER_INTERFACE_VERSION, "none"]),
        Field::OsImage => text(&["Bottlerocket OS 1.19.4 (aws-k8s-1.29)"]),
        Field::SpecFailures => (0_u64..3, 0_u64..3, any::<bool>())
            .prop_map(|(count, attempt, noted)| {
                let (at, reason) = (TIMES[0].to_owned(), "DrainTimedOut".to_owned());
                let (kind, of) = (ObstacleKind::Budget, "shop/cart".to_owned());
                let obstacle = noted.then(|| DrainObstacle { kind, of, at: Some(at.clone()) });
                Value::Failures(Failures { count, attempt, at, reason, obstacle })
            })
            .boxed(),
        Field::StatusStaged => (select(&VERSIONS[..]), any::<bool>())
            .prop_map(|(version, prefetched)| {
                let at = TIMES[0].to_owned();
                Value::Staged(Staged { version: version.to_owned(), at, prefetched })
            })
            .boxed(),
        Field::Unschedulable
        | Field::ExcludedFromLoadBalancers
        | Field::UpdatingTaint
        | Field::DoNotDisrupt
        | Field::ScaleDownDisabled => any::<bool>().prop_map(Value::flag).boxed(),
        Field::Marker => (
            0_u64..3,
            any::<bool>(),
            vec(select(&["apps/v1/Deployment/shop/cart", "x/v1/A&B <c>/shop/\u{2028}"][..]), 0..2),
        )
            .prop_map(|(attempt, tainted, owners)| {
                let evicted_owners = owners.into_iter().map(str::to_owned).collect();
                Value::Marker(Cow::Owned(Marker { attempt, tainted, evicted_owners, ..Marker::default() }))
            })
            .boxed(),
        Field::Slot(_) => slot().prop_map(Value::Slot).boxed(),
        Field::Slots => btree_map(select(SLOTS.map(str::to_owned).to_vec()), slot(), 0..2)
            .prop_map(|slots| Value::Slots(Cow::Owned(slots)))
            .boxed(),
        Field::VersionRecord(_) | Field::PoolRecord { .. } => (0_u64..3, any::<bool>())
            .prop_map(|(succeeded, failed)| {
                let failure = || NodeFailure {
                    node: "a".into(),
                    at: TIMES[0].into(),
                    reason: "FellBack".into(),
                    variant: Some("aws-k8s-1.36".into()),
                };
                let failures = failed.then(failure).into_iter().collect();
                Value::VersionRecord(VersionRecord { succeeded, failures, ..VersionRecord::default() })
            })
            .boxed(),
    }
}

fn slot() -> impl Strategy<Value = Slot> {
    (select(vec!["u1", "u2"]), 0_u64..3, any::<bool>()).prop_map(|(uid, attempt, counted)| Slot {
        uid: uid.to_owned(),
        attempt,
        counted,
        ..Slot::default()
    })
}
