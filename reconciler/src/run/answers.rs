//! Takes in what came of requests, and remembers it: of each object one request is under way at most, and a request that failed,
//! was refused or changed nothing is not repeated at once.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_api::Object;
use brupop_core::cluster::Cluster;
use brupop_core::status::EventText;
use brupop_runtime::FailureLog;
use brupop_runtime::waits::doubled;
use serde_json::value::RawValue;

use crate::run::requests::{Answer, Body, Context, Outcome, Request, Shown};
use crate::run::{Reconciler, Wake};

/// No node is labelled for so long after one could not be: most likely none can.
const OPT_IN_PAUSE: Duration = Duration::from_secs(30);
/// Wait after the first failure; doubled with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);
/// Longest wait for a change of an object after a request about it was refused or changed nothing, the first time.
const FIRST_WAIT_FOR_CHANGE: Duration = Duration::from_secs(4);
/// Writes of one object for one reason, with no other between them. An update needs fewer; somebody undoes what is written.
const WRITES_ON_END: u32 = 16;
/// Denials for so long are no accident: a webhook may have moved with the pods that a drain evicts.
const DENIED_FOR: Duration = Duration::from_mins(1);
/// For so long after the last denial no update of the node begins.
const DENIAL_HOLDS_FOR: Duration = Duration::from_mins(5);

/// A leader's memory of its requests, by object. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    objects: BTreeMap<Object<String>, Sent>,
    /// The reason why nodes could not be labelled: the same answer is told once for all.
    opt_in_log: FailureLog,
    /// When nodes may be labelled again, after one could not be.
    pub(crate) opt_in_from: Duration,
}

/// The memory of the requests about one object.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    is_under_way: bool,
    /// When the next request may be sent.
    not_before: Duration,
    /// It may be sent earlier, once the object is in another version than `seen`.
    waits_for_change: bool,
    seen: Option<u64>,
    /// Failures, refusals and writes without effect in a row.
    failures: u32,
    /// Of these, the refusals and writes without effect.
    refusals: u32,
    /// The reason of the last write of the object, and how often it recurred.
    written_for: (&'static str, u32),
    log: FailureLog,
    /// When the first and the last of several denials in a row came, and why the last one.
    denied: Option<[Duration; 2]>,
    denied_because: String,
}

impl Requests {
    /// Returns what is remembered of this object.
    pub(crate) fn of(&mut self, object: &Object<String>) -> &mut Sent {
        self.objects.entry(object.clone()).or_default()
    }

    /// Records why the API server takes no change of a Node, or of its shadow, until these denials are forgotten.
    pub(crate) fn record_denials(&self, cluster: &mut Cluster, now: Duration, wake: &mut Wake) {
        for record in cluster.records.values_mut() {
            (record.led.node_denied, record.led.shadow_denied) = (None, None);
        }
        for (object, sent) in &self.objects {
            let Some([first, last]) = sent.denied else {
                continue;
            };
            let until = last + DENIAL_HOLDS_FOR;
            if last < first + DENIED_FOR || until <= now {
                continue;
            }
            let (shadow, why) = (object.shadow(), &sent.denied_because);
            let Some(record) = shadow.and_then(|name| cluster.records.get_mut(&*name)) else {
                continue;
            };
            match object {
                Object::Node(_) => record.led.node_denied = Some(format!("the Node: {why}")),
                Object::ShadowSpec(_) => {
                    record.led.shadow_denied = Some(format!("the node's shadow: {why}"));
                }
                _ => continue,
            }
            wake.by(until);
        }
    }

    /// Forgets nodes, shadows and pools that are gone, once there are more objects than there can be.
    pub(crate) fn prune(&mut self, cluster: &Cluster) {
        if self.objects.len() <= 3 * cluster.records.len() + cluster.pools.len() + 2 {
            return;
        }
        self.objects.retain(|object, sent| {
            let exists = match (object, object.shadow()) {
                (Object::PoolStatus(name), _) => cluster.pools.contains_key(name),
                (_, shadow) => shadow.is_none_or(|it| cluster.records.contains_key(&*it)),
            };
            exists || sent.is_under_way
        });
    }
}

