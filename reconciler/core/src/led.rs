//! What a leader knows of one node beside what the API server says. It ends with the leadership, and with the Node.

use std::sync::Arc;

use jiff::Timestamp;

use crate::drain::{DrainPlan, Obstacle};
use crate::facts::Owner;
use crate::workloads::Scales;

/// What a leader knows of one node.
#[derive(Clone, Debug, Default)]
pub struct LedNode {
    /// Which pool owns it; `None` until that is found out for the Node and the pools as they are.
    pub(crate) owner: Option<Owner>,
    /// Its drain, if its pods are watched and known.
    pub drain: Option<KnownDrain>,
    /// What stands in the way of its drain. It is remembered for a while after the pods are no longer watched.
    pub obstacle: Option<Obstacle>,
    /// What the API server takes no change of.
    pub denied: Denied,
    /// The workloads that were read because pods of theirs are to be evicted from it, or were.
    pub scales: Option<Scales>,
    /// Since when its Node has been seen cordoned, if it is.
    pub(crate) cordoned: Option<Timestamp>,
}

/// Why the API server takes no change of a Node or of its shadow: rules of others, or a webhook that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    pub node: Option<String>,
    pub shadow: Option<String>,
}

/// The drain of a node whose pods are known.
#[derive(Clone, Debug, Default)]
pub struct KnownDrain {
    /// What it has to do.
    pub plan: Arc<DrainPlan>,
    /// How this process has seen the node empty, if it is.
    pub empty: Option<Empty>,
    /// What holds it up, mostly in the API server's words.
    pub held_up_by: Option<String>,
}

/// A node that was seen empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Since when, and since when its volumes in use have not become fewer.
    pub since: Timestamp,
    /// The fewest volumes in use.
    pub volumes: usize,
}

impl LedNode {
    /// Records the drain's next work and its obstacles, if the node's pods are known, and the number of volumes that its kubelet
    /// says are in use.
    pub(crate) fn record_drain(
        &mut self,
        drain: Option<(Arc<DrainPlan>, Option<String>)>,
        volumes: usize,
        now: Timestamp,
    ) {
        let before = self.drain.take().and_then(|before| before.empty);
        let as_before = before.filter(|before| before.volumes <= volumes);
        self.drain = drain.map(|(plan, held_up_by)| KnownDrain {
            empty: plan.is_done().then(|| {
                as_before.unwrap_or(Empty {
                    since: now,
                    volumes,
                })
            }),
            plan,
            held_up_by,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::PodKey;

    #[test]
    fn an_empty_node_knows_since_when_no_volume_went() {
        let full = DrainPlan {
            evict: vec![PodKey {
                namespace: "shop".into(),
                name: "a".into(),
                uid: "u".into(),
            }],
            ..DrainPlan::default()
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut led = LedNode::default();
        let empty = || Some(DrainPlan::default());
        for (second, plan, volumes, since) in [
            (1, Some(full.clone()), 3, None),
            (2, empty(), 3, Some(2)),
            (3, empty(), 3, Some(2)),
            (4, Some(full), 3, None),
            (5, empty(), 3, Some(5)),
            (6, empty(), 2, Some(6)),
            (7, empty(), 2, Some(6)),
            (8, empty(), 3, Some(6)),
            (9, empty(), 2, Some(6)),
            (10, empty(), 0, Some(10)),
            (11, None, 0, None),
        ] {
            led.record_drain(plan.map(|plan| (Arc::new(plan), None)), volumes, at(second));
            let empty = led.drain.as_ref().and_then(|drain| drain.empty);
            assert_eq!(empty.map(|empty| empty.since), since.map(at), "at {second}");
        }
    }
}
