//! What would be foreign in a review if it were allowed: a second opinion, to hold the verdict against.
//!
//! It shares nothing with the verdict but the names of fields: it reads raw JSON, and spells out who may what by hand.
//! It takes the API server at its word on what belongs together, such as `request.name` and the object's name. It may
//! be milder than the verdict, for it judges the change only, never how well it is written.

mod agent;
mod answer;
mod reconciler;

pub use answer::flaw;

use serde_json::{Map, Value};

/// Says what is foreign in this review (`{"request": …}`), or nothing if all of it is the caller's own.
///
/// Anyone who is no service account of the object's namespace is none of our business: nothing is foreign then.
pub fn objection(review: &Value) -> Option<String> {
    let request = &review["request"];
    account(request)
        .and_then(|account| match account {
            Account::Elsewhere => Ok(()),
            Account::Agent => our_kind(request).and_then(|()| agent::objection(request)),
            Account::Reconciler => our_kind(request).and_then(|()| reconciler::objection(request)),
        })
        .err()
}

type Objection = Result<(), String>;

enum Account {
    Agent,
    Reconciler,
    Elsewhere,
}

/// Service accounts are `system:serviceaccount:<namespace>:<name>`; nothing but the namespace and the name counts.
fn account(request: &Value) -> Result<Account, String> {
    let namespace = text(&request["namespace"]);
    let user: Vec<&str> = text(&request["userInfo"]["username"]).split(':').collect();
    match user[..] {
        ["system", "serviceaccount", home, name] if home == namespace => {
            if name.contains("brupop-agent") {
                Ok(Account::Agent)
            } else if name.contains("brupop-reconciler") {
                Ok(Account::Reconciler)
            } else {
                Err(format!("{name} is neither agent nor reconciler"))
            }
        }
        ["system", "serviceaccount", home, _, _, ..] if home == namespace => {
            Err("no service account is named like this".to_owned())
        }
        _ => Ok(Account::Elsewhere),
    }
}

fn our_kind(request: &Value) -> Objection {
    let (kind, resource) = (&request["kind"], &request["resource"]);
    let ours = kind["group"] == "brupop.bottlerocket.aws"
        && kind["version"] == "v2"
        && kind["kind"] == "BottlerocketShadow"
        && resource["group"] == "brupop.bottlerocket.aws"
        && resource["version"] == "v2"
        && resource["resource"] == "bottlerocketshadows";
    hold(ours, || format!("{kind} is no shadow"))
}

fn hold(holds: bool, otherwise: impl FnOnce() -> String) -> Objection {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// No control character, and none of those by which text is broken into lines, turned around or hidden. Unicode has more of
/// these than are listed here.
fn seen(character: char) -> bool {
    let hidden = [
        '\u{ad}',
        '\u{61c}',
        '\u{180e}',
        '\u{2028}',
        '\u{2029}',
        '\u{feff}',
        '\u{e0001}',
    ];
    let ranges = [
        '\u{200b}'..='\u{200f}',
        '\u{202a}'..='\u{202e}',
        '\u{2060}'..='\u{2064}',
        '\u{2066}'..='\u{206f}',
    ];
    let tags = '\u{e0020}'..='\u{e007f}';
    !character.is_control()
        && !hidden.contains(&character)
        && !ranges.iter().any(|range| range.contains(&character))
        && !tags.contains(&character)
}

/// The one owner, if it is the Node of this name.
fn owner_node<'a>(object: &'a Value, node: &str) -> Option<&'a str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let [owner] = owners.as_slice() else {
        return None;
    };
    let is_it = owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == node;
    owner["uid"].as_str().filter(|uid| is_it && !uid.is_empty())
}

/// The object but for what the API server keeps itself, and for labels and annotations, which other people's admission adds;
/// and with nothing in it that says nothing: a member that is null is as good as absent, and so is an empty half.
fn settled(object: &Value) -> Value {
    let mut object = without_null(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for kept in [
            "managedFields",
            "resourceVersion",
            "generation",
            "labels",
            "annotations",
        ] {
            metadata.remove(kept);
        }
    }
    let empty = Value::from(Map::new());
    if let Some(members) = object.as_object_mut() {
        members.retain(|name, half| {
            !["metadata", "spec", "status"].contains(&name.as_str()) || *half != empty
        });
    }
    object
}

fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(name, member)| (name.clone(), without_null(member)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_null).collect(),
        other => other.clone(),
    }
}

/// Both objects are the same once `own` is taken away from `half` of both.
fn same_but_for(request: &Value, half: &str, own: &dyn Fn(&str) -> bool) -> Objection {
    let rest = |object: &Value| {
        let mut object = without_null(object);
        match object.get_mut(half) {
            Some(Value::Object(members)) => members.retain(|name, _| !own(name)),
            // What is no object has no members. It is the caller's if all of the half is.
            Some(other) if own("") => *other = Value::Null,
            _ => {}
        }
        settled(&object)
    };
    let (old, new) = (rest(&request["oldObject"]), rest(&request["object"]));
    hold(old == new, || {
        let differing = |half: &str| {
            if old[half] == new[half] {
                None
            } else {
                Some(half.to_owned())
            }
        };
        let named: Vec<_> = ["metadata", "spec", "status"]
            .into_iter()
            .filter_map(differing)
            .collect();
        format!(
            "more changes than the caller's own fields of {half} ({})",
            named.join(", ")
        )
    })
}
