//! A row of the table, with some edits: what is allowed is the caller's own.

#![no_main]

use brupop_admission_cases::edit::{Edit, Place, Side, apply, telling_values};
use brupop_admission_cases::oracle::objection;
use brupop_admission_cases::{review, table};
use brupop_webhook::verdict::{Change, ShadowRequest, verdict};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use std::sync::LazyLock;

static REVIEWS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    table()
        .iter()
        .filter_map(review)
        .map(without_ballast)
        .collect()
});
static VALUES: LazyLock<Vec<Value>> = LazyLock::new(telling_values);

/// Names that a made-up object may have.
const NAMES: [&str; 8] = [
    "version",
    "at",
    "count",
    "uid",
    "name",
    "state",
    "authentication.kubernetes.io/node-name",
    "type",
];

const EDITS_MAX: usize = 8;

/// Of a field manager nothing counts but that it is there; and a review without them is changed twice as often.
fn without_ballast(mut review: Value) -> Value {
    for object in ["object", "oldObject"] {
        let managers = review["request"]
            .get_mut(object)
            .and_then(|object| object.pointer_mut("/metadata/managedFields"));
        for manager in managers.and_then(Value::as_array_mut).into_iter().flatten() {
            *manager = Value::Null;
        }
    }
    review
}

/// Two bytes choose the row; then come the edits. What is missing at the end counts as zeros.
fn edited(bytes: &[u8]) -> Result<Value> {
    let mut bytes = Unstructured::new(bytes);
    let mut review = any_of(&REVIEWS, &mut bytes)?.clone();
    for _ in 0..EDITS_MAX {
        if bytes.is_empty() {
            break;
        }
        let place = Place(bytes.arbitrary()?);
        let kind: u8 = bytes.arbitrary()?;
        let side = [Side::New, Side::Old, Side::Both][usize::from(kind / 8 % 3)];
        let edit = match kind % 8 {
            0 => Edit::Remove,
            1 => Edit::Undo,
            2 => Edit::AsIn(any_of(&REVIEWS, &mut bytes)?.clone()),
            3 => Edit::Set(any_json(&mut bytes, 3)?),
            _ => Edit::Set(any_of(&VALUES, &mut bytes)?.clone()),
        };
        apply(&mut review, place, side, &edit);
    }
    Ok(review)
}

fn any_of<'a>(values: &'a [Value], bytes: &mut Unstructured<'_>) -> Result<&'a Value> {
    Ok(&values[usize::from(bytes.arbitrary::<u16>()?) % values.len()])
}

fn any_json(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    let (kind, length) = (bytes.arbitrary::<u8>()? % 8, bytes.arbitrary::<u8>()? % 4);
    Ok(match kind {
        0 => Value::Null,
        1 => bytes.arbitrary::<bool>()?.into(),
        2 => bytes.arbitrary::<u64>()?.into(),
        3 => bytes.arbitrary::<i64>()?.into(),
        4 => bytes.arbitrary::<f64>()?.into(),
        6 if depth > 0 => (0..length)
            .map(|_| any_json(bytes, depth - 1))
            .collect::<Result<Vec<_>>>()?
            .into(),
        7 if depth > 0 => {
            let mut members = Map::new();
            for _ in 0..length {
                let name = NAMES[usize::from(bytes.arbitrary::<u8>()?) % NAMES.len()];
                members.insert(name.to_owned(), any_json(bytes, depth - 1)?);
            }
            members.into()
        }
        _ => bytes.arbitrary::<&str>()?.into(),
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(review) = edited(bytes) else { return };
    let Ok(request) = ShadowRequest::deserialize(&review["request"]) else {
        return;
    };
    if verdict(&request, &Change::of(&request)).outcome.is_ok() {
        assert_eq!(objection(&review), None, "this is allowed: {review}");
    }
});
