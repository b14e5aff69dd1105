//! Events, as they are shown.

use brupop_api::crds::{MESSAGE_MAX, NAME_MAX, WORD_MAX};
use brupop_api::item::{Readable, Unreadable};
use brupop_api::names;
use comfy_table::Color;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde::Serialize;

use crate::page::Page;
use crate::table::{self, Cell};
use crate::words::shown;

/// An Event. Kubernetes serves those of `events.k8s.io/v1` as `v1`, too, and gives more people the right to read them so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    pub at: Option<Timestamp>,
    pub kind: String,
    pub object: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub reason: String,
    pub count: u64,
    pub message: String,
}

impl Readable for Event {
    type Kind = v1::Event;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let event: v1::Event = serde_json::from_str(json)?;
        let (series, about) = (event.series.unwrap_or_default(), event.involved_object);
        let shown = |text: Option<String>, limit| shown(&text.unwrap_or_default(), limit);
        let observed = series.last_observed_time.or(event.event_time);
        let last = event.last_timestamp.or(event.first_timestamp);
        let count = series.count.or(event.count).unwrap_or(1);
        Ok(Self {
            at: observed.map(|at| at.0).or(last.map(|at| at.0)),
            kind: shown(about.kind, WORD_MAX),
            object: shown(about.name, NAME_MAX),
            type_: shown(event.type_, WORD_MAX),
            reason: shown(event.reason, WORD_MAX),
            count: count.max(1).unsigned_abs().into(),
            message: shown(event.message, MESSAGE_MAX),
        })
    }
}

impl Event {
    /// Returns the node that it is about, or the kind of another object.
    fn about(&self) -> &str {
        match self.kind.as_str() {
            "BottlerocketShadow" => names::node_of_shadow(&self.object).unwrap_or(&self.object),
            "Node" => &self.object,
            kind => kind,
        }
    }
}

/// Returns the last of these Events, the latest of them last.
pub(crate) fn latest(events: &[Event], most: usize) -> Vec<Event> {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at);
    events.split_off(events.len().saturating_sub(most))
}

/// Returns a section of Events; those of one node without its name.
pub(crate) fn section(events: &[Event], of_one_node: bool, page: &Page) -> String {
    let row = |event: &Event| {
        let reason = match event.count {
            ..=1 => Cell::new(&event.reason),
            count => Cell::new(format!("{} (x{count})", event.reason)),
        };
        let at = event.at.map(|at| page.age(&at.to_string()));
        let is_warning = event.type_ == "Warning";
        vec![
            Cell::new(at.as_deref().unwrap_or("-")),
            Cell::new(if of_one_node { "" } else { event.about() }),
            reason.fg(if is_warning {
                Color::DarkYellow
            } else {
                Color::Reset
            }),
            Cell::new(&event.message),
        ]
    };
    let rows = events.iter().map(row).collect();
    table::section(
        "EVENTS",
        "AGE|ABOUT|EVENT|MESSAGE",
        &[0, 1, 2, 0],
        rows,
        page,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_read_in_both_of_its_shapes() {
        let about = json!({"kind": "Node", "name": "node-0"});
        let read = |event: serde_json::Value| {
            let mut event = event;
            event["involvedObject"] = about.clone();
            event["metadata"] = json!({});
            let read = Event::read(&event.to_string()).unwrap();
            (read.count, read.at.unwrap().to_string())
        };
        let new = json!({"type": "Normal", "reason": "OptedIn", "message": "m",
            "eventTime": "2026-11-21T04:00:00.000000Z", "lastTimestamp": null, "series": null});
        assert_eq!(read(new), (1, "2026-11-21T04:00:00Z".to_owned()));
        let old = json!({"count": 3, "firstTimestamp": "2026-11-21T03:00:00Z", "lastTimestamp": "2026-11-21T05:00:00Z"});
        assert_eq!(read(old), (3, "2026-11-21T05:00:00Z".to_owned()));
        let again = json!({"eventTime": "2026-11-21T04:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2026-11-21T06:00:00.000000Z"}});
        assert_eq!(read(again), (7, "2026-11-21T06:00:00Z".to_owned()));
    }
}
