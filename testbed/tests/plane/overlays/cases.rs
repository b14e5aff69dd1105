//! The rendered cases: every overlay, every component on the default one, and some together; as they are, and under another
//! namespace and other names.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::ControlPlane;
use brupop_testbed::operator::{NAMESPACE, throw_away_overlay};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

use crate::overlays::references::text;

const KUSTOMIZE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kustomize");
const ELSEWHERE: &str = "updates";
const PREFIX: &str = "team-";
const SUFFIX: &str = "-blue";

/// The component that needs another overlay around one that changes names.
const WITH_NAMES: &str = "cert-manager";

#[derive(Clone, Debug)]
pub struct Case {
    pub overlay: String,
    pub components: Vec<String>,
    /// Under another namespace and other names.
    pub renamed: bool,
}

impl Case {
    pub fn new(overlay: &str, components: &[&str]) -> Self {
        let components = components.iter().map(ToString::to_string).collect();
        Self {
            overlay: overlay.to_owned(),
            components,
            renamed: false,
        }
    }

    /// As a folder would be called.
    pub fn name(&self) -> String {
        let parts: Vec<_> = std::iter::once(self.overlay.as_str())
            .chain(self.components.iter().map(String::as_str))
            .chain(self.renamed.then_some("renamed"))
            .collect();
        parts.join("+")
    }

    pub fn namespace(&self) -> &'static str {
        if self.renamed { ELSEWHERE } else { NAMESPACE }
    }

    pub fn has_component(&self, component: &str) -> bool {
        self.components.iter().any(|name| name == component)
    }

    /// Returns what bears a name or a namespace of the default overlay although this has others.
    pub fn foreign(&self, objects: &[Json]) -> Vec<String> {
        let mut wrong = Vec::new();
        for object in objects {
            let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
            let namespace = object["metadata"].get("namespace").and_then(Json::as_str);
            if namespace.is_some_and(|namespace| namespace != self.namespace()) {
                wrong.push(format!("{kind} {name} is in {namespace:?}"));
            }
            if !self.renamed {
                continue;
            }
            if object.to_string().contains(NAMESPACE) {
                wrong.push(format!("{kind} {name} speaks of {NAMESPACE}"));
            }
            let expected = match kind {
                "Namespace" => name == ELSEWHERE,
                "CustomResourceDefinition" => name.ends_with(".brupop.bottlerocket.aws"),
                // A hash comes after the name, but of what no pod mounts.
                "ConfigMap" if object["metadata"]["labels"]["grafana_dashboard"] != "1" => {
                    name.starts_with(PREFIX) && name.contains(&format!("{SUFFIX}-"))
                }
                _ => name.starts_with(PREFIX) && name.ends_with(SUFFIX),
            };
            if !expected {
                wrong.push(format!("{kind} is called {name}"));
            }
        }
        wrong
    }

    /// Writes it as people would; returns its folder.
    pub fn write(&self, control_plane: &ControlPlane) -> Result<PathBuf> {
        let name = self.name();
        let components: Vec<_> = self
            .components
            .iter()
            .map(|component| format!("kustomize/components/{component}"))
            .collect();
        let mut overlay = json!({
            "resources": [format!("kustomize/overlays/{}", self.overlay)], "components": components,
        });
        if self.renamed {
            overlay["namespace"] = json!(ELSEWHERE);
            overlay["namePrefix"] = json!(PREFIX);
            overlay["nameSuffix"] = json!(SUFFIX);
        }
        let folder = throw_away_overlay(control_plane, &name, overlay)?;
        if !(self.renamed && self.has_component(WITH_NAMES)) {
            return Ok(folder);
        }
        let names = format!("kustomize/components/{WITH_NAMES}/names");
        let around = json!({"resources": [format!("../{name}")], "components": [names]});
        throw_away_overlay(control_plane, &format!("{name}+names"), around)
    }
}

/// The folders' own lists, so that none can be forgotten.
pub fn all() -> Result<Vec<Case>> {
    let (overlays, components) = (folders("overlays")?, folders("components")?);
    ensure!(
        overlays.len() >= 4 && components.len() >= 7,
        "{overlays:?} {components:?}"
    );
    let alone = overlays.iter().map(|overlay| Case::new(overlay, &[]));
    let each = components
        .iter()
        .map(|component| Case::new("default", &[component]));
    let names: Vec<_> = components.iter().map(String::as_str).collect();
    let reversed: Vec<_> = names.iter().copied().rev().collect();
    // Their order does not matter.
    let every = |overlay: &String| Case::new(overlay, &names);
    let together = overlays.iter().map(every).chain([
        Case::new("default", &reversed),
        Case::new("single-node", &["host-network", "force-drain"]),
    ]);
    let as_they_are: Vec<_> = alone.chain(each).chain(together).collect();
    let renamed = as_they_are.iter().map(|case| Case {
        renamed: true,
        ..case.clone()
    });
    Ok(as_they_are.iter().cloned().chain(renamed).collect())
}

fn folders(kind: &str) -> Result<Vec<String>> {
    let path = format!("{KUSTOMIZE}/{kind}");
    let entries = std::fs::read_dir(&path).context(path)?;
    let folders = entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()));
    let mut names = folders
        .map(|entry| {
            entry?
                .file_name()
                .into_string()
                .ok()
                .context("a name of letters")
        })
        .collect::<Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
