//! The marker: a Node annotation that says what we changed on the node, when, and for which attempt.
//!
//! It is set in the same patch as the change itself and undone in one patch that tests it, so it is true also when
//! the shadow is gone and whichever process died.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::item::Unreadable;

/// Longest marker that we write or read, in bytes.
pub const MARKER_MAX: usize = 4096;
/// Most owners of evicted pods that a marker names.
pub const EVICTED_OWNERS_MAX: usize = 24;
/// Most of the operator's own pods that are evicted from a node.
pub const OPERATOR_PODS_MAX: usize = 16;

/// The operator's changes of a node. A field of a step is removed when the step is undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Marker {
    /// UID of the shadow on whose behalf.
    pub shadow_uid: String,
    /// The attempt on whose behalf; the marker is undone when that attempt is over.
    pub attempt: u64,
    /// Term of the leader that wrote it last.
    #[serde(default)]
    pub term: u64,
    /// When we excluded the node from load balancers; absent if we did not (somebody else may have).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_at: Option<String>,
    /// When the drain began: the clock of its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_started_at: Option<String>,
    /// There were pods to evict when the node was cordoned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
    /// When we cordoned the node; absent if we did not (it was cordoned before, and stays so).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_at: Option<String>,
    /// We put our taint on the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tainted: bool,
    /// We keep Karpenter from disrupting it; absent if somebody else did before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub do_not_disrupt: bool,
    /// We keep the cluster autoscaler from removing it; absent if somebody else did before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scale_down_disabled: bool,
    /// When the node came back into service, updated, and kept the annotations for autoscalers: the pods of the nodes that are
    /// updated after it need room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_since: Option<String>,
    /// When the node was seen empty, after it was cordoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<String>,
    /// It was seen empty before, and pods may have come since: a grant from then may still be on its way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_drained: bool,
    /// Workloads whose pods we evicted, `<apiVersion>/<kind>/<namespace>/<name>`, and how many pods of each were available at the
    /// cordon; kept until the soak is over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evicted_owners: BTreeMap<String, u32>,
    /// UIDs of the operator's own pods that are evicted, listed once: those that come back stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operator_pods: Vec<String>,
}

impl Marker {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// It is not a marker, or too long for one: nobody but us writes there, and we write less.
    pub fn parse(annotation: &str) -> Result<Self, Unreadable> {
        if annotation.len() > MARKER_MAX {
            return Err(Unreadable::TooLong("text"));
        }
        Ok(serde_json::from_str(annotation)?)
    }

    /// The annotation's value. Owners that do not fit into [`MARKER_MAX`] are left out. What the API server would escape
    /// in a JSON text is escaped in ours: its JSON patch compares strings as they are written, and a `test` that quotes
    /// such a character would never hold.
    pub fn render(&self) -> String {
        let mut marker = self.clone();
        loop {
            let text = escaped(&serde_json::json!(marker).to_string());
            let fits =
                marker.evicted_owners.len() <= EVICTED_OWNERS_MAX && text.len() <= MARKER_MAX;
            if fits || marker.evicted_owners.pop_last().is_none() {
                return text;
            }
        }
    }

    /// Does anything on the node still wait to be undone? (Owners are a record, not a change.) Annotations that are kept wait
    /// for other nodes, and hold up nothing.
    pub fn holds_changes(&self) -> bool {
        self.excluded_at.is_some()
            || self.cordoned_at.is_some()
            || self.tainted
            || (self.keeps_autoscalers_away() && self.kept_since.is_none())
            || self.drain_started_at.is_some()
    }

    /// Whether the node is in service, and only annotations keep autoscalers from removing it.
    pub fn is_kept(&self) -> bool {
        self.kept_since.is_some() && self.keeps_autoscalers_away() && !self.holds_changes()
    }

    /// Whether our annotations keep autoscalers from removing the node.
    pub fn keeps_autoscalers_away(&self) -> bool {
        self.do_not_disrupt || self.scale_down_disabled
    }
}

