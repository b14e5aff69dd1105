//! Workloads whose pods a drain evicts: which of them were available before, and which are again. Pure.

use std::fmt;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use kube::core::{DynamicObject, GroupVersionKind};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::facts::Evicted;
use crate::objects::{Controller, PodItem};

/// Longest name of an object, by Kubernetes' rules (a DNS subdomain).
const NAME_MAX: usize = 253;

/// The kinds of workload that are looked at. What other kinds mean by "available" is known only to their controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of `apps/v1`; for a Deployment's pods it is the `ReplicaSet` that owns them.
    ReplicaSet,
    /// Of `apps/v1`.
    StatefulSet,
    /// Of `v1`.
    ReplicationController,
    /// Of `apps/v1`. Its pods are not evicted; it matters only whether it is there.
    DaemonSet,
}

impl Kind {
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
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Workload {
    /// Parses a workload that a marker names as `<apiVersion>/<kind>/<namespace>/<name>`; `None` if its kind is not
    /// looked at, or if nothing can have that name: whoever makes a pod chooses the name of its owner, and one with `=` in
    /// it could not be asked for.
    pub fn parse(owner: &str) -> Option<Self> {
        let mut parts = owner.rsplitn(4, '/');
        let (name, namespace, kind, api_version) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let kind = Kind::of(api_version, kind)?;
        let may_be_in_it =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(may_be_in_it) {
            return None;
        }
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// What is read of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    is_leaving: bool,
    /// Has its controller seen its latest version?
    observed: bool,
    wanted: i64,
    available: i64,
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
            available_replicas: Option<i64>,
        }

        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        Ok(Self {
            is_leaving: metadata.deletion_timestamp.is_some(),
            observed: metadata.generation.is_none_or(|latest| status.observed_generation >= Some(latest)),
            wanted: spec.replicas.unwrap_or(1),
            available: status.available_replicas.unwrap_or(0),
        })
    }
}

/// What a look at a workload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none, or it is being deleted.
    Gone,
    /// As many pods are available as it wants.
    Available,
    /// Fewer pods are available than it wants, or its controller has not observed its latest version yet.
    Unavailable,
    /// It cannot be read.
    Unknown,
}

impl Found {
    /// What this object of this kind shows; `None` means that it does not exist.
    pub fn of(kind: Kind, object: Option<&Item<Scale>>) -> Self {
        let Some(object) = object else { return Self::Gone };
        match object.body {
            Err(_) => Self::Unknown,
            Ok(Scale { is_leaving: true, .. }) => Self::Gone,
            Ok(_) if kind == Kind::DaemonSet => Self::Available,
            Ok(Scale { observed: true, wanted, available, .. }) if available >= wanted => Self::Available,
            Ok(_) => Self::Unavailable,
        }
    }
}

/// Has this pod lost the `DaemonSet` that made it? `found` as in [`evicted`].
pub fn orphaned(pod: &PodItem, found: impl Fn(&str) -> Option<Found>) -> bool {
    owner(pod).is_some_and(|owner| {
        let daemon = Workload::parse(&owner).is_some_and(|workload| workload.kind == Kind::DaemonSet);
        daemon && found(&owner) == Some(Found::Gone)
    })
}

/// The state of these owners of evicted pods. The first one that exists and is not available is missing. `found`
/// returns what was found of an owner, or `None` as long as that is not known; then the result is unknown, too.
pub fn evicted(owners: &[String], found: impl Fn(&str) -> Option<Found>) -> Evicted<'_> {
    let mut evicted = Evicted::Back;
    for owner in owners {
        match found(owner) {
            None => return Evicted::Unknown,
            Some(Found::Unavailable) if evicted == Evicted::Back => evicted = Evicted::Missing(owner),
            Some(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_workload_is_read_as_it_is_written() {
        let workload = Workload::parse("apps/v1/ReplicaSet/shop/cart-5d8").unwrap();
        assert_eq!(workload.to_string(), "ReplicaSet shop/cart-5d8");
        let old = Workload::parse("v1/ReplicationController/shop/cart").unwrap();
        assert_eq!(old.kind, Kind::ReplicationController);
        for owner in
            ["batch/v1/Job/shop/tidy", "example.com/v1/ReplicaSet/shop/cart", "ReplicaSet/shop/cart", ""]
        {
            assert_eq!(Workload::parse(owner), None, "{owner}");
        }
    }

    #[test]
    fn the_first_that_is_not_available_is_missing_once_all_are_known() {
        let owners = ["a", "b", "c"].map(str::to_owned);
        for (what, found, expected) in [
            (
                "all are back",
                [Some(Found::Available), Some(Found::Gone), Some(Found::Unknown)],
                Evicted::Back,
            ),
            (
                "two are not",
                [Some(Found::Available), Some(Found::Unavailable), Some(Found::Unavailable)],
                Evicted::Missing("b"),
            ),
            (
                "one is not known yet",
                [Some(Found::Unavailable), None, Some(Found::Available)],
                Evicted::Unknown,
            ),
        ] {
            let of = |owner: &str| found[owners.iter().position(|one| one == owner).unwrap()];
            assert_eq!(evicted(&owners, of), expected, "{what}");
        }
        assert_eq!(evicted(&[], |_| None), Evicted::Back, "nobody was evicted");
    }

    #[test]
    fn available_means_as_many_as_it_wants_by_its_controllers_last_look() {
        let found = |kind, generation: i64, object: Value| {
            let mut object = object;
            object["metadata"] = json!({"name": "cart", "namespace": "shop", "generation": generation});
            object["apiVersion"] = json!("apps/v1");
            object["kind"] = json!("ReplicaSet");
            Found::of(kind, Some(&serde_json::from_value(object).unwrap()))
        };
        let status = |seen: i64, available: i64| json!({"spec": {"replicas": 3}, "status": {"observedGeneration": seen, "availableReplicas": available}});
        for (what, generation, object, expected) in [
            ("all", 2, status(2, 3), Found::Available),
            ("more, in the midst of a change of its own", 2, status(2, 4), Found::Available),
            ("one is missing", 2, status(2, 2), Found::Unavailable),
            ("not looked at since it was scaled", 3, status(2, 3), Found::Unavailable),
            ("never looked at", 1, json!({"spec": {"replicas": 1}}), Found::Unavailable),
            (
                "one, by default",
                1,
                json!({"spec": {}, "status": {"observedGeneration": 1, "availableReplicas": 1}}),
                Found::Available,
            ),
            (
                "scaled to none",
                1,
                json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 1}}),
                Found::Available,
            ),
        ] {
            for kind in [Kind::ReplicaSet, Kind::StatefulSet, Kind::ReplicationController] {
                assert_eq!(found(kind, generation, object.clone()), expected, "{what}, {kind:?}");
            }
        }
        assert_eq!(found(Kind::DaemonSet, 1, json!({})), Found::Available);
        assert_eq!(Found::of(Kind::DaemonSet, None), Found::Gone);
    }
}
