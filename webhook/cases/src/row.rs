//! A row: who asks what in which situation, who refuses it, and what is stored.

use crate::actor::Actor;
use crate::ask::{Ask, Request, Way};
use crate::world::{Host, World};
use brupop_api::BottlerocketShadow;
use http::Method;
use kube::Resource as _;
use serde_json::{Value, json};
use std::borrow::Cow;

const APPLY: &str = "application/apply-patch+yaml";

/// The authority that refuses, and its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Authorization: the account's roles do not allow it.
    ByRbac,
    /// The schema of the custom resource, in these words.
    BySchema(&'static str),
    ByPolicy(&'static str),
    ByWebhook(&'static str),
    /// Each of the two, also without the other, by a rule of this name.
    ByBoth(&'static str),
    /// The API server itself, with this code, in these words.
    ByServer(u16, &'static str),
}

#[derive(Clone, Debug)]
pub struct Row {
    /// Its title, a sentence for people.
    pub says: Cow<'static, str>,
    pub actor: Actor,
    /// The host whose shadow is written.
    pub of: Host,
    pub spec: Value,
    /// The shadow's status; null: it has none.
    pub status: Value,
    /// A patch that is merged into the shadow's metadata.
    pub metadata: Value,
    pub ask: Ask,
    pub dry_run: bool,
    /// Merged into the review: what no API server of ours would ask. Such a row is for the verdict alone.
    pub as_if: Value,
    pub verdict: Verdict,
    /// The verdict behind RBAC and the schema. Rows that RBAC refuses are also tried with more rights.
    pub behind: Option<Verdict>,
    /// The rule by which the webhook decides, where it does not follow from the verdicts.
    pub alone: Option<&'static str>,
    /// Whether it is answered 200 and changes nothing, although it is no dry run.
    pub stores_nothing: bool,
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
            as_if: Value::Null,
            verdict,
            behind: None,
            alone: None,
            stores_nothing: false,
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

    /// Returns what is sent to the API server; `before` is the shadow as it is stored, or would be made.
    pub fn request(&self, world: &World, before: &Value) -> Request {
        let shadows = BottlerocketShadow::url_path(&(), Some(&world.namespace));
        let name = brupop_api::names::shadow_name(&world.node(self.of).name);
        let path = match self.ask.sub_resource() {
            "" => format!("{shadows}/{name}"),
            sub_resource => format!("{shadows}/{name}/{sub_resource}"),
        };
        let json = "application/json";
        let (method, path, content_type, body) = match &self.ask {
            Ask::Update { way, body, .. } => {
                let named = json!({"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": {"name": name}});
                let (method, kind, body) = match way {
                    Way::Merge => (Method::PATCH, "application/merge-patch+json", body.clone()),
                    Way::JsonPatch => (Method::PATCH, "application/json-patch+json", body.clone()),
                    Way::Put => (Method::PUT, json, merged(before, body)),
                    Way::Apply => (Method::PATCH, APPLY, merged(&named, body)),
                };
                (method, path, kind, body.to_string())
            }
            Ask::Create(body) => {
                let made = merged(before, body).to_string();
                (Method::POST, shadows, json, made)
            }
            Ask::Delete => (Method::DELETE, path, json, String::new()),
            Ask::DeleteAll => (Method::DELETE, shadows, json, String::new()),
        };
        let dry_run = if self.dry_run { "&dryRun=All" } else { "" };
        let apply = match content_type {
            APPLY => "fieldManager=cases&force=true",
            _ => "",
        };
        Request {
            method,
            path: format!("{path}?{apply}{dry_run}"),
            content_type,
            body,
        }
    }

    /// The shadow as it would be stored, if nobody refused; null if it would be gone. None if the API server itself
    /// cannot make anything of what is asked.
    pub fn after(&self, before: &Value) -> Option<Value> {
        if self.stores_nothing {
            return Some(before.clone());
        }
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
            Ask::Update { body, .. } | Ask::Create(body) => json_patch::merge(&mut after, body),
            Ask::Delete | Ask::DeleteAll => return Some(Value::Null),
        }
        // Only the status goes through `/status`, and it goes nowhere else; what is created has none.
        let kept: &[&str] = if self.ask.sub_resource() == "status" {
            &["metadata", "spec"]
        } else {
            &["status"]
        };
        for half in kept {
            match before.get(half) {
                Some(value) if !self.ask.creates() => after[half] = value.clone(),
                _ => drop(after.as_object_mut()?.remove(*half)),
            }
        }
        Some(after)
    }
}

pub(crate) fn merged(before: &Value, change: &Value) -> Value {
    let mut after = before.clone();
    json_patch::merge(&mut after, change);
    after
}
