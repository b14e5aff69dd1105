//! Zones of nodes, for pools that update one zone at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;

use super::GRACE;
use crate::checker::json::{OPTED_IN, ZONE, is_ready, node_of, text};

/// A Node, and since when it has not been Ready.
#[derive(Clone, Debug, Default)]
struct Member {
    object: Json,
    down_since: Option<Duration>,
}

/// The Nodes that there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones(BTreeMap<String, Member>);

impl Zones {
    /// A Node is written, or deleted.
    pub(crate) fn node(&mut self, name: &str, after: Option<&Json>, now: Duration) {
        let Some(after) = after else {
            self.0.remove(name);
            return;
        };
        let member = self.0.entry(name.to_owned()).or_default();
        // One that is out anyhow may be opted in. Since when it is of its pool is looked at where that is asked.
        let is_same = text(&member.object, OPTED_IN) == text(after, OPTED_IN);
        let known = member.down_since.filter(|_| is_same);
        member.down_since = (!is_ready(after)).then(|| known.unwrap_or(now));
        member.object = after.clone();
    }

    fn zone(&self, node: &str) -> Option<&str> {
        self.0.get(node).map(|member| text(&member.object, ZONE))
    }

    /// What is out of service in another zone than that of this shadow's node: a node with one of these slots, or one that is
    /// not Ready and `owned` by the same pool. A leader may not know yet that it is not Ready.
    pub(crate) fn elsewhere<'s>(
        &'s self,
        shadow: &'s str,
        slots: impl Iterator<Item = &'s str>,
        owned: impl Fn(&Json) -> bool,
        now: Duration,
    ) -> impl Iterator<Item = String> {
        let ours = self.zone(node_of(shadow));
        let is_another = move |zone: Option<&str>| ours.zip(zone).is_some_and(|(ours, zone)| ours != zone);
        let slots = slots.filter(move |other| is_another(self.zone(node_of(other))));
        let slots = slots.map(|other| format!("{other} of another zone has one"));
        let down = self.0.iter().filter(move |(node, member)| {
            let long = member.down_since.is_some_and(|since| now.saturating_sub(since) > GRACE);
            long && is_another(self.zone(node))
                && owned(&member.object)
                && text(&member.object, OPTED_IN) == "2.0.0"
        });
        slots.chain(down.map(|(node, _)| format!("{node} of another zone is not Ready")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(zone: &str, ready: bool) -> Json {
        let labels = json!({"bottlerocket.aws/updater-interface-version": "2.0.0",
            "topology.kubernetes.io/zone": zone, "tier": "web"});
        let status = if ready { "True" } else { "False" };
        json!({"metadata": {"labels": labels}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
    }

    #[test]
    fn another_zone_is_out_of_service() {
        let at = Duration::from_secs;
        let mut zones = Zones::default();
        for (name, zone, ready) in [("a1", "a", true), ("a2", "a", false), ("b1", "b", true)] {
            zones.node(name, Some(&node(zone, ready)), at(0));
        }
        let found = |zones: &Zones, slots: &[&'static str], owned: bool, now| {
            let slots = slots.iter().copied();
            zones.elsewhere("brs-a1", slots, |_| owned, at(now)).collect::<Vec<_>>().len()
        };
        assert_eq!(found(&zones, &["brs-a2"], true, 100), 0, "that is the same zone");
        assert_eq!(found(&zones, &["brs-b1"], true, 100), 1);
        assert_eq!(found(&zones, &["brs-gone"], true, 100), 0, "nobody knows where that was");
        zones.node("b1", Some(&node("b", false)), at(100));
        assert_eq!(found(&zones, &[], true, 120), 0, "nobody may know yet");
        assert_eq!(found(&zones, &[], true, 121), 1);
        assert_eq!(found(&zones, &[], false, 121), 0, "of another pool");
        zones.node("b1", None, at(122));
        assert_eq!(found(&zones, &[], true, 123), 0);
    }
}
