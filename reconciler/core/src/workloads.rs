//! Workloads whose pods a drain evicts: how many of their pods are available before and after.

use std::collections::BTreeMap;
use std::fmt;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use brupop_api::names::is_object_name;
use kube::core::{DynamicObject, GroupVersionKind};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::objects::{Controller, PodItem};

/// The kinds of workload that are looked at. What other kinds mean by "available" is known only to their controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// Of `apps/v1`; for a Deployment's pods it is the `ReplicaSet` that owns them.
    ReplicaSet,
    /// Of `apps/v1`.
    StatefulSet,
    /// Of `v1`.
    ReplicationController,
}

impl WorkloadKind {
    /// The kind of this name in this version.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            _ => None,
        }
    }

    /// Its name in full.
    pub fn full_name(self) -> GroupVersionKind {
        let (group, kind) = match self {
            Self::ReplicaSet => ("apps", "ReplicaSet"),
            Self::StatefulSet => ("apps", "StatefulSet"),
            Self::ReplicationController => ("", "ReplicationController"),
        };
        GroupVersionKind::gvk(group, "v1", kind)
    }
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Workload {
    /// Parses a workload that a marker names as `<apiVersion>/<kind>/<namespace>/<name>`; `None` if its kind is not
    /// looked at, or if nothing can have that name: who makes a pod chooses the name of its owner.
    pub fn parse(owner: &str) -> Option<Self> {
        let mut parts = owner.rsplitn(4, '/');
        let (name, namespace, kind, api_version) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let kind = WorkloadKind::of(api_version, kind)?;
        let named = is_object_name(namespace) && is_object_name(name);
        named.then(|| Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// How many pods a workload wants, and how many of them are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    is_leaving: bool,
    wanted: u32,
    available: u32,
}

impl Readable for Scale {
    type Kind = DynamicObject;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            deletion_timestamp: Option<IgnoredAny>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            replicas: Option<i64>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Status {
            available_replicas: Option<i64>,
        }

        let Shape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let number = |replicas: i64| u32::try_from(replicas).unwrap_or(0);
        Ok(Self {
            is_leaving: metadata.deletion_timestamp.is_some(),
            wanted: number(spec.replicas.unwrap_or(1)),
            available: number(status.available_replicas.unwrap_or(0)),
        })
    }
}

impl Scale {
    /// Returns how many of its pods are available, to be noted before some of them are evicted.
    pub fn available(self) -> u32 {
        self.available
    }

    /// Whether as many of its pods are available as before, or as many as it wants now.
    fn is_back(self, before: u32) -> bool {
        self.available >= before.min(self.wanted)
    }
}

/// What a look at a workload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundWorkload {
    /// There is none, or it is being deleted.
    Gone,
    /// It is there.
    There(Scale),
    /// It cannot be read.
    Unknown,
}

impl FoundWorkload {
    /// Returns what this object shows; `None` means that it does not exist.
    pub fn of(object: Option<&Item<Scale>>) -> Self {
        match object.map(|object| &object.body) {
            Some(Err(_)) => Self::Unknown,
            None
            | Some(Ok(Scale {
                is_leaving: true, ..
            })) => Self::Gone,
            Some(Ok(scale)) => Self::There(*scale),
        }
    }
}

/// Returns the state of these owners of evicted pods, each with the number of its pods that were available before. `found`
/// returns what was found of an owner, or `None` as long as that is not known; then the result is unknown, too.
pub fn evicted(
    owners: &BTreeMap<String, u32>,
    found: impl Fn(&str) -> Option<FoundWorkload>,
) -> Evicted<'_> {
    let mut evicted = Evicted::Back;
    for (owner, before) in owners {
        match found(owner) {
            None => return Evicted::Unknown,
            Some(FoundWorkload::There(scale))
                if evicted == Evicted::Back && !scale.is_back(*before) =>
            {
                evicted = Evicted::Missing(owner);
            }
            Some(_) => {}
        }
    }
    evicted
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}/{}",
            self.kind.full_name().kind,
            self.namespace,
            self.name
        )
    }
}

/// The workload that controls this pod, as `<apiVersion>/<kind>/<namespace>/<name>`; `None` if there is none.
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
    /// They have not been looked at yet.
    Unknown,
}

#[cfg(test)]
mod tests;
