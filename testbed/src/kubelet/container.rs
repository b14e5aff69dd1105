//! From a pod's specification to the command line and environment of a process. Pure.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Data of `ConfigMap` objects, by name.
pub(crate) type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

/// Why a container cannot be run.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Unrunnable {
    #[error("the pod must have exactly one container, with a command")]
    NotOneCommand,
    #[error("there is no program for the command {0:?}")]
    NoProgram(String),
    #[error("variable {variable}: {missing} is missing")]
    Missing { variable: String, missing: String },
    #[error("variable {0}: this source is not known to the test bed")]
    UnknownSource(String),
}

/// What to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// The program as the image names it, and its arguments.
    pub command: Vec<String>,
    /// The environment, later values in place of earlier ones.
    pub environment: BTreeMap<String, String>,
}

/// The only container of a pod.
pub(crate) fn only_container(pod: &Pod) -> Result<&Container, Unrunnable> {
    match pod.spec.as_ref().map(|spec| spec.containers.as_slice()) {
        Some([container]) if container.command.as_ref().is_some_and(|command| !command.is_empty()) => {
            Ok(container)
        }
        _ => Err(Unrunnable::NotOneCommand),
    }
}

/// Names of the `ConfigMap` objects that a container's environment is taken from.
pub(crate) fn config_maps(container: &Container) -> Vec<String> {
    let whole = container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref());
    let sources = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref());
    let keys = sources.filter_map(|source| source.config_map_key_ref.as_ref());
    whole.map(|from| from.name.clone()).chain(keys.map(|key| key.name.clone())).collect()
}

/// Command and environment as the kubelet makes them; `overrides` come last. In all values, paths of the container
/// become those of `paths`.
pub(crate) fn command_line(
    pod: &Pod,
    maps: &ConfigMaps,
    overrides: &[(String, String)],
    paths: &[(PathBuf, PathBuf)],
) -> Result<CommandLine, Unrunnable> {
    let container = only_container(pod)?;
    let mut environment = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let Some(source) = &from.config_map_ref else {
            return Err(Unrunnable::UnknownSource(prefix.to_owned()));
        };
        match maps.get(&source.name) {
            Some(data) => environment.extend(data.iter().map(|(k, v)| (format!("{prefix}{k}"), v.clone()))),
            None if source.optional == Some(true) => {}
            None => return Err(missing(prefix, format!("ConfigMap {}", source.name))),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, pod, maps, &environment)? {
            environment.insert(variable.name.clone(), value);
        }
    }
    let words = container.command.iter().chain(&container.args).flatten();
    let command = words.map(|word| outside(&expand(word, &environment), paths)).collect();
    environment.extend(overrides.iter().cloned());
    for value in environment.values_mut() {
        *value = outside(value, paths);
    }
    Ok(CommandLine { command, environment })
}

/// Which paths of the container are where outside of it: its host paths, below `root` instead of the host's root.
/// The boot id needs no volume: every container sees the host's.
pub(crate) fn host_paths(pod: &Pod, container: &Container, root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let host: BTreeMap<_, _> =
        volumes.filter_map(|volume| Some((&volume.name, &volume.host_path.as_ref()?.path))).collect();
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mounts = container.volume_mounts.iter().flatten();
    let mounted =
        mounts.filter_map(|mount| Some((PathBuf::from(&mount.mount_path), below(host.get(&mount.name)?))));
    mounted.chain([(PathBuf::from(BOOT_ID), below(BOOT_ID))]).collect()
}

/// Where a kernel shows its boot id.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn value_of(
    variable: &EnvVar,
    pod: &Pod,
    maps: &ConfigMaps,
    before: &BTreeMap<String, String>,
) -> Result<Option<String>, Unrunnable> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), before)));
    };
    if let Some(field) = &source.field_ref {
        let value = field_of(pod, &field.field_path);
        return value.map(Some).ok_or_else(|| missing(&variable.name, field.field_path.clone()));
    }
    if let Some(key) = &source.config_map_key_ref {
        return match maps.get(&key.name).and_then(|data| data.get(&key.key)) {
            None if key.optional == Some(true) => Ok(None),
            None => Err(missing(&variable.name, format!("key {} of ConfigMap {}", key.key, key.name))),
            found => Ok(found.cloned()),
        };
    }
    Err(Unrunnable::UnknownSource(variable.name.clone()))
}

fn field_of(pod: &Pod, path: &str) -> Option<String> {
    let quoted = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    if let Some(key) = quoted("metadata.labels['") {
        return pod.labels().get(key).cloned();
    }
    if let Some(key) = quoted("metadata.annotations['") {
        return pod.annotations().get(key).cloned();
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "spec.nodeName" => spec?.node_name.clone(),
        "spec.serviceAccountName" => spec?.service_account_name.clone(),
        "status.podIP" => pod.status.as_ref()?.pod_ip.clone(),
        _ => None,
    }
}

fn missing(variable: &str, missing: String) -> Unrunnable {
    Unrunnable::Missing { variable: variable.to_owned(), missing }
}