/// A JSON text with these characters written as Go's encoder writes them; they stand in strings only.
fn escaped(json: &str) -> String {
    let escapes = [
        ('<', r"\u003c"),
        ('>', r"\u003e"),
        ('&', r"\u0026"),
        ('\u{2028}', r"\u2028"),
        ('\u{2029}', r"\u2029"),
    ];
    escapes
        .into_iter()
        .fold(json.to_owned(), |text, (character, escape)| {
            text.replace(character, escape)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_survives_being_written_and_read() {
        let marker = Marker {
            shadow_uid: "8a4d".into(),
            attempt: 7,
            term: 12,
            cordoned_at: Some("2026-11-21T04:00:00Z".into()),
            tainted: true,
            evicted_owners: BTreeMap::from([
                ("apps/v1/StatefulSet/shop/cart".into(), 3),
                ("apps/v1/ReplicaSet/shop/web-1".into(), 0),
            ]),
            ..Marker::default()
        };
        assert_eq!(Marker::parse(&marker.render()).unwrap(), marker);
    }

    fn owners(count: u32) -> BTreeMap<String, u32> {
        (0..count).map(|nth| (format!("{nth:0250}"), nth)).collect()
    }

    #[test]
    fn owners_that_do_not_fit_are_left_out() {
        let short = Marker {
            evicted_owners: (0..40).map(|nth| (nth.to_string(), nth)).collect(),
            ..Marker::default()
        };
        assert_eq!(
            Marker::parse(&short.render()).unwrap().evicted_owners.len(),
            EVICTED_OWNERS_MAX
        );
        let text = Marker {
            evicted_owners: owners(40),
            ..Marker::default()
        }
        .render();
        let read = Marker::parse(&text).unwrap();
        assert!(
            text.len() <= MARKER_MAX && read.evicted_owners.len() > 10,
            "{text}"
        );
        assert_eq!(
            read.evicted_owners,
            owners(read.evicted_owners.len().try_into().unwrap())
        );
        assert!(
            Marker::parse(r#"{"shadow_uid":"u","attempt":1,"evicted_owners":{"a":"many"}}"#)
                .is_err()
        );
    }

    #[test]
    fn operator_pods_always_fit() {
        let mut marker = Marker {
            evicted_owners: owners(40),
            ..Marker::default()
        };
        marker.operator_pods =
            vec!["8a4d3c52-4b0e-4f55-9a6e-0c2f7a1d9e10".into(); OPERATOR_PODS_MAX];
        let read = Marker::parse(&marker.render()).unwrap();
        assert_eq!(read.operator_pods, marker.operator_pods);
    }

    #[test]
    fn the_longest_marker_is_read() {
        let text = Marker::default().render();
        let padded = |length: usize| format!("{text:length$}");
        assert_eq!(
            Marker::parse(&padded(MARKER_MAX)).unwrap(),
            Marker::default()
        );
        for other in [padded(MARKER_MAX + 1), "true".to_owned()] {
            assert!(Marker::parse(&other).is_err(), "{}", other.len());
        }
    }

    #[test]
    fn each_change_waits_to_be_undone_and_no_record_does() {
        let at = || Some("2026-11-21T04:00:00Z".to_owned());
        let setters: [fn(&mut Marker, Option<String>); 6] = [
            |it, at| it.excluded_at = at,
            |it, at| it.cordoned_at = at,
            |it, at| it.drain_started_at = at,
            |it, _| it.tainted = true,
            |it, _| it.do_not_disrupt = true,
            |it, _| it.scale_down_disabled = true,
        ];
        let mut record = Marker {
            evicted_owners: owners(1),
            ..Marker::default()
        };
        for set in setters {
            let mut marker = record.clone();
            set(&mut marker, at());
            assert!(marker.holds_changes(), "{marker:?}");
        }
        record.drained_at = at();
        assert!(!record.holds_changes());
    }
}
