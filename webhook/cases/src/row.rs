//! A row: who asks what in which situation, who refuses it, and what is stored.

use crate::actor::Actor;
use crate::ask::{Ask, Request, Way};
use crate::schema::prune;
use crate::world::{Host, World};
use brupop_api::BottlerocketShadow;
use http::Method;
use kube::Resource as _;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Who refuses, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody.
    Allowed,
    /// Authorization: the account's roles do not allow it.
    ByRbac,
    /// The schema of the custom resource, in these words.
    BySchema(&'static str),
    /// The policy only.
    ByPolicy(&'static str),
    /// The webhook only.
    ByWebhook(&'static str),
    /// Each of the two, also without the other, by a rule of this name.
    ByBoth(&'static str),
    /// The API server itself, with this code, in these words.
    ByServer(u16, &'static str),
}

/// What is stored after something was allowed. What was refused changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// What was asked for.
    AsAsked,
    /// What was there before.
    Unchanged,
}

/// A case.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it says, for people.
    pub says: Cow<'static, str>,
    /// Who asks.
    pub actor: Actor,
    /// Of which node's shadow.
    pub of: Host,
    /// The shadow's spec.
    pub spec: Value,
    /// The shadow's status; null: it has none.
    pub status: Value,
    /// What is to be merged into the shadow's metadata.
    pub metadata: Value,
    /// What is asked.
    pub ask: Ask,
    /// As a dry run.
    pub dry_run: bool,
    /// Version of the API.
    pub version: &'static str,
    /// Merged into the review: what no API server of ours would ask. Such a row is for the verdict alone.
    pub as_if: Value,
    /// Who refuses it.
    pub verdict: Verdict,
    /// Who would refuse it if RBAC or the schema did not; rows that RBAC refuses are tried with more rights, too.
    pub behind: Option<Verdict>,
    /// The rule by which the webhook decides, where it does not follow from the verdicts.
    pub alone: Option<&'static str>,
    /// What is stored.
    pub stored: Stored,
}

impl Row {
    /// A row about the shadow of the first node.
    pub(crate) fn new(
        says: impl Into<Cow<'static, str>>,
        actor: Actor,
        (spec, status): (Value, Value),
        ask: Ask,
        verdict: Verdict,
    ) -> Self {
        Self {
            says: says.into(),
            actor,
            of: Host::First,
            spec,
            status,
            metadata: Value::Null,
            ask,
            dry_run: false,
            version: "v2",
            as_if: Value::Null,
            verdict,
            behind: None,
            alone: None,
            stored: Stored::AsAsked,
        }
    }

    pub(crate) fn of(self, of: Host) -> Self {
        Self { of, ..self }
    }

    pub(crate) fn with_metadata(self, metadata: Value) -> Self {
        Self { metadata, ..self }
    }

    /// A dry run: nothing is stored.
    pub(crate) fn dry(self) -> Self {
        Self {
            dry_run: true,
            stored: Stored::Unchanged,
            ..self
        }
    }

    pub(crate) fn of_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn reviewed_as(self, as_if: Value) -> Self {
        Self { as_if, ..self }
    }

    /// Who refuses it behind RBAC or the schema.
    pub(crate) fn behind(self, behind: Verdict) -> Self {
        Self {
            behind: Some(behind),
            ..self
        }
    }

    /// The rule by which the webhook decides.
    pub(crate) fn alone(self, rule: &'static str) -> Self {
        Self {
            alone: Some(rule),
            ..self
        }
    }

    /// It is answered 200, and nothing is stored.
    pub(crate) fn stores_nothing(self) -> Self {
        Self {
            stored: Stored::Unchanged,
            ..self
        }
    }

    /// Whether an API server can be asked this.
    pub fn is_for_the_api_server(&self) -> bool {
        self.as_if.is_null()
    }

    /// Whether it passes the webhook: what the reconciler writes into a status does not, but for dry runs.
    pub(crate) fn passes_the_webhook(&self) -> bool {
        self.actor != Actor::Reconciler || self.ask.sub_resource() != "status" || self.dry_run
    }

    /// The rule by which the webhook decides, were it asked; none if it never is.
    pub fn rule(&self) -> Option<&'static str> {
        if !self.passes_the_webhook() {
            return None;
        }
        self.alone
            .or_else(|| match self.behind.unwrap_or(self.verdict) {
                Verdict::ByWebhook(rule) | Verdict::ByBoth(rule) => Some(rule),
                Verdict::Allowed | Verdict::ByPolicy(_) => Some(self.actor.allowing_rule()),
                Verdict::ByRbac | Verdict::BySchema(_) | Verdict::ByServer(..) => None,
            })
    }

    /// The shadow as it is before anything is asked, without what the API server fills in.
    pub fn shadow(&self, world: &World) -> Value {
        let node = world.node(self.of);
        let mut shadow = json!({
            "apiVersion": BottlerocketShadow::api_version(&()),
            "kind": "BottlerocketShadow",
            "metadata": {
                "name": brupop_api::names::shadow_name(&node.name),
                "namespace": world.namespace,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}],
            },
            "spec": self.spec,
        });
        if !self.metadata.is_null() {
            let text = self
                .metadata
                .to_string()
                .replace("{former-uid}", &world.former_uid);
            let metadata: Value = serde_json::from_str(&text).unwrap_or_default();
            json_patch::merge(&mut shadow["metadata"], &metadata);
        }
        if !self.status.is_null() {
            shadow["status"] = self.status.clone();
        }
        shadow
    }

    /// What is sent to the API server; `before` is the shadow as it is stored, or would be made.
    pub fn request(&self, world: &World, before: &Value) -> Request {
        let shadows = format!(
            "/apis/brupop.bottlerocket.aws/{}/namespaces/{}/bottlerocketshadows",
            self.version, world.namespace
        );
        let name = brupop_api::names::shadow_name(&world.node(self.of).name);
        let path = match self.ask.sub_resource() {
            "" => format!("{shadows}/{name}"),
            sub_resource => format!("{shadows}/{name}/{sub_resource}"),
        };
        let (merge, json) = ("application/merge-patch+json", "application/json");
        let apply = "application/apply-patch+yaml";
        let (method, path, content_type, body) = match &self.ask {
            Ask::Update {
                way: Way::Merge,
                body,
                ..
            } => (Method::PATCH, path, merge, body.to_string()),
            Ask::Update {
                way: Way::JsonPatch,
                body,
                ..
            } => (
                Method::PATCH,
                path,
                "application/json-patch+json",
                body.to_string(),
            ),
            Ask::Update {
                way: Way::Put,
                body,
                ..
            } => (Method::PUT, path, json, merged(before, body).to_string()),
            Ask::Update {
                way: Way::Apply,
                body,
                ..
            }
            | Ask::ApplyNew(_, body) => {
                let named = json!({"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": {"name": name}});
                (Method::PATCH, path, apply, merged(&named, body).to_string())
            }
            Ask::Create(body) => (
                Method::POST,
                shadows,
                json,
                merged(before, body).to_string(),
            ),
            Ask::Delete => (Method::DELETE, path, json, String::new()),
            Ask::DeleteAll => (Method::DELETE, shadows, json, String::new()),
            Ask::Text(text) => (Method::PATCH, path, merge, text.clone()),
            Ask::Other(method, path, body) => {
                let kind = if *method == Method::PATCH {
                    merge
                } else {
                    json
                };
                let body = if body.is_null() {
                    String::new()
                } else {
                    body.to_string()
                };
                (
                    method.clone(),
                    path.replace("{namespace}", &world.namespace),
                    kind,
                    body,
                )
            }
        };
        let options = [
            ("dryRun=All", self.dry_run),
            ("fieldManager=cases&force=true", content_type == apply),
        ];
        let options: Vec<_> = options
            .into_iter()
            .filter_map(|(option, given)| given.then_some(option))
            .collect();
        let mark = if options.is_empty() { "" } else { "?" };
        Request {
            method,
            path: format!("{path}{mark}{}", options.join("&")),
            content_type,
            body,
        }
    }

    /// The shadow as it would be stored, if nobody refused; null if it would be gone. None if the API server itself
    /// cannot make anything of what is asked.
    pub fn after(&self, before: &Value) -> Option<Value> {
        let mut after = before.clone();
        match &self.ask {
            Ask::Update {
                way: Way::JsonPatch,
                body,
                ..
            } => {
                let patch: json_patch::Patch = serde_json::from_value(body.clone()).ok()?;
                json_patch::patch(&mut after, &patch).ok()?;
            }
            Ask::Update { body, .. } | Ask::Create(body) | Ask::ApplyNew(_, body) => {
                json_patch::merge(&mut after, body);
            }
            Ask::Text(text) => json_patch::merge(&mut after, &serde_json::from_str(text).ok()?),
            Ask::Delete | Ask::DeleteAll => return Some(Value::Null),
            Ask::Other(..) => return Some(after),
        }
        prune(&mut after);
        match (&self.ask, self.ask.sub_resource()) {
            // Only the status goes through `/status`, and it goes nowhere else.
            (Ask::Update { .. } | Ask::Text(_), "status") => {
                for half in ["metadata", "spec"] {
                    after[half] = before[half].clone();
                }
            }
            _ => take(&mut after, "status", before, self.ask.creates()),
        }
        Some(after)
    }
}

/// The status is as it was; of what is created there is none.
fn take(after: &mut Value, field: &str, before: &Value, creates: bool) {
    match before.get(field) {
        Some(value) if !creates => after[field] = value.clone(),
        _ => {
            after.as_object_mut().map(|object| object.remove(field));
        }
    }
}

pub(crate) fn merged(before: &Value, change: &Value) -> Value {
    let mut after = before.clone();
    json_patch::merge(&mut after, change);
    after
}