/// Puts in variables written as `$(NAME)`; those that are not known stay as they are, `$$` is `$`.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let variable = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((value, after)) =
            variable.and_then(|(name, after)| Some((variables.get(name)?, after)))
        {
            expanded.push_str(value);
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded + rest
}

/// Replaces a path, alone or behind `--flag=`.
fn outside(word: &str, paths: &[(PathBuf, PathBuf)]) -> String {
    let (flag, path) = match word.split_once('=') {
        Some((flag, path)) if flag.starts_with("--") => (Some(flag), path),
        _ => (None, word),
    };
    let moved = paths.iter().find_map(|(inside, outside)| {
        let rest = Path::new(path).strip_prefix(inside).ok()?;
        let moved = if rest.as_os_str().is_empty() { outside.clone() } else { outside.join(rest) };
        Some(moved.to_string_lossy().into_owned())
    });
    match (moved, flag) {
        (Some(path), Some(flag)) => format!("{flag}={path}"),
        (Some(path), None) => path,
        (None, _) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(container: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"l": "label"}},
            "spec": {
                "nodeName": "n", "serviceAccountName": "sa", "containers": [container],
                "volumes": [{"name": "api", "hostPath": {"path": "/run/api.sock"}}],
            },
        }))
        .unwrap()
    }

    fn maps() -> ConfigMaps {
        let data = [("A", "1"), ("B", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        ConfigMaps::from([("map".to_owned(), BTreeMap::from(data))])
    }

    fn environment(env: &Value) -> Result<BTreeMap<String, String>, Unrunnable> {
        let container = json!({"name": "c", "command": ["/c"], "env": env});
        command_line(&pod(&container), &maps(), &[], &[]).map(|line| line.environment)
    }

    #[test]
    fn variables_are_resolved_as_the_kubelet_does() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let key = |key: &str, optional: bool| json!({"configMapKeyRef": {"name": "map", "key": key, "optional": optional}});
        for (source, expected) in [
            (json!({"value": "plain"}), Ok(Some("plain"))),
            (json!({}), Ok(Some(""))),
            (json!({"valueFrom": field("metadata.name")}), Ok(Some("p"))),
            (json!({"valueFrom": field("metadata.namespace")}), Ok(Some("ns"))),
            (json!({"valueFrom": field("metadata.uid")}), Ok(Some("u"))),
            (json!({"valueFrom": field("spec.nodeName")}), Ok(Some("n"))),
            (json!({"valueFrom": field("spec.serviceAccountName")}), Ok(Some("sa"))),
            (json!({"valueFrom": field("metadata.labels['l']")}), Ok(Some("label"))),
            (json!({"valueFrom": field("status.podIP")}), Err(missing("X", "status.podIP".to_owned()))),
            (json!({"valueFrom": key("A", false)}), Ok(Some("1"))),
            (json!({"valueFrom": key("C", true)}), Ok(None)),
            (json!({"valueFrom": key("C", false)}), Err(missing("X", "key C of ConfigMap map".to_owned()))),
            (
                json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
                Err(Unrunnable::UnknownSource("X".to_owned())),
            ),
        ] {
            let mut variable = source.clone();
            variable["name"] = json!("X");
            let found = environment(&json!([variable]));
            assert_eq!(
                found.map(|env| env.get("X").map(String::to_owned)),
                expected.map(|v| v.map(str::to_owned)),
                "{source}"
            );
        }
    }

    #[test]
    fn variables_override_maps_and_paths_are_translated() {
        let container = json!({
            "name": "c", "command": ["/c"], "args": ["--id=$(A)", "--socket=/run/api.sock", "$(NONE)", "$$(A)"],
            "envFrom": [{"configMapRef": {"name": "map"}}],
            "env": [{"name": "A", "value": "own"}, {"name": "C", "value": "$(A)$(B)"}],
            "volumeMounts": [{"name": "api", "mountPath": "/run/api.sock"}],
        });
        let pod = pod(&container);
        let paths = host_paths(&pod, only_container(&pod).unwrap(), Path::new("/root"));
        let overrides = [("D".to_owned(), BOOT_ID.to_owned()), ("B".to_owned(), "over".to_owned())];
        let line = command_line(&pod, &maps(), &overrides, &paths).unwrap();
        assert_eq!(line.command, ["/c", "--id=own", "--socket=/root/run/api.sock", "$(NONE)", "$(A)"]);
        let expected =
            [("A", "own"), ("B", "over"), ("C", "own2"), ("D", "/root/proc/sys/kernel/random/boot_id")];
        assert_eq!(line.environment, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(config_maps(only_container(&pod).unwrap()), ["map"]);
    }

    #[test]
    fn a_missing_map_or_command_is_named() {
        let container =
            json!({"name": "c", "command": ["/c"], "envFrom": [{"configMapRef": {"name": "none"}}]});
        let error = command_line(&pod(&container), &maps(), &[], &[]).unwrap_err();
        assert_eq!(error, missing("", "ConfigMap none".to_owned()));
        let error = command_line(&pod(&json!({"name": "c"})), &maps(), &[], &[]).unwrap_err();
        assert_eq!(error, Unrunnable::NotOneCommand);
    }
}
