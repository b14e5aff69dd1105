//! The programs take the settings that a case gives to their containers, and know all that it sets.

use brupop_testbed::DEADLINE;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use brupop_testbed::operator::binaries;
use serde_json::Value as Json;
use tokio::process::Command;

use crate::overlays::references::{container, items, operators, text};

const PROGRAMS: [&str; 3] = ["brupop-agent", "brupop-reconciler", "brupop-webhook"];
/// The error of a program whose settings are right and that finds no cluster.
const TAKEN: &str = "the Kubernetes API is not configured";

pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub fn find() -> Result<Self> {
        let folder = binaries(&PROGRAMS)?;
        Ok(Self { folder })
    }

    /// Returns what is wrong with the settings, in the programs' own words.
    pub async fn refuse(&self, objects: &[Json]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for workload in operators(objects) {
            let container = container(workload);
            let program = text(&container["command"][0])
                .trim_start_matches('/')
                .to_owned();
            let env = environment(objects, container)?;
            let run = Command::new(self.folder.join(&program))
                .env_clear()
                .envs(env)
                .kill_on_drop(true)
                .output();
            let output = tokio::time::timeout(DEADLINE, run)
                .await
                .with_context(|| program.clone())??;
            let said = String::from_utf8([output.stdout, output.stderr].concat())?;
            if !said.contains(TAKEN) {
                wrong.push(format!("{program}: {said}"));
            }
        }
        Ok(wrong)
    }
}

/// The container's variables. What the kubelet would fill in is something or other.
fn environment(objects: &[Json], container: &Json) -> Result<Vec<(String, String)>> {
    let mut env = Vec::new();
    for from in items(&container["envFrom"]) {
        let name = &from["configMapRef"]["name"];
        let map = objects
            .iter()
            .find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == *name);
        let data = map
            .and_then(|map| map["data"].as_object())
            .with_context(|| format!("no ConfigMap {name}"))?;
        env.extend(
            data.iter()
                .map(|(name, value)| (name.clone(), text(value).to_owned())),
        );
    }
    let own = items(&container["env"]).map(|variable| {
        let value = variable["value"].as_str().unwrap_or("something");
        (text(&variable["name"]).to_owned(), value.to_owned())
    });
    env.extend(own);
    Ok(env)
}
