//! What pools say must hold of each slot that is taken, for what people said long enough ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value as Json;

use super::Violation;
use super::json::{is_ready, is_set, members, shadow_of, text};

/// A leader that has not seen a change of a pool yet may still go by the rules of before: until its watch tells, or it has
/// lost its Lease.
const GRACE: Duration = Duration::from_secs(20);
/// The only pool that comes after another one, and which.
const ORDER: (&str, &str) = ("web", "canary");

/// A pool, and what it was before.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolState {
    /// The spec; null if it was deleted.
    spec: Json,
    before: Json,
    changed: Duration,
}

impl PoolState {
    fn is_settled(&self, now: Duration) -> bool {
        now.saturating_sub(self.changed) > GRACE
    }

    /// Do freezes and windows let nothing start at this time?
    fn is_closed(&self, at: &str) -> bool {
        // The only freezes are for ever.
        let windows = self.spec["windows"].as_array().filter(|windows| !windows.is_empty());
        is_set(&self.spec, "/freezes") || windows.is_some_and(|them| !them.iter().any(|it| is_open(it, at)))
    }
}

/// Is a window open at this time? There are two kinds: an hour of the day, and a minute of two.
fn is_open(window: &Json, at: &str) -> bool {
    let number = |range: std::ops::Range<usize>| at.get(range).and_then(|digits| digits.parse::<u8>().ok());
    match text(window, "/schedule").split(' ').collect::<Vec<_>>()[..] {
        ["*/2", ..] => number(14..16).is_some_and(|minute| minute % 2 == 0),
        ["0", hour, ..] => number(11..13).is_some_and(|now| hour.parse() == Ok(now)),
        _ => false,
    }
}

/// The pools after a revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    all: BTreeMap<String, PoolState>,
    /// The shadows of Nodes whose update somebody has ever asked for.
    asked_for: BTreeSet<String>,
    /// Versions that a node in service has run, of those that were labelled for the pool that goes first.
    canaries_ran: BTreeSet<String>,
    /// Since the checker began.
    pub(crate) now: Duration,
}

impl Pools {
    /// A pool is written, or deleted.
    pub(crate) fn pool(&mut self, name: &str, after: Option<&Json>) {
        let spec = after.map_or(Json::Null, |after| after["spec"].clone());
        let state = self.all.entry(name.to_owned()).or_default();
        if state.spec != spec {
            let before = std::mem::replace(&mut state.spec, spec);
            *state = PoolState { before, changed: self.now, ..std::mem::take(state) };
        }
    }

    /// A Node is written.
    pub(crate) fn node(&mut self, node: &Json) {
        if is_set(node, "/metadata/annotations/brupop.bottlerocket.aws~1update-now") {
            self.asked_for.insert(format!("brs-{}", text(node, "/metadata/name")));
        }
        if text(node, "/metadata/labels/tier") != ORDER.1 || !is_ready(node) {
            return;
        }
        let image = text(node, "/status/nodeInfo/osImage");
        self.canaries_ran.extend(image.split(' ').nth(2).map(str::to_owned));
    }

    /// A slot is taken for a node whose update begins, and the ledger has these slots then.
    pub(crate) fn slot(&self, shadow: &str, slot: &Json, ledger: &Json) -> Vec<Violation> {
        let pool = text(slot, "/pool");
        let Some(state) = self.all.get(pool) else { return vec![] };
        let mut found = vec![];
        let settled = state.is_settled(self.now);
        let since = text(slot, "/since");
        let closed = state.is_closed(since) && !self.asked_for.contains(shadow);
        if settled && (state.spec.is_null() || state.spec["paused"] == true || closed) {
            let said = format!("{shadow} gets a slot of {pool} at {since}, which is {}", state.spec);
            found.push(Violation::new("pool", said));
        }
        let limits = [&state.spec, if settled { &Json::Null } else { &state.before }];
        let limit = limits.iter().filter_map(|spec| spec["maxUnavailable"].as_u64()).max();
        let slots = members(ledger, "/status/slots").filter(|(_, slot)| text(slot, "/pool") == pool).count();
        if limit.is_some_and(|limit| u64::try_from(slots).unwrap_or(u64::MAX) > limit) {
            found.push(Violation::new("pool", format!("{slots} slots of {pool}, {limit:?} may be")));
        }
        let version = text(slot, "/version");
        let ordered = |spec: &Json| spec["after"].as_array().is_some_and(|after| !after.is_empty());
        if pool == ORDER.0 && ordered(&state.spec) && settled && !self.canaries_ran.contains(version) {
            found.push(Violation::new(
                "order",
                format!("{shadow} gets a slot for {version} before {}", ORDER.1),
            ));
        }
        found
    }
}

