//! Opts nodes in, if that is wanted (`AUTO_LABEL`), and says why it could not.

use brupop_api::Write;
use jiff::Timestamp;
use kube::Resource as _;

use super::Reconciler;
use super::complaints::Subject;
use super::errand::{Context, Errand, Key};
use super::wake::Wake;
use crate::apply::Call;
use crate::decide;
use crate::events;
use crate::facts::{FleetFacts, Outsider};
use crate::snapshot::Snapshot;

impl Reconciler {
    /// Labels the node whose turn it is, if any is to be labelled.
    pub(super) fn opt_in(
        &mut self,
        snapshot: &Snapshot,
        fleet: &FleetFacts<'_>,
        now: Timestamp,
        wake: &mut Wake,
    ) {
        if !self.settings.auto_label {
            return;
        }
        let (outsiders, next) = snapshot.outsiders(self.settings.durations().min_node_age, now);
        wake.by_time(next, now, self.now());
        let wanted: Vec<_> = outsiders
            .iter()
            .filter_map(|outsider| Some((outsider, decide::opt_in(fleet, outsider)?)))
            .collect();
        let Some(due) = self.leading.label_rate.due().filter(|_| !wanted.is_empty()) else { return };
        if self.now() < due {
            wake.by(due);
            return;
        }
        let ready = wanted.into_iter().filter(|(outsider, _)| {
            self.is_ready(snapshot, &Key::Node(outsider.shadow_name.to_owned()), wake)
        });
        let Some((outsider, write)) = self.leading.label_rate.turn(ready, |(outsider, _)| outsider.name)
        else {
            return;
        };
        let Some(errand) = errand(snapshot, outsider, &write) else { return };
        if self.run_errand(snapshot, errand, wake) {
            self.leading.label_rate.begin(outsider.name, self.now());
        }
    }

    /// A node could not be labelled. Said once for all of them: what refuses one mostly refuses all.
    pub(super) fn not_opted_in(&mut self, context: Context, why: &str) {
        let event = events::of_no_opt_in(why);
        if self.complaints.is_new(Subject::OptIn, &event.note) {
            tracing::warn!(node = context.node, why, "{}; trying again, later each time", event.note);
            self.publish_event(Context { event: Some(event), ..context });
        }
    }
}

/// The call that labels this node.
fn errand(snapshot: &Snapshot, outsider: &Outsider<'_>, write: &Write<'_>) -> Option<Errand> {
    let node = snapshot.nodes.get(outsider.shadow_name)?;
    let key = Key::Node(outsider.shadow_name.to_owned());
    let event = events::of_opt_in(outsider.name);
    Some(Errand {
        seen: snapshot.known_resource_version(&key),
        key,
        call: Call::LabelNode { name: outsider.name.to_owned(), patch: write.patch(&node.quoted()) },
        begins_term: None,
        context: Context {
            node: outsider.name.to_owned(),
            reason: event.reason,
            event: Some(event),
            objects: vec![node.object_ref(&())],
            ..Context::default()
        },
    })
}
