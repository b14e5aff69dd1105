//! From a pod's specification to the command line and environment of a process, as far as our manifests go: what they do not
//! use is an error. Pure.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Data of `ConfigMap` objects, by name.
pub(crate) type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

pub(crate) struct CommandLine {
    /// The program as the image names it, and its arguments.
    pub command: Vec<String>,
    /// The environment, later values in place of earlier ones.
    pub environment: BTreeMap<String, String>,
}

pub(crate) fn only_container(pod: &Pod) -> Result<&Container> {
    match pod.spec.as_ref().map(|spec| spec.containers.as_slice()) {
        Some([container])
            if container
                .command
                .as_ref()
                .is_some_and(|command| !command.is_empty()) =>
        {
            Ok(container)
        }
        _ => bail!("the pod must have exactly one container, with a command"),
    }
}

/// Names of the `ConfigMap` objects that a container's environment is taken from.
pub(crate) fn config_maps(container: &Container) -> Result<Vec<String>> {
    let sources = container.env_from.iter().flatten();
    let map = sources.map(|from| {
        from.config_map_ref
            .as_ref()
            .filter(|_| from.prefix.is_none())
    });
    let names = map.map(|map| {
        map.map(|map| map.name.clone())
            .context("a source that is no ConfigMap")
    });
    names.collect()
}

/// Command and environment as the kubelet makes them; `overrides` come last. In all variables, paths of the container
/// become those of `paths`.
pub(crate) fn command_line(
    pod: &Pod,
    maps: &ConfigMaps,
    overrides: &[(String, String)],
    paths: &[(PathBuf, PathBuf)],
) -> Result<CommandLine> {
    let container = only_container(pod)?;
    let mut environment = BTreeMap::new();
    for name in config_maps(container)? {
        environment.extend(
            maps.get(&name)
                .with_context(|| format!("there is no ConfigMap {name}"))?
                .clone(),
        );
    }
    for variable in container.env.iter().flatten() {
        environment.insert(variable.name.clone(), value_of(variable, pod)?);
    }
    environment.extend(overrides.iter().cloned());
    for value in environment.values_mut() {
        *value = outside(value, paths);
    }
    let words = container.command.iter().chain(&container.args).flatten();
    Ok(CommandLine {
        command: words.cloned().collect(),
        environment,
    })
}

/// Returns which paths of the container are where outside of it: its host paths, below `root` instead of the host's root. The
/// boot id needs no volume: every container sees the host's.
pub(crate) fn host_paths(pod: &Pod, container: &Container, root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let host: BTreeMap<_, _> = volumes
        .filter_map(|volume| Some((&volume.name, &volume.host_path.as_ref()?.path)))
        .collect();
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mounts = container.volume_mounts.iter().flatten();
    let mounted = mounts.filter_map(|mount| {
        Some((
            PathBuf::from(&mount.mount_path),
            below(host.get(&mount.name)?),
        ))
    });
    mounted
        .chain([(PathBuf::from(BOOT_ID), below(BOOT_ID))])
        .collect()
}

/// The file with the kernel's boot id.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn value_of(variable: &EnvVar, pod: &Pod) -> Result<String> {
    let Some(source) = &variable.value_from else {
        return Ok(variable.value.clone().unwrap_or_default());
    };
    match source
        .field_ref
        .as_ref()
        .map(|field| field.field_path.as_str())
    {
        Some("metadata.name") => Ok(pod.name_any()),
        _ => bail!(
            "the source of {} is not known to the test bed",
            variable.name
        ),
    }
}

fn outside(path: &str, paths: &[(PathBuf, PathBuf)]) -> String {
    let found = paths.iter().find(|(inside, _)| Path::new(path) == inside);
    found.map_or_else(
        || path.to_owned(),
        |(_, outside)| outside.to_string_lossy().into_owned(),
    )
}