impl Pools {
    /// A Node is marked as ours, because it is about to be cordoned, while its shadow has this slot. Pauses, freezes and windows
    /// are looked at again before that; a window that is open half of the time may have been open then.
    pub(crate) fn marked(&self, node: &Json, slot: &Json) -> Option<Violation> {
        let (pool, name) = (text(slot, "/pool"), text(node, "/metadata/name"));
        let takes_all = |state: &PoolState| state.spec["nodeSelector"] == serde_json::json!({});
        // The pool of the slot may not be the Node's any more.
        let moves = text(node, "/metadata/labels/tier") != pool
            || self.all.values().any(|state| takes_all(state) || !state.is_settled(self.now));
        let state = self.all.get(pool).filter(|_| !moves)?;
        let closed = state.is_closed("") && !text(&state.spec, "/windows/0/schedule").starts_with("*/2");
        let closed = closed && !self.asked_for.contains(&shadow_of(name));
        (closed || state.spec["paused"] == true).then(|| {
            Violation::new("pool", format!("{name} is disturbed for {pool}, which is {}", state.spec))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(pools: &Pools, slots: usize) -> Vec<&'static str> {
        let slot = json!({"pool": "web", "version": "2.0.0"});
        let all: Json = (0..slots)
            .map(|number| (format!("brs-{number}"), slot.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        pools.slot("brs-0", &slot, &json!({"status": {"slots": all}})).iter().map(|it| it.rule).collect()
    }

    #[test]
    fn slots_keep_to_what_was_said_long_enough_ago() {
        let spec = |limit: u64, paused: bool| json!({"spec": {"maxUnavailable": limit, "paused": paused}});
        let mut pools = Pools::default();
        assert_eq!(rules(&pools, 9), [""; 0], "there are no pools");
        pools.pool("web", Some(&spec(2, false)));
        pools.now = Duration::from_secs(100);
        assert_eq!((rules(&pools, 2), rules(&pools, 3)), (vec![], vec!["pool"]));
        pools.pool("web", Some(&spec(1, true)));
        assert_eq!(rules(&pools, 2), [""; 0], "nobody may have seen that yet");
        assert_eq!(rules(&pools, 3), ["pool"]);
        pools.now = Duration::from_secs(121);
        assert_eq!((rules(&pools, 1), rules(&pools, 2)), (vec!["pool"], vec!["pool", "pool"]));
        pools.pool("web", None);
        pools.now = Duration::from_secs(142);
        assert_eq!(rules(&pools, 1), ["pool"], "it is gone");
    }

    #[test]
    fn a_freeze_holds_all_but_those_that_people_asked_for() {
        let mut pools = Pools::default();
        pools.pool("web", Some(&json!({"spec": {"maxUnavailable": 2, "freezes": [{"name": "now"}]}})));
        assert_eq!(rules(&pools, 1), [""; 0], "nobody may have seen that yet");
        pools.now = Duration::from_secs(100);
        assert_eq!(rules(&pools, 1), ["pool"]);
        let annotations = json!({"brupop.bottlerocket.aws/update-now": "true"});
        pools.node(&json!({"metadata": {"name": "0", "annotations": annotations}}));
        assert_eq!(rules(&pools, 1), [""; 0]);
    }

    #[test]
    fn a_canary_in_service_goes_first() {
        let mut pools = Pools::default();
        pools.pool("web", Some(&json!({"spec": {"maxUnavailable": 2, "after": [{"pool": "canary"}]}})));
        pools.now = Duration::from_secs(100);
        assert_eq!(rules(&pools, 1), ["order"]);
        let node = |tier: &str, ready: &str| {
            json!({"metadata": {"labels": {"tier": tier}}, "status": {"conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"osImage": "Bottlerocket OS 2.0.0 (x)"}}})
        };
        for (tier, ready, expected) in
            [("db", "True", vec!["order"]), ("canary", "False", vec!["order"]), ("canary", "True", vec![])]
        {
            pools.node(&node(tier, ready));
            assert_eq!(rules(&pools, 1), expected, "{tier} {ready}");
        }
    }

    #[test]
    fn a_window_is_open_at_its_time() {
        let with = |schedule: &str| {
            let mut pools = Pools::default();
            let windows = json!([{"schedule": schedule, "duration": "1h"}]);
            pools.pool("web", Some(&json!({"spec": {"maxUnavailable": 2, "windows": windows}})));
            pools.now = Duration::from_secs(100);
            pools
        };
        let rules = |pools: &Pools, since: &str| {
            let slot = json!({"pool": "web", "version": "2.0.0", "since": since});
            let found = pools.slot("brs-0", &slot, &json!({"status": {"slots": {"brs-0": slot}}}));
            let node = json!({"metadata": {"name": "0", "labels": {"tier": "web"}}});
            (found.len(), pools.marked(&node, &slot).is_some())
        };
        for (schedule, since, expected) in [
            ("0 7 * * *", "2026-01-01T07:59:00Z", (0, true)),
            ("0 7 * * *", "2026-01-01T08:00:00Z", (1, true)),
            ("*/2 * * * *", "2026-01-01T08:58:59Z", (0, false)),
            ("*/2 * * * *", "2026-01-01T08:59:00Z", (1, false)),
        ] {
            let mut pools = with(schedule);
            assert_eq!(rules(&pools, since), expected, "{schedule} {since}");
            pools.pool("db", Some(&json!({"spec": {"nodeSelector": {}}})));
            assert_eq!(rules(&pools, since), (expected.0, false), "it may be the Node's pool now");
            let annotations = json!({"brupop.bottlerocket.aws/update-now": "true"});
            pools.node(&json!({"metadata": {"name": "0", "annotations": annotations}}));
            assert_eq!(rules(&pools, since), (0, false), "somebody asked for it");
        }
    }
}
