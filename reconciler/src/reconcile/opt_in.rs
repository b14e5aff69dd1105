//! Opts nodes in, if that is wanted (`AUTO_LABEL`), and says why it could not.

use std::time::Duration;

use brupop_api::Write;
use kube::Resource as _;

use super::Reconciler;
use super::complaints::Subject;
use super::pass::Pass;
use super::requests::{Context, Key, Request, fitting};
use crate::apply::Call;
use brupop_core::cluster::Cluster;
use brupop_core::decide;
use brupop_core::facts::UnmanagedNode;
use brupop_core::status::EventText;

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
        let (unmanaged, next) = cluster.unmanaged_nodes(self.policy.durations.min_node_age, now);
        pass.wake.by_time(next, now, self.now());
        for node in &unmanaged {
            if let Some(write) = decide::opt_in(&observed.fleet, node)
                && let Some(request) = request(cluster, node, &write)
            {
                self.send(pass, request);
            }
        }
    }

    /// Says that a node could not be labelled. The same answer is said once for all nodes, since it is mostly the same
    /// for all.
    pub(super) fn not_opted_in(&mut self, context: Context, why: &str) {
        let event = EventText::of_no_opt_in(why);
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
fn request(cluster: &Cluster, unmanaged: &UnmanagedNode<'_>, write: &Write<'_>) -> Option<Request> {
    let node = cluster.node(unmanaged.shadow_name)?;
    let key = Key::Node(unmanaged.shadow_name.to_owned());
    let event = EventText::of_opt_in(unmanaged.name);
    Some(Request {
        seen: key.version_in(cluster),
        key,
        call: Call::LabelNode { name: unmanaged.name.to_owned(), patch: fitting(write, &node.quoted())? },
        begins_term: None,
        context: Context {
            node: unmanaged.name.to_owned(),
            reason: event.reason,
            event: Some(event),
            objects: vec![node.object_ref(&())],
            ..Context::default()
        },
    })
}
