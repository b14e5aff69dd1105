//! The shipped operator on the test bed: its manifests as users apply them, its programs as their pods describe them.

use crate::control_plane::{ControlPlane, Options};
use crate::host::lock;
use crate::kubelet::Program;
use crate::nodes::NewNode;
use anyhow::{Context as _, Result, ensure};
use brupop_api::names;
use brupop_api::settings::Program as Settings;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::{Value as Json, from_value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use tokio::sync::OnceCell;

pub use crate::control_plane::NAMESPACE;

/// Makes a namespace where no controller runs, with the account that its pods need.
pub async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": name}}))?;
    let account: ServiceAccount = from_value(json!({"metadata": {"name": "default"}}))?;
    let (params, namespaces) = (PostParams::default(), Api::all(client.clone()));
    namespaces.create(&params, &namespace).await?;
    let accounts = Api::namespaced(client.clone(), name);
    accounts.create(&params, &account).await?;
    Ok(())
}

/// Label of the nodes that reconciler and webhook run on, if these are not the nodes that are updated.
pub(crate) const INFRASTRUCTURE: &str = "testbed/infrastructure";

/// The warning of API servers whenever agents are applied, for the namespace warns of what `restricted` refuses.
pub const AGENT_WARNING: &str = "Warning: would violate PodSecurity \"restricted:latest\": seLinuxOptions (pod set \
     forbidden securityContext.seLinuxOptions: type \"control_t\"; user may not be set; role may not be set), restricted \
     volume types (volume \"bottlerocket-api\" uses restricted volume type \"hostPath\")";

/// Commands of the containers in `manifests/`, and their settings.
const PROGRAMS: [(&str, Settings); 3] = [
    ("brupop-agent", Settings::Agent),
    ("brupop-reconciler", Settings::Reconciler),
    ("brupop-webhook", Settings::Webhook),
];

/// The folder with those of the operator's programs that are `wanted`: `BRUPOP_BINARIES`, or as [`built`].
pub fn binaries(wanted: &[&str]) -> Result<PathBuf> {
    let Some(folder) = std::env::var_os("BRUPOP_BINARIES") else {
        return built(wanted);
    };
    // Pods have working folders of their own.
    let folder = std::path::absolute(folder)?;
    for name in wanted {
        let binary = folder.join(name);
        ensure!(
            binary.is_file(),
            "BRUPOP_BINARIES has no {}",
            binary.display()
        );
    }
    Ok(folder)
}

/// Builds these programs of the workspace, once, beside the program that asks, and returns their folder. They are built as
/// `cargo test --workspace` builds them.
pub fn built(wanted: &[&str]) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let here = std::env::current_exe()?;
    // Tests are in `deps`, programs beside it.
    let folder = here.parent().context("no folder")?;
    let folder = if folder.ends_with("deps") {
        folder.parent().context("no folder")?
    } else {
        folder
    };
    let mut all = lock(&BUILT);
    if wanted.iter().all(|name| all.contains(*name)) {
        return Ok(folder.to_owned());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--quiet", "--workspace"]);
    cargo.args(folder.ends_with("release").then_some("--release"));
    cargo.args(wanted.iter().flat_map(|name| ["--bin", name]));
    cargo
        .arg("--target-dir")
        .arg(folder.parent().context("no folder")?);
    // Variables that cargo sets for this test's own package. The build script of `ring` asks for it: with other values, and the next
    // time without them, everything above it would be built again.
    let of_package = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(name)) {
        cargo.env_remove(name);
    }
    let built = cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::null())
        .status()?;
    ensure!(built.success(), "{wanted:?} cannot be built: {built}");
    all.extend(wanted.iter().map(|name| (*name).to_owned()));
    Ok(folder.to_owned())
}

/// The operator's programs, which are built if need be, by the commands of its containers. `env` comes after the variables of
/// the pods; each program gets what is not another one's setting.
pub fn programs(env: &[(&str, &str)]) -> Result<Vec<(String, Program)>> {
    only(&PROGRAMS.map(|(name, _)| name), env)
}

/// Variables with their values.
pub fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// As [`programs`], of these programs only.
pub fn only(wanted: &[&str], env: &[(&str, &str)]) -> Result<Vec<(String, Program)>> {
    let binaries = binaries(wanted)?;
    let program = |(name, of): (&str, Settings)| {
        let mut env = owned(env);
        env.retain(|(variable, _)| of.misplaced(variable).is_none());
        let program = Program {
            binary: binaries.join(name),
            env,
        };
        (format!("/{name}"), program)
    };
    Ok(PROGRAMS
        .into_iter()
        .filter(|(name, _)| wanted.contains(name))
        .map(program)
        .collect())
}

