//! Workloads whose pods a drain evicts: which of them were available before, and which are again; and, in
//! [`returns`], whose pods come back to the node each time.

pub mod returns;

use std::fmt;

use brupop_api::item::{Readable, Unreadable, null_as_default};
use brupop_api::marker::{Before, Revision};
use brupop_api::names::is_object_name;
use brupop_api::{Item, Marker};
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
    /// Of `apps/v1`. Its pods are not evicted; it matters only whether it is there.
    DaemonSet,
}

impl WorkloadKind {
    /// The kind of this name in this version.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "DaemonSet") => Some(Self::DaemonSet),
            _ => None,
        }
    }

    /// Its name in full.
    pub fn full_name(self) -> GroupVersionKind {
        let (group, kind) = match self {
            Self::ReplicaSet => ("apps", "ReplicaSet"),
            Self::StatefulSet => ("apps", "StatefulSet"),
            Self::ReplicationController => ("", "ReplicationController"),
            Self::DaemonSet => ("apps", "DaemonSet"),
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
        named.then(|| Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// What is read of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    is_leaving: bool,
    /// Has its controller seen its latest version?
    observed: bool,
    wanted: i64,
    available: i64,
    /// Which revision its pods are to have, if it has revisions.
    revision: Option<Revision>,
    /// Which one some of them still have, if it is a `StatefulSet` in the middle of a roll-out. Of one whose strategy is
    /// `OnDelete`, Kubernetes may name the earlier revision for ever, so the number of pods tells.
    earlier: Option<Revision>,
    /// Its Deployment rolls out another `ReplicaSet`, and has taken pods from this one.
    is_replaced: bool,
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
            generation: Option<i64>,
            #[serde(default)]
            deletion_timestamp: Option<IgnoredAny>,
            #[serde(default, deserialize_with = "null_as_default")]
            annotations: Annotations,
        }

        #[derive(Default, Deserialize)]
        struct Annotations {
            /// How many pods its Deployment wants in all, of this `ReplicaSet` and of others.
            #[serde(rename = "deployment.kubernetes.io/desired-replicas")]
            of_deployment: Option<String>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            replicas: Option<i64>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Status {
            observed_generation: Option<i64>,
            replicas: Option<i64>,
            available_replicas: Option<i64>,
            updated_replicas: Option<i64>,
            current_revision: Option<String>,
            update_revision: Option<String>,
        }

        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        let wanted = spec.replicas.unwrap_or(1);
        let of_deployment = metadata.annotations.of_deployment.and_then(|number| number.parse().ok());
        let rolls_out = status.updated_replicas < status.replicas;
        let revision = |name: Option<String>| name.as_deref().and_then(Revision::of);
        Ok(Self {
            is_leaving: metadata.deletion_timestamp.is_some(),
            observed: metadata.generation.is_none_or(|latest| status.observed_generation >= Some(latest)),
            wanted,
            available: status.available_replicas.unwrap_or(0),
            revision: revision(status.update_revision),
            earlier: revision(status.current_revision.filter(|_| rolls_out)),
            is_replaced: of_deployment.is_some_and(|all: i64| all > wanted),
        })
    }
}

impl Scale {
    /// How it is now, to be noted before its pods are evicted; `None` if it is not available. In the middle of a roll-out that
    /// is the revision that is being replaced: a pod that is made again may get the other one.
    pub fn before(&self) -> Option<Before> {
        let Self { available, revision, earlier, .. } = self;
        let available = u32::try_from(*available).unwrap_or(0);
        let revision = earlier.as_ref().or(revision.as_ref());
        self.is_back(None).then(|| Before { available, revision: revision.cloned() })
    }

    /// Are as many of its pods available as before, or as many as it wants now? If nothing was noted: as many as it wants.
    fn is_back(&self, before: Option<&Before>) -> bool {
        let enough = before.map_or(self.wanted, |before| self.wanted.min(before.available.into()));
        self.observed && self.available >= enough
    }

    /// Has somebody begun to put other pods in the place of those that were evicted?
    fn is_changed(&self, before: Option<&Before>) -> bool {
        let revision = before.and_then(|before| before.revision.as_ref());
        self.is_replaced || revision.is_some_and(|before| self.revision.as_ref() != Some(before))
    }
}

/// What a look at a workload found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundWorkload {
    /// There is none, or it is being deleted.
    Gone,
    /// It is there. It is not known whether its controller has observed its latest version yet.
    There(Scale),
    /// It cannot be read.
    Unknown,
}

