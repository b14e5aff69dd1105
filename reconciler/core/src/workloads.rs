//! Workloads whose pods a drain evicts: how many of their pods are available before and after.

use std::collections::BTreeMap;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use brupop_api::names::is_object_name;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::objects::{Controller, PodItem};

/// The kinds of workload that are read (group, version, kind). What others mean by "available" is known only to their
/// controllers. A Deployment's pods are owned by its `ReplicaSet`.
const KINDS: [(&str, &str, &str); 3] = [
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "StatefulSet"),
    ("", "v1", "ReplicationController"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub resource: ApiResource,
    pub namespace: String,
    pub name: String,
}

impl Workload {
    /// Parses an owner of pods, `<apiVersion>/<kind>/<namespace>/<name>`; `None` if its kind is not read, or if nothing can have
    /// that name: who makes a pod chooses the name of its owner.
    pub fn parse(owner: &str) -> Option<Self> {
        let mut parts = owner.rsplitn(4, '/');
        let (name, namespace, kind, api_version) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_read = KINDS.contains(&(group, version, kind));
        let is_named = is_object_name(namespace) && is_object_name(name);
        (is_read && is_named).then(|| Self {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Number of pods that a workload wants, and how many of them are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub is_leaving: bool,
    pub wanted: u32,
    pub available: u32,
}

impl Readable for Scale {
    type Kind = DynamicObject;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let object: Value = serde_json::from_str(json)?;
        let number = |pointer, absent| {
            let number = object.pointer(pointer).and_then(Value::as_i64);
            u32::try_from(number.unwrap_or(absent)).unwrap_or(0)
        };
        Ok(Self {
            is_leaving: !object["metadata"]["deletionTimestamp"].is_null(),
            wanted: number("/spec/replicas", 1),
            available: number("/status/availableReplicas", 0),
        })
    }
}

impl Scale {
    /// Returns the scale of this object; `None` if it does not exist, is being deleted, or cannot be read.
    pub fn of(object: Option<&Item<Self>>) -> Option<Self> {
        let scale = object?.ok().copied();
        scale.filter(|scale| !scale.is_leaving)
    }

    /// Whether fewer of its pods are available than before, and than it wants now.
    fn is_short(self, before: u32) -> bool {
        self.available < before.min(self.wanted)
    }
}

/// The scales that were read, by owner; `None` for a workload that is not waited for.
pub type Scales = BTreeMap<String, Option<Scale>>;

/// Whether this owner of pods has to be read: it has not been, or it was short of pods.
pub fn is_unread(owner: &str, before: u32, scales: &Scales) -> bool {
    scales
        .get(owner)
        .is_none_or(|scale| scale.is_some_and(|scale| scale.is_short(before)))
}

/// Returns the state of these owners of evicted pods, each with the number of its pods that were available before.
pub fn evicted<'o>(owners: &'o BTreeMap<String, u32>, scales: &Scales) -> Evicted<'o> {
    let mut unread = owners
        .iter()
        .filter(|(owner, before)| {
            Workload::parse(owner).is_some() && is_unread(owner, **before, scales)
        })
        .map(|(owner, _)| owner);
    let missing = unread.clone().next();
    match missing {
        None => Evicted::Back,
        Some(_) if unread.any(|owner| !scales.contains_key(owner)) => Evicted::Unknown,
        Some(owner) => Evicted::Missing(owner),
    }
}

/// Returns the workload that controls this pod, as `<apiVersion>/<kind>/<namespace>/<name>`.
pub fn owner(pod: &PodItem) -> Option<String> {
    let Controller {
        api_version,
        kind,
        name,
    } = pod.ok()?.controller.as_ref()?;
    Some(format!("{api_version}/{kind}/{}/{name}", pod.namespace()))
}

/// The state of the workloads whose pods were evicted from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evicted<'a> {
    /// Each has as many pods available as before, or as it wants now; or there are none.
    #[default]
    Back,
    /// This one has not, `<apiVersion>/<kind>/<namespace>/<name>`.
    Missing(&'a str),
    /// They have not been read yet.
    Unknown,
}

#[cfg(test)]
mod tests;