/// `kubectl apply -k kustomize/overlays/<overlay>`, or of the whole path of a folder; what it said is returned.
pub async fn apply_overlay(
    control_plane: &ControlPlane,
    overlay: impl AsRef<Path>,
) -> Result<String> {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../kustomize/overlays"
    ))
    .join(overlay);
    let output = control_plane
        .kubectl_output(["apply".as_ref(), "-k".as_ref(), path.as_os_str()])
        .await?;
    let warnings = unexpected_warnings(&output);
    ensure!(
        output.status.success() && warnings.is_empty(),
        "kubectl apply -k {}: {warnings}",
        path.display()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// A control plane with the default overlay in it. It is installed once in each process, and copied before anything has run
/// or led: ages are those of the first, and UIDs are equal.
pub async fn installed(options: Options) -> Result<ControlPlane> {
    static FIRST: OnceCell<ControlPlane> = OnceCell::const_new();
    let install = async || {
        let mut first = ControlPlane::start(Options::API).await?;
        apply_overlay(&first, "default").await?;
        first.kill("kube-apiserver").await?;
        first.kill("etcd").await?;
        anyhow::Ok(first)
    };
    ControlPlane::start_copy(FIRST.get_or_try_init(install).await?, options).await
}

/// Three nodes that are not opted in, and the default overlay with reconciler and webhook on them.
pub async fn apply_elsewhere(control_plane: &ControlPlane) -> Result<String> {
    for number in 0..3 {
        let mut node = NewNode::numbered(number);
        node.name = format!("infrastructure-{number}");
        node.labels.remove(names::UPDATER_INTERFACE_LABEL);
        node.labels
            .insert(INFRASTRUCTURE.to_owned(), "true".to_owned());
        node.create(&control_plane.client())
            .await
            .with_context(|| node.name.clone())?;
    }
    let selector = json!({"kubernetes.io/os": "linux", INFRASTRUCTURE: "true"});
    let there =
        json!([{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": selector}]);
    let patch = |name: &str| json!({"target": {"kind": "Deployment", "name": name}, "patch": there.to_string()});
    let overlay = json!({
        "resources": ["kustomize/overlays/default"],
        "patches": [patch("brupop-reconciler"), patch("brupop-webhook")],
    });
    let overlay = throw_away_overlay(control_plane, "elsewhere", overlay)?;
    apply_overlay(control_plane, overlay).await
}

/// Returns what kubectl said on standard error, but for [`AGENT_WARNING`].
fn unexpected_warnings(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .filter(|line| *line != AGENT_WARNING)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The objects of the overlay in this folder, in the order in which `kubectl apply -k` applies them.
pub async fn rendered(control_plane: &ControlPlane, overlay: &Path) -> Result<Vec<Json>> {
    let text = control_plane
        .kubectl(["kustomize".as_ref(), overlay.as_os_str()])
        .await?;
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents
        .map(|document| Ok(Json::deserialize(document)?))
        .collect()
}

/// A throw-away overlay of this name, for [`apply_overlay`] or `kubectl kustomize`. Its `resources` and `components` are
/// paths in this repository, or begin with `../` and are other throw-away overlays.
pub fn throw_away_overlay(
    control_plane: &ControlPlane,
    name: &str,
    mut kustomization: Json,
) -> Result<PathBuf> {
    let folder = control_plane.dir().join(name);
    std::fs::create_dir_all(&folder)?;
    // kustomize takes relative paths only.
    let up: String = folder
        .canonicalize()?
        .components()
        .skip(1)
        .map(|_| "../")
        .collect();
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize()?;
    let repository = up
        + repository
            .strip_prefix("/")?
            .to_str()
            .context("a path of letters")?;
    for list in ["resources", "components"] {
        for path in kustomization
            .get_mut(list)
            .and_then(Json::as_array_mut)
            .into_iter()
            .flatten()
        {
            let told = path.as_str().context("a path")?;
            if !told.starts_with("../") {
                *path = json!(format!("{repository}/{told}"));
            }
        }
    }
    kustomization["apiVersion"] = json!("kustomize.config.k8s.io/v1beta1");
    kustomization["kind"] = json!("Kustomization");
    std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string())?;
    Ok(folder)
}