impl FoundWorkload {
    /// What this object of this kind shows; `None` means that it does not exist. Of a `DaemonSet` nothing else matters.
    pub fn of(kind: WorkloadKind, object: Option<&Item<Scale>>) -> Self {
        let Some(object) = object else { return Self::Gone };
        match &object.body {
            Err(_) => Self::Unknown,
            Ok(Scale { is_leaving: true, .. }) => Self::Gone,
            Ok(scale) if kind == WorkloadKind::DaemonSet => {
                Self::There(Scale { wanted: 0, available: 0, observed: true, ..scale.clone() })
            }
            Ok(scale) => Self::There(scale.clone()),
        }
    }
}

/// Has this pod lost the `DaemonSet` that made it? `found` as in [`evicted`].
pub fn orphaned(pod: &PodItem, found: impl Fn(&str) -> Option<FoundWorkload>) -> bool {
    owner(pod).is_some_and(|owner| {
        let daemon = Workload::parse(&owner).is_some_and(|workload| workload.kind == WorkloadKind::DaemonSet);
        daemon && found(&owner) == Some(FoundWorkload::Gone)
    })
}

/// A workload whose pods were evicted, in the words of [`owner`], and how it was before, if that was noted.
pub type EvictedOwner = (String, Option<Before>);

/// Those that this marker names.
pub fn evicted_owners(marker: &Marker) -> Vec<EvictedOwner> {
    marker.evicted().map(|(owner, before)| (owner.clone(), before.cloned())).collect()
}

/// The state of these owners of evicted pods. The first one that exists and is not back is missing, and of several one that
/// nobody has changed. `found` returns what was found of an owner, or `None` as long as that is not known; then the result is
/// unknown, too.
pub fn evicted(owners: &[EvictedOwner], found: impl Fn(&str) -> Option<FoundWorkload>) -> Evicted<'_> {
    let mut evicted = Evicted::Back;
    for (owner, before) in owners {
        let Some(found) = found(owner) else { return Evicted::Unknown };
        let FoundWorkload::There(scale) = found else { continue };
        let changed = scale.is_changed(before.as_ref());
        let says_more = match evicted {
            Evicted::Missing { changed: known, .. } => known && !changed,
            _ => true,
        };
        if says_more && !scale.is_back(before.as_ref()) {
            evicted = Evicted::Missing { owner, changed };
        }
    }
    evicted
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.full_name().kind, self.namespace, self.name)
    }
}

/// The workload that controls this pod, as `<apiVersion>/<kind>/<namespace>/<name>`; `None` if there is none.
pub fn owner(pod: &PodItem) -> Option<String> {
    let Controller { api_version, kind, name } = pod.ok()?.controller.as_ref()?;
    Some(format!("{api_version}/{kind}/{}/{name}", pod.namespace()))
}

/// The state of the workloads whose pods were evicted from a node and that were available before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evicted<'a> {
    /// All are available again, as far as they were, or there are none.
    #[default]
    Back,
    /// One is not.
    Missing {
        /// Which, as `<apiVersion>/<kind>/<namespace>/<name>`.
        owner: &'a str,
        /// Somebody has changed it since: its pods are of another revision, or of another `ReplicaSet`.
        changed: bool,
    },
    /// They have not been looked at yet.
    Unknown,
}

#[cfg(test)]
mod tests;
