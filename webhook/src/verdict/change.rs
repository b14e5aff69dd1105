//! The changes of a request. Values are compared, not bytes: an absent status is the same as an empty one, and a field that is
//! null is the same as an absent field.

use super::{ReviewedShadow, ShadowRequest};
use brupop_api::item::Unreadable;
use brupop_api::printable::{printable, printable_json};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Most bytes of a diff that are handed on to the audit log.
const DIFF_MAX: usize = 2048;
/// Most values, with those inside of other values, that are compared for a diff. A diff has an operation for each value that
/// differs, of some hundred bytes.
const COMPARED_MAX: usize = 10_000;
/// Most changed fields that are named.
const NAMED_MAX: usize = 16;
/// Longest name of a field, in bytes. The longest of a shadow has half as many.
const NAME_MAX: usize = 60;

static NOTHING: LazyLock<ReviewedShadow> = LazyLock::new(ReviewedShadow::default);

/// A request's old and new object, and the fields in which they differ. An absent object counts as an empty one.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// Names of what differs: `metadata`, `spec.<field>`, `status.<field>` or `<field>`; in order.
    pub fields: Vec<String>,
    pub(super) old: &'a ReviewedShadow,
    pub(super) new: &'a ReviewedShadow,
}

impl<'a> Change<'a> {
    /// Returns what this request changes. In a creation all fields of the new object are changes, in a deletion all of the old
    /// one.
    pub fn of(request: &'a ShadowRequest) -> Self {
        let old = request.old_object.as_ref().unwrap_or(&NOTHING);
        let new = request.object.as_ref().unwrap_or(&NOTHING);
        let replaced = request.old_object.is_some() == request.object.is_some();
        let mut fields = Vec::new();
        if !replaced || old.metadata != new.metadata || old.types != new.types {
            fields.push("metadata".to_owned());
        }
        fields.extend(differing(&old.spec, &new.spec).map(|field| format!("spec.{field}")));
        fields.extend(differing(&old.status, &new.status).map(|field| format!("status.{field}")));
        fields.extend(differing(&old.rest, &new.rest).cloned());
        Self { fields, old, new }
    }

    /// The changed fields in one printable line of limited length, for logs and the audit annotation.
    pub fn summary(&self) -> String {
        let named = self
            .fields
            .iter()
            .take(NAMED_MAX)
            .map(|field| printable(field, NAME_MAX));
        let more = self.fields.len().saturating_sub(NAMED_MAX);
        named
            .chain((more > 0).then(|| format!("and {more} more").into()))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// The change of spec and status as a JSON patch, in printable text. If it is too long for an audit log, its beginning and its size; if it
    /// would take too much memory, the number of values to compare.
    pub fn diff(&self) -> String {
        let sides = [
            (&self.old.spec, &self.new.spec),
            (&self.new.spec, &self.old.spec),
            (&self.old.status, &self.new.status),
            (&self.new.status, &self.old.status),
        ];
        let values: usize = sides
            .iter()
            .flat_map(|(fields, other)| unlike(fields, other))
            .map(|(_, value)| values(value))
            .sum();
        if values > COMPARED_MAX {
            return format!("(a change of {values} values is not shown)");
        }
        let half = |fields: &Map<_, _>, other: &Map<_, _>| -> Map<_, _> {
            unlike(fields, other)
                .map(|(field, value)| (field.clone(), value.clone()))
                .collect()
        };
        let halves = |object: &ReviewedShadow, other: &ReviewedShadow| {
            serde_json::json!({
                "spec": half(&object.spec, &other.spec),
                "status": half(&object.status, &other.status),
            })
        };
        let patch = json_patch::diff(&halves(self.old, self.new), &halves(self.new, self.old));
        match serde_json::to_string(&patch) {
            Ok(text) => {
                let shown =
                    printable_json(&text[..text.floor_char_boundary(DIFF_MAX)]).into_owned();
                if text.len() <= DIFF_MAX && shown.len() <= DIFF_MAX {
                    return shown;
                }
                let shown = &shown[..shown.floor_char_boundary(DIFF_MAX)];
                format!(
                    "{shown}… ({} operations in {} bytes)",
                    patch.0.len(),
                    text.len()
                )
            }
            Err(error) => Unreadable::from(&error).to_string(),
        }
    }
}

/// Fields that differ, in order of their names.
fn differing<'a>(
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let changed = old
        .iter()
        .filter(|(field, value)| new.get(*field) != Some(*value))
        .map(|(field, _)| field);
    let added = new.keys().filter(|field| !old.contains_key(*field));
    let mut fields: Vec<_> = changed.chain(added).collect();
    fields.sort_unstable();
    fields.into_iter()
}

/// The fields that `other` lacks, or has with another value.
fn unlike<'a>(
    fields: &'a Map<String, Value>,
    other: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    fields
        .iter()
        .filter(|(field, value)| other.get(*field) != Some(*value))
}

/// Returns how many values this is, with all that are inside of it. The parser limits how deep they lie.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn diff(old: &Value, new: &Value) -> String {
        let object = |spec: &Value| serde_json::from_value(json!({"spec": spec})).unwrap();
        let (old, new): (ReviewedShadow, ReviewedShadow) = (object(old), object(new));
        Change {
            fields: vec![],
            old: &old,
            new: &new,
        }
        .diff()
    }

    #[test]
    fn a_diff_shows_a_bounded_difference() {
        let list = |length: usize| json!({"a": vec![0; length], "same": vec![0; 20_000]});
        assert_eq!(
            diff(&list(1), &list(2)),
            r#"[{"op":"add","path":"/spec/a/1","value":0}]"#
        );
        let long = diff(&list(0), &list(5_000));
        assert!(
            long.ends_with("bytes)") && long.len() < 2 * DIFF_MAX,
            "{long}"
        );
        let hostile = diff(&json!({}), &json!({"a": "\u{1b}\n\u{202e}\u{7f}\u{e0041}"}));
        assert_eq!(
            hostile,
            r#"[{"op":"add","path":"/spec/a","value":"\u001b\n\u202e\u007f\udb40\udc41"}]"#
        );
        let longer = diff(&json!({}), &json!({"a": "\u{7f}".repeat(1000)}));
        assert!(
            longer.ends_with("(1 operations in 1042 bytes)") && longer.len() < 2 * DIFF_MAX,
            "{longer}"
        );
        let most = diff(&json!({"a": vec![0; 9_998]}), &json!({"a": []}));
        assert!(
            most.starts_with('['),
            "as many values as are compared are not too many: {most}"
        );
        assert_eq!(
            diff(&list(0), &list(10_000)),
            "(a change of 10002 values is not shown)"
        );
        assert_eq!(
            diff(&json!({"a": {"b": vec![1; 9_999]}}), &json!({})),
            "(a change of 10001 values is not shown)"
        );
    }
}
