//! Opts nodes in, if that is wanted (`AUTO_LABEL`), and says why it could not.

use std::time::Duration;

use brupop_api::Write;
use kube::Resource as _;

use super::Reconciler;
use super::complaints::Subject;
use super::errand::{Context, Errand, Key};
use super::pass::Pass;
use crate::apply::Call;
use brupop_core::cluster::Cluster;
use brupop_core::decide;
use brupop_core::events;
use brupop_core::facts::Outsider;

/// No node is labelled for so long after one could not be: most likely none can.
pub(super) const OPT_IN_PAUSE: Duration = Duration::from_secs(30);

impl Reconciler {
    /// Labels the nodes that are to be opted in, if `AUTO_LABEL` wants it.
    pub(super) fn opt_in(&mut self, pass: &mut Pass<'_>) {
        let Pass { cluster, observed, now, .. } = *pass;
        if !self.policy.auto_label {
            return;
        }
        if self.now() < self.leading.opt_in_from {
            pass.wake.by(self.leading.opt_in_from);
            return;
        }
        let (outsiders, next) = cluster.outsiders(self.policy.durations.min_node_age, now);
        pass.wake.by_time(next, now, self.now());
        for outsider in &outsiders {
            if let Some(write) = decide::opt_in(&observed.fleet, outsider)
                && let Some(errand) = errand(cluster, outsider, &write)
            {
                self.run_errand(pass, errand);
            }
        }
    }

    /// Says that a node could not be labelled. The same answer is said once for all nodes, since it is mostly the same
    /// for all.
    pub(super) fn not_opted_in(&mut self, context: Context, why: &str) {
        let event = events::of_no_opt_in(why);
        if self.complaints.is_new(Subject::OptIn, &event.note) {
            let says = &event.note;
            tracing::warn!(
                node = context.node,
                why,
                says,
                "a node was not labelled; trying again, later each time"
            );
            self.publish_event(Context { event: Some(event), ..context });
        }
    }
}

/// The call that labels this node.
fn errand(cluster: &Cluster, outsider: &Outsider<'_>, write: &Write<'_>) -> Option<Errand> {
    let node = cluster.node(outsider.shadow_name)?;
    let key = Key::Node(outsider.shadow_name.to_owned());
    let event = events::of_opt_in(outsider.name);
    Some(Errand {
        seen: key.version_in(cluster),
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