impl Sent {
    /// When a request may be sent, if the object is known in this version; `None` while one is under way.
    pub(crate) fn due(&self, version: Option<u64>) -> Option<Duration> {
        let is_changed = self.waits_for_change && version != self.seen;
        let due = if is_changed {
            Duration::ZERO
        } else {
            self.not_before
        };
        (!self.is_under_way).then_some(due)
    }

    pub(crate) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// The object was changed, for this reason. Returns whether this is the first of many such changes for which the next one waits.
    fn changed(&mut self, reason: &'static str, now: Duration) -> bool {
        let (before, times) = self.written_for;
        let is_again = before == reason && !reason.is_empty();
        let times = if is_again { times.saturating_add(1) } else { 1 };
        let surplus = times.saturating_sub(WRITES_ON_END);
        let wait = (surplus > 0).then(|| back_off(surplus));
        *self = Self {
            written_for: (reason, times),
            not_before: now + wait.unwrap_or_default(),
            ..Self::default()
        };
        surplus == 1
    }

    /// The request was refused because the object is no longer as it was in version `seen`, or changed nothing of it: somebody else
    /// may hold a field that it should remove, or a webhook puts back what it changes. If the object stays as it is, the mistake is
    /// ours; so the wait is limited. Returns how often that has happened since the last change.
    fn wait_for_change(&mut self, seen: Option<u64>, now: Duration) -> u32 {
        self.failed(now);
        self.not_before = self.not_before.max(now + FIRST_WAIT_FOR_CHANGE);
        (self.waits_for_change, self.seen) = (true, seen);
        self.refusals = self.refusals.saturating_add(1);
        self.refusals
    }

    /// The API server did not take the change, whatever the object's version.
    pub(crate) fn denied(&mut self, why: String, now: Duration) {
        let in_a_row = |[_, last]: &[Duration; 2]| now < *last + 2 * LONGEST_BACK_OFF;
        let first = self.denied.filter(in_a_row).map_or(now, |[first, _]| first);
        (self.denied, self.denied_because) = (Some([first, now]), why);
    }

    /// The request failed, or was made too early.
    fn failed(&mut self, now: Duration) {
        self.is_under_way = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + back_off(self.failures);
        self.waits_for_change = false;
    }
}

fn back_off(failures: u32) -> Duration {
    doubled(FIRST_BACK_OFF, failures.saturating_sub(1), LONGEST_BACK_OFF)
}

impl Reconciler {
    /// Takes in the answer to a request.
    pub(crate) fn answered(&mut self, request: Request, Answer { outcome, objects }: Answer) {
        let now = self.now();
        let mut version = None;
        for Shown { object, seen, json } in objects {
            let json = json.as_deref().map(RawValue::get);
            version = self.watches.answered(&object, json, seen, now);
            self.leading.requests.of(&object).denied = None;
        }
        let object = request.object.as_str();
        let is_unchanged =
            outcome == Outcome::Written && request.seen.is_some() && request.seen == version;
        let word = if is_unchanged {
            "unchanged"
        } else {
            outcome.as_str()
        };
        if outcome != Outcome::Read {
            let labels = [("object", object), ("result", word)];
            self.metrics.count("brupop_writes", &labels);
        }
        let Context { node, reason, .. } = &request.context;
        match outcome {
            Outcome::Written if is_unchanged => {
                let sent = self.leading.requests.of(&request.object);
                sent.wait_for_change(request.seen, now);
                let why = "somebody else owns a field, or a webhook restores it";
                if sent.log.is_new(why) {
                    let says = "a write changed nothing; waiting until the object changes";
                    tracing::warn!(node, reason, object, why, "{says}");
                }
            }
            Outcome::Written => self.changed(request, "written"),
            Outcome::Removed => self.changed(request, "removed"),
            Outcome::Read => self.leading.requests.of(&request.object).is_under_way = false,
            Outcome::NotConfirmed => {
                let says = "conflict: pods appeared on the node after it was seen drained";
                tracing::debug!(node, reason, "{says}");
                self.leading.requests.of(&request.object).failed(now);
            }
            // That a node cannot be labelled, or an object read, says nothing of updates.
            Outcome::Denied(_, why) if request.context.opts_in || request.body == Body::Read => {
                self.failed(&request, &why);
            }
            Outcome::Failed(why) => self.failed(&request, &why),
            Outcome::Refused(why) => self.refused(&request, &why),
            Outcome::Denied(denied, why) => {
                self.refused(&request, &why);
                self.doubt_admission(&request, &why);
                self.leading.requests.of(&denied).denied(why, now);
            }
        }
    }

