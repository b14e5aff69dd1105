//! The changes of each revision, and the rules that they violate.

use brupop_testbed::revisions::Revision;
use serde_json::Value as Json;

use super::json::{is_cordoned, marker, number, text};
use super::objects::{Drained, Grant, Objects};
use super::{Violation, rules};

impl Objects {
    /// Takes a revision, and returns what it violates.
    pub(crate) fn take(&mut self, revision: Revision) -> Vec<Violation> {
        let found = self.change(revision);
        if self.now < self.uncertain_until {
            vec![]
        } else {
            found
        }
    }

    fn change(&mut self, revision: Revision) -> Vec<Violation> {
        self.last = revision.number;
        let parts: Vec<&str> = revision
            .key
            .trim_start_matches("/registry/")
            .split('/')
            .collect();
        match parts.as_slice() {
            ["minions", name] => self.node(name, revision.number, revision.object),
            ["pods", namespace, name] => {
                self.pod(
                    &format!("{namespace}/{name}"),
                    revision.number,
                    revision.object,
                );
                vec![]
            }
            ["poddisruptionbudgets", namespace, name] => {
                let name = format!("{namespace}/{name}");
                match revision.object {
                    Some(budget) => self.budgets.insert(name, budget),
                    None => self.budgets.remove(&name),
                };
                vec![]
            }
            [_, "bottlerocketshadows", _, name] => {
                self.shadow(name, revision.number, revision.object)
            }
            [_, "bottlerocketfleets", _, "fleet"] => self.fleet(revision.number, revision.object),
            _ => vec![],
        }
    }

    fn node(&mut self, name: &str, revision: u64, after: Option<Json>) -> Vec<Violation> {
        let Some(after) = after else {
            self.nodes.remove(name);
            return vec![];
        };
        let state = self.nodes.entry(name.to_owned()).or_default();
        if state.object.is_null() {
            state.made = self.now;
        }
        let (was, is) = (marker(&state.object), marker(&after));
        if was != is || is_cordoned(&state.object) != is_cordoned(&after) {
            self.last_step = revision;
        }
        let (had, has) = (is_cordoned(&state.object), is_cordoned(&after));
        if had && !has {
            state.uncordoned = Some(self.now);
        }
        // Pods may have come before the last cordon, so none of them is late.
        if ["drain_started_at", "cordoned_at"]
            .iter()
            .any(|at| is[at] != was[at])
        {
            state.drain_began = self.now;
        }
        if is != was {
            let attempt = number(&is, "/attempt").unwrap_or(0);
            let drained = Drained {
                listed_after: state.marked,
                attempt,
                cordoned: had && has,
            };
            // What a person breaks was true before, and a leader may have read it.
            if !is.is_null() {
                state.drained = is["drained_at"].is_string().then_some(drained);
            }
            state.marked = revision;
        }
        if let Some(how) = rules::odd_cordon(&state.object, &after) {
            self.odd_cordons.insert(revision, format!("{name}: {how}"));
        }
        state.object = after;
        let node = &self.nodes[name].object;
        let found = rules::marked_without_slot(name, node, &self.ledger);
        found.into_iter().collect()
    }

    fn pod(&mut self, key: &str, revision: u64, after: Option<Json>) {
        let Some(after) = after else {
            self.pods.remove(key);
            return;
        };
        let state = self.pods.entry(key.to_owned()).or_default();
        let same = text(&state.object, "/metadata/uid") == text(&after, "/metadata/uid");
        if !same || text(&state.object, "/spec/nodeName").is_empty() {
            (state.bound, state.bound_at) = (revision, self.now);
        }
        state.object = after;
    }

    fn shadow(&mut self, name: &str, revision: u64, after: Option<Json>) -> Vec<Violation> {
        self.last_step = revision;
        let Some(after) = after else {
            self.shadows.remove(name);
            return vec![];
        };
        let before = self.shadows.get(name).cloned().unwrap_or_default();
        if rules::changes_more_than_status(&before, &after) {
            self.beyond_status.insert(revision);
        }
        let node = name.trim_start_matches("brs-").to_owned();
        let claim = text(&after, "/status/reboot_claimed_boot_id");
        if !claim.is_empty() {
            self.claims.insert((node.clone(), claim.to_owned()));
        }
        let mut found: Vec<Violation> = rules::begins_without_slot(name, &before, &after, self)
            .into_iter()
            .collect();
        let grant = text(&after, "/spec/reboot_granted_boot_id");
        let of = |shadow: &Json| {
            let boot = text(shadow, "/spec/reboot_granted_boot_id").to_owned();
            (
                boot,
                text(shadow, "/metadata/uid").to_owned(),
                number(shadow, "/spec/attempt"),
            )
        };
        if !grant.is_empty() && of(&after) != of(&before) {
            found.extend(rules::grant(&node, &after, self));
            self.grants.insert(Grant {
                node,
                boot_id: grant.to_owned(),
                shadow_uid: text(&after, "/metadata/uid").to_owned(),
                attempt: number(&after, "/spec/attempt").unwrap_or(0),
                history: self.history,
            });
        }
        self.shadows.insert(name.to_owned(), after);
        found
    }

    fn fleet(&mut self, revision: u64, after: Option<Json>) -> Vec<Violation> {
        if after.is_none() {
            self.deleted.push((self.now, self.ledger.clone()));
        }
        let after = after.unwrap_or_default();
        if after.pointer("/status/slots") != self.ledger.pointer("/status/slots") {
            self.last_step = revision;
        }
        // Who begins a term is one of the reconcilers of now, and its settings stay as they are.
        if number(&after, "/status/term") != number(&self.ledger, "/status/term") {
            self.limit = rules::highest_limit(self.pods.values().map(|pod| &pod.object));
        }
        let found = rules::ledger(&after, self);
        self.ledger = after;
        found
    }
}
