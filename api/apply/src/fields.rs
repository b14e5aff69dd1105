//! [`Fields`] of the objects that ship.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::{BottlerocketFleet, BottlerocketShadow, Field, Marker, State, Value, names};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Fields;

fn text(text: Option<&String>) -> Value<'_> {
    Value::text_or_absent(text.map(String::as_str))
}

fn generation(metadata: &ObjectMeta) -> Value<'static> {
    Value::number_or_absent(metadata.generation.and_then(|generation| generation.try_into().ok()))
}

fn to_text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.to_string()),
        _ => None,
    }
}

fn to_number(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn to_state(value: &Value<'_>) -> Option<State> {
    match value {
        Value::State(state) => Some(*state),
        _ => None,
    }
}

impl Fields for BottlerocketShadow {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        let status = self.status.as_ref();
        Some(match field {
            Field::Uid => text(self.metadata.uid.as_ref()),
            Field::Generation => generation(&self.metadata),
            Field::SpecState => Value::State(self.spec.state),
            Field::SpecTransitionTimestamp => text(self.spec.state_transition_timestamp.as_ref()),
            Field::SpecVersion => text(self.spec.version.as_ref()),
            Field::SpecAttempt => Value::number_or_absent(self.spec.attempt),
            Field::SpecLeaderTerm => Value::number_or_absent(self.spec.leader_term),
            Field::SpecBaselineBootId => text(self.spec.baseline_boot_id.as_ref()),
            Field::SpecRebootFromBootId => text(self.spec.reboot_from_boot_id.as_ref()),
            Field::SpecFailures => self.spec.failures.clone().map_or(Value::Absent, Value::Failures),
            Field::CurrentVersion => text(status.and_then(|status| status.current_version.as_ref())),
            Field::TargetVersion => text(status.and_then(|status| status.target_version.as_ref())),
            Field::CurrentState => Value::state_or_absent(status.and_then(|status| status.current_state)),
            Field::CrashCount => Value::number_or_absent(status.and_then(|status| status.crash_count)),
            Field::FailureTimestamp => {
                text(status.and_then(|status| status.state_transition_failure_timestamp.as_ref()))
            }
            Field::StatusAttempt => Value::number_or_absent(status.and_then(|status| status.attempt)),
            Field::StatusBootId => text(status.and_then(|status| status.boot_id.as_ref())),
            Field::StatusStaged => {
                status.and_then(|status| status.staged.clone()).map_or(Value::Absent, Value::Staged)
            }
            Field::StatusRebootRequested => text(status.and_then(|status| status.reboot_requested.as_ref())),
            Field::StatusProblem => Value::problem_or_absent(status.and_then(|status| status.problem)),
            Field::StatusProblemSince => text(status.and_then(|status| status.problem_since.as_ref())),
            Field::StatusMessage => text(status.and_then(|status| status.message.as_ref())),
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        let spec = &mut self.spec;
        match field {
            Field::SpecState => spec.state = to_state(value).unwrap_or(spec.state),
            Field::SpecTransitionTimestamp => spec.state_transition_timestamp = to_text(value),
            Field::SpecVersion => spec.version = to_text(value),
            Field::SpecAttempt => spec.attempt = to_number(value),
            Field::SpecLeaderTerm => spec.leader_term = to_number(value),
            Field::SpecBaselineBootId => spec.baseline_boot_id = to_text(value),
            Field::SpecRebootFromBootId => spec.reboot_from_boot_id = to_text(value),
            Field::SpecFailures => {
                spec.failures =
                    if let Value::Failures(failures) = value { Some(failures.clone()) } else { None };
            }
            _ => {
                // Taking something away makes no status.
                if *value == Value::Absent && self.status.is_none() {
                    return;
                }
                let status = self.status.get_or_insert_default();
                match field {
                    Field::CurrentVersion => status.current_version = to_text(value),
                    Field::TargetVersion => status.target_version = to_text(value),
                    Field::CurrentState => status.current_state = to_state(value),
                    Field::CrashCount => status.crash_count = to_number(value),
                    Field::FailureTimestamp => status.state_transition_failure_timestamp = to_text(value),
                    Field::StatusAttempt => status.attempt = to_number(value),
                    Field::StatusBootId => status.boot_id = to_text(value),
                    Field::StatusStaged => {
                        status.staged =
                            if let Value::Staged(staged) = value { Some(staged.clone()) } else { None };
                    }
                    Field::StatusRebootRequested => status.reboot_requested = to_text(value),
                    Field::StatusProblem => {
                        status.problem =
                            if let Value::Problem(problem) = value { Some(*problem) } else { None };
                    }
                    Field::StatusProblemSince => status.problem_since = to_text(value),
                    Field::StatusMessage => status.message = to_text(value),
                    _ => {}
                }
            }
        }
    }
}

/// Sets a label or an annotation.
fn set_entry(entries: &mut Option<BTreeMap<String, String>>, key: &str, value: Option<String>) {
    let all = entries.get_or_insert_default();
    match value {
        Some(value) => all.insert(key.to_owned(), value),
        None => all.remove(key),
    };
    // The API server keeps no empty maps.
    entries.take_if(|all| all.is_empty());
}

fn has_entry(entries: Option<&BTreeMap<String, String>>, key: &str) -> Value<'static> {
    Value::flag(entries.is_some_and(|entries| entries.contains_key(key)))
}

impl Fields for Node {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        let spec = self.spec.as_ref();
        Some(match field {
            Field::Uid => text(self.metadata.uid.as_ref()),
            Field::Unschedulable => Value::flag(spec.and_then(|spec| spec.unschedulable).unwrap_or(false)),
            Field::UpdatingTaint => Value::flag(
                spec.and_then(|spec| spec.taints.as_ref())
                    .is_some_and(|taints| taints.iter().any(|taint| taint.key == names::UPDATING_TAINT)),
            ),
            Field::ExcludedFromLoadBalancers => {
                has_entry(self.metadata.labels.as_ref(), names::EXCLUDE_FROM_LB_LABEL)
            }
            Field::DoNotDisrupt => {
                has_entry(self.metadata.annotations.as_ref(), names::DO_NOT_DISRUPT_ANNOTATION)
            }
            Field::ScaleDownDisabled => {
                has_entry(self.metadata.annotations.as_ref(), names::SCALE_DOWN_DISABLED_ANNOTATION)
            }
            Field::UpdaterInterface => text(
                self.metadata.labels.as_ref().and_then(|labels| labels.get(names::UPDATER_INTERFACE_LABEL)),
            ),
            Field::OsImage => {
                let info = self.status.as_ref().and_then(|status| status.node_info.as_ref());
                text(info.map(|info| &info.os_image))
            }
            Field::Marker => self
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(names::MARKER_ANNOTATION))
                .map_or(Value::Absent, |annotation| match Marker::parse(annotation) {
                    Ok(marker) => Value::Marker(Cow::Owned(marker)),
                    // Something is there, and it is no marker.
                    Err(_) => Value::text(annotation),
                }),
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        let spec = self.spec.get_or_insert_default();
        match field {
            Field::Unschedulable => spec.unschedulable = (*value == Value::Set).then_some(true),
            Field::UpdatingTaint => {
                let taints = spec.taints.get_or_insert_default();
                taints.retain(|taint| taint.key != names::UPDATING_TAINT);
                if *value == Value::Set {
                    taints.push(Taint {
                        key: names::UPDATING_TAINT.into(),
                        effect: names::UPDATING_TAINT_EFFECT.into(),
                        ..Taint::default()
                    });
                }
                spec.taints.take_if(|taints| taints.is_empty());
            }
            Field::ExcludedFromLoadBalancers => {
                let words = (*value == Value::Set).then(|| names::EXCLUDE_FROM_LB_VALUE.to_owned());
                set_entry(&mut self.metadata.labels, names::EXCLUDE_FROM_LB_LABEL, words);
            }
            Field::UpdaterInterface => {
                set_entry(&mut self.metadata.labels, names::UPDATER_INTERFACE_LABEL, to_text(value));
            }
            Field::DoNotDisrupt => {
                let words = (*value == Value::Set).then(|| names::KEPT_FROM_AUTOSCALERS.to_owned());
                set_entry(&mut self.metadata.annotations, names::DO_NOT_DISRUPT_ANNOTATION, words);
            }
            Field::ScaleDownDisabled => {
                let words = (*value == Value::Set).then(|| names::KEPT_FROM_AUTOSCALERS.to_owned());
                set_entry(&mut self.metadata.annotations, names::SCALE_DOWN_DISABLED_ANNOTATION, words);
            }
            Field::Marker => {
                let words = if let Value::Marker(marker) = value { Some(marker.render()) } else { None };
                set_entry(&mut self.metadata.annotations, names::MARKER_ANNOTATION, words);
            }
            _ => {}
        }
    }
}

impl Fields for BottlerocketFleet {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        let status = self.status.as_ref();
        Some(match field {
            Field::Uid => text(self.metadata.uid.as_ref()),
            Field::Generation => generation(&self.metadata),
            Field::Term => Value::number_or_absent(status.and_then(|status| status.term)),
            Field::Slots => {
                Value::Slots(status.map_or_else(Cow::default, |status| Cow::Borrowed(&status.slots)))
            }
            Field::Slot(shadow) => {
                let slot = status.and_then(|status| status.slots.get(shadow));
                slot.cloned().map_or(Value::Absent, Value::Slot)
            }
            Field::VersionRecord(version) => {
                let record = status.and_then(|status| status.versions.get(version));
                record.cloned().map_or(Value::Absent, Value::VersionRecord)
            }
            Field::PoolRecord { pool, version } => {
                let record = status.and_then(|status| status.pool_versions.get(&format!("{pool}/{version}")));
                record.cloned().map_or(Value::Absent, Value::VersionRecord)
            }
            Field::Seen(version) => text(status.and_then(|status| status.seen.get(version))),
            Field::LastFinished => text(status.and_then(|status| status.last_finished.as_ref())),
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        if *value == Value::Absent && self.status.is_none() {
            return;
        }
        let status = self.status.get_or_insert_default();
        match (field, value) {
            (Field::Term, value) => status.term = to_number(value),
            (Field::Slot(shadow), Value::Slot(slot)) => {
                status.slots.insert(shadow.to_owned(), slot.clone());
            }
            (Field::Slot(shadow), _) => {
                status.slots.remove(shadow);
            }
            (Field::VersionRecord(version), Value::VersionRecord(record)) => {
                status.versions.insert(version.to_owned(), record.clone());
            }
            (Field::VersionRecord(version), _) => {
                status.versions.remove(version);
            }
            (Field::PoolRecord { pool, version }, Value::VersionRecord(record)) => {
                status.pool_versions.insert(format!("{pool}/{version}"), record.clone());
            }
            (Field::PoolRecord { pool, version }, _) => {
                status.pool_versions.remove(&format!("{pool}/{version}"));
            }
            (Field::Seen(version), value) => match to_text(value) {
                Some(time) => drop(status.seen.insert(version.to_owned(), time)),
                None => drop(status.seen.remove(version)),
            },
            (Field::LastFinished, value) => status.last_finished = to_text(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn our_taint_comes_beside_others_and_goes_alone() {
        let theirs = json!({"key": "theirs", "effect": "NoExecute"});
        let mut node: Node =
            serde_json::from_value(json!({"metadata": {}, "spec": {"taints": [theirs]}})).unwrap();
        let ours = json!({"key": "brupop.bottlerocket.aws/updating", "effect": "PreferNoSchedule"});
        for (value, expected) in [
            (Value::Set, json!([theirs, ours])),
            (Value::Set, json!([theirs, ours])),
            (Value::Absent, json!([theirs])),
        ] {
            node.set(Field::UpdatingTaint, &value);
            assert_eq!(json!(node.spec.as_ref().unwrap().taints), expected);
        }
    }
}