    /// One refusal comes from a stale view, and the next version of the object settles it. Repeated refusals are a mistake of
    /// ours, or there is a rule against it.
    fn refused(&mut self, request: &Request, why: &str) {
        let now = self.now();
        let sent = self.leading.requests.of(&request.object);
        let object = request.object.as_str();
        let Context { node, reason, .. } = &request.context;
        match sent.wait_for_change(request.seen, now) {
            1 => tracing::debug!(node, reason, object, why, "refused"),
            3 => {
                let says = "refused, the third time in a row";
                tracing::error!(node, reason, object, why, "{says}");
            }
            _ => {}
        }
    }

    /// A request failed; it is sent again later.
    fn failed(&mut self, request: &Request, why: &str) {
        let now = self.now();
        let sent = self.leading.requests.of(&request.object);
        sent.failed(now);
        let is_news = sent.log.is_new(why);
        self.doubt_admission(request, why);
        let object = request.object.as_str();
        let Context { node, reason, .. } = &request.context;
        if request.context.opts_in {
            self.leading.requests.opt_in_from = now + OPT_IN_PAUSE;
            let event = EventText::of_no_opt_in(why);
            // The answer is mostly the same for all nodes.
            if self.leading.requests.opt_in_log.is_new(&event.note) {
                let says = "a node was not labelled; trying again";
                tracing::warn!(node, why, event = event.note, "{says}");
                self.publish(Some(event), request.context.about.clone());
            }
        } else if is_news {
            tracing::warn!(node, reason, object, why, "a request failed; trying again");
        }
    }

    /// Dry runs need a shadow. Where the webhook cannot be reached there may never be one, and this is all that tells.
    fn doubt_admission(&mut self, request: &Request, why: &str) {
        if let (Object::ShadowSpec(_), Body::Create(_)) = (&request.object, &request.body) {
            let why = format!("a shadow could not be created: {why}");
            let now = self.now();
            self.leading.admission.doubt(why, now);
        }
    }

    /// An object was written or removed.
    fn changed(&mut self, request: Request, what: &str) {
        let now = self.now();
        let (object, context) = (request.object, request.context);
        // Conditions change with the words of agents, and have a brake of their own.
        let is_said = matches!(
            object,
            Object::FleetStatus | Object::PoolStatus(_) | Object::ShadowStatus(_)
        );
        let is_counted = matches!(object, Object::Node(_) | Object::ShadowSpec(_));
        let (node, version) = (&context.node, &context.version);
        let (state, reason) = (context.state, context.reason);
        let counted = Some(reason).filter(|_| is_counted && what == "written");
        let sent = self.leading.requests.of(&object);
        let is_slowed_down = sent.changed(counted.unwrap_or_default(), now);
        let may_log = !is_said && self.may_log(&object, now);
        for ended in &context.ended {
            self.metrics.ended(ended);
        }
        let object = object.as_str();
        if is_slowed_down {
            let why = "somebody undoes it each time, or the API server does not keep all of it";
            let says = "the same was written many times; writing less often";
            tracing::warn!(node, reason, object, why, "{says}");
        }
        if let Some(term) = request.term {
            self.leading.state.term = term;
            tracing::info!(term, "this process leads");
        }
        if context.opts_in {
            self.leading.requests.opt_in_log.resolved();
        }
        if may_log {
            tracing::info!(node, version, state, reason, object, "{what}");
        }
        // A kubelet has its shadow made and deleted as often as it likes.
        if may_log || what == "written" {
            self.publish(context.event, context.about);
        }
    }
}

#[cfg(test)]
mod tests;
