//! Objects that only this program reads: of each what it shows.

use std::collections::BTreeMap;

use brupop_api::item::{Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::{Item, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

/// What is shown of an Event. Kubernetes serves those of `events.k8s.io/v1` as `v1`, too, and gives more people the right to
/// read them so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub kind: String,
    pub name: String,
    pub at: Option<Timestamp>,
    pub type_: String,
    pub reason: String,
    pub message: String,
    /// How often it happened.
    pub count: u64,
}

impl Readable for Event {
    type Kind = k8s_openapi::api::core::v1::Event;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            involved_object: Object,
            #[serde(default, rename = "type")]
            type_: String,
            #[serde(default)]
            reason: String,
            #[serde(default)]
            message: String,
            #[serde(default)]
            count: Option<u64>,
            #[serde(default, deserialize_with = "null_as_default")]
            series: Series,
            #[serde(default, deserialize_with = "lenient_time")]
            event_time: Option<Timestamp>,
            #[serde(default, deserialize_with = "lenient_time")]
            last_timestamp: Option<Timestamp>,
            #[serde(default, deserialize_with = "lenient_time")]
            first_timestamp: Option<Timestamp>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object {
            kind: String,
            name: String,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Series {
            count: Option<u64>,
            #[serde(deserialize_with = "lenient_time")]
            last_observed_time: Option<Timestamp>,
        }

        let shape: Shape = serde_json::from_str(json)?;
        let Shape {
            involved_object,
            series,
            type_,
            reason,
            message,
            ..
        } = shape;
        let times = [
            series.last_observed_time,
            shape.last_timestamp,
            shape.event_time,
            shape.first_timestamp,
        ];
        Ok(Self {
            kind: involved_object.kind,
            name: involved_object.name,
            at: times.into_iter().flatten().next(),
            type_,
            reason,
            message,
            count: series.count.or(shape.count).unwrap_or(1).max(1),
        })
    }
}

/// What is looked at of a pod before a command is run in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReconcilerPod {
    /// Has it the account and the label of a reconciler?
    pub is_one: bool,
}

impl Readable for ReconcilerPod {
    type Kind = Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: Labelled,
            #[serde(default)]
            spec: Spec,
        }

        #[derive(Deserialize)]
        struct Labelled {
            #[serde(default, deserialize_with = "null_as_default")]
            labels: BTreeMap<String, String>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            service_account_name: String,
        }

        let Shape {
            metadata: Labelled { labels },
            spec,
        } = serde_json::from_str(json)?;
        let component = labels.get(names::COMPONENT_LABEL).map(String::as_str);
        let has_account = spec
            .service_account_name
            .contains(names::RECONCILER_ACCOUNT);
        Ok(Self {
            is_one: component == Some("reconciler") && has_account,
        })
    }
}

/// Those that can be read.
pub(crate) fn readable<T>(items: Vec<Item<T>>) -> Vec<T> {
    items
        .into_iter()
        .filter_map(|item| item.body.ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_read_in_both_of_its_shapes() {
        let about = json!({"kind": "Node", "name": "node-0"});
        let new = json!({"involvedObject": about, "type": "Normal", "reason": "OptedIn", "message": "m",
            "eventTime": "2026-11-21T04:00:00.000000Z", "lastTimestamp": null, "series": null});
        let read = Event::read(&new.to_string()).unwrap();
        assert_eq!(
            (read.count, read.at),
            (1, "2026-11-21T04:00:00Z".parse().ok())
        );
        let old = json!({"involvedObject": about, "count": 3, "firstTimestamp": "2026-11-21T03:00:00Z",
            "lastTimestamp": "2026-11-21T05:00:00Z"});
        let read = Event::read(&old.to_string()).unwrap();
        assert_eq!(
            (read.count, read.at),
            (3, "2026-11-21T05:00:00Z".parse().ok())
        );
        let again = json!({"involvedObject": about, "eventTime": "2026-11-21T04:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2026-11-21T06:00:00.000000Z"}});
        let read = Event::read(&again.to_string()).unwrap();
        assert_eq!(
            (read.count, read.at),
            (7, "2026-11-21T06:00:00Z".parse().ok())
        );
    }

    #[test]
    fn a_reconciler_has_its_account_and_its_label() {
        let pod = |component: &str, account: &str| {
            json!({"metadata": {"labels": {names::COMPONENT_LABEL: component}},
                "spec": {"serviceAccountName": account}})
        };
        for (pod, is_one) in [
            (pod("reconciler", "brupop-reconciler"), true),
            (pod("reconciler", "team-brupop-reconciler-2"), true),
            (pod("reconciler", "default"), false),
            (pod("webhook", "brupop-reconciler"), false),
            (
                json!({"metadata": {"labels": null}, "spec": {"serviceAccountName": "brupop-reconciler"}}),
                false,
            ),
            (json!({"metadata": {}}), false),
        ] {
            assert_eq!(
                ReconcilerPod::read(&pod.to_string()).unwrap(),
                ReconcilerPod { is_one },
                "{pod}"
            );
        }
    }
}
