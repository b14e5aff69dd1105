//! Every case, rendered and taken by the API server, which is asked to refuse what its schemas do not know.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::binaries::others_definitions;
use brupop_testbed::operator::{AGENT_WARNING, rendered};
use brupop_testbed::{ControlPlane, Options};
use futures::StreamExt as _;
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use crate::overlays::cases::{self, Case};
use crate::overlays::settings::Programs;
use crate::overlays::{Applied, HOST_NETWORK_WARNING, apply, documents, references};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PARALLEL: usize = 3;
/// An image by its digest, as those name theirs who care.
const IMAGE: &str = "registry.example:5000/a/brupop@sha256:6c3c624b58dbbcd3c0dd82b4c53f04194d1247c6eebdaab7c610cf7d66709b3b";

#[tokio::test(flavor = "multi_thread")]
async fn overlays_pass_strict_validation_under_any_name() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    prepare(&control_plane).await?;
    what_it_does_not_know_is_refused(&control_plane).await?;

    let programs = Programs::find()?;
    let cases = cases::all()?;
    let rendering = cases.iter().map(async |case| {
        let objects = check(&control_plane, &programs, case).await;
        (
            case,
            objects.map_err(|wrong| format!("{}: {wrong:#}", case.name())),
        )
    });
    let rendered: Vec<_> = futures::stream::iter(rendering)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    // Most objects are the same in most cases, and each is asked about once.
    let (mut usual, mut of_host_network, mut wrong) =
        (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (case, objects) in rendered {
        let of_its_kind = if case.has_component("host-network") {
            &mut of_host_network
        } else {
            &mut usual
        };
        match objects {
            Ok(objects) => of_its_kind.extend(
                objects
                    .into_iter()
                    .map(|object| (object.to_string(), object)),
            ),
            Err(error) => wrong.push(error),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    of_host_network.retain(|text, _| !usual.contains_key(text));
    for (name, objects, warnings) in [
        ("usual", usual, &[AGENT_WARNING][..]),
        ("host-network", of_host_network, &[HOST_NETWORK_WARNING]),
    ] {
        let objects: Vec<_> = objects.into_values().collect();
        let taken = strictly(&control_plane, &documents(&control_plane, name, &objects)?).await?;
        // Of everything else, `restricted` has nothing to say.
        ensure!(
            taken.warned.iter().eq(warnings),
            "{name}: warned of {:#?}",
            taken.warned
        );
        ensure!(
            taken.said.lines().count() == objects.len(),
            "{name}: {}",
            taken.said
        );
    }

    the_release_manifest_is_taken(&control_plane).await
}

/// Others' definitions and our own, and the namespaces: a dry run makes none.
async fn prepare(control_plane: &ControlPlane) -> Result<()> {
    let definitions = others_definitions().await?;
    let folder = definitions.to_str().context("a path of letters")?;
    control_plane
        .kubectl(["apply", "--server-side", "-f", folder])
        .await?;
    control_plane
        .wait_for_condition("Established", &["-f", folder])
        .await?;
    // As the cases are: anyone who had applied them by the client would own their fields.
    for kind in ["shadow", "fleet", "pool"] {
        let file = format!("{REPOSITORY}/manifests/bottlerocket{kind}-crd.yaml");
        control_plane
            .kubectl(["apply", "--server-side", "-f", &file])
            .await?;
        control_plane
            .wait_for_condition("Established", &["-f", &file])
            .await?;
    }
    // As they ship, for API servers warn by the labels of what is there.
    for renamed in [false, true] {
        let case = Case {
            renamed,
            ..Case::new("default", &[])
        };
        let mut objects = rendered(control_plane, &case.write(control_plane)?).await?;
        objects.retain(|object| object["kind"] == "Namespace");
        apply(
            control_plane,
            &["--server-side"],
            "-f",
            &documents(control_plane, "namespace", &objects)?,
        )
        .await?;
    }
    Ok(())
}

async fn strictly(control_plane: &ControlPlane, file: &Path) -> Result<Applied> {
    apply(
        control_plane,
        &["--server-side", "--validate=strict", "--dry-run=server"],
        "-f",
        file,
    )
    .await
}

/// So that what is taken below proves something: also of definitions that are not Kubernetes' own.
async fn what_it_does_not_know_is_refused(control_plane: &ControlPlane) -> Result<()> {
    let case = Case::new("default", &["prometheus-operator", "cert-manager"]);
    let objects = rendered(control_plane, &case.write(control_plane)?).await?;
    for (kind, path, unknown) in [
        (
            "Deployment",
            "/spec/template/spec/containers/0",
            "livenesProbe",
        ),
        ("ValidatingAdmissionPolicy", "/spec", "failPolicy"),
        (
            "PodMonitor",
            "/spec/podMetricsEndpoints/0",
            "bearerTokenFile",
        ),
        ("PrometheusRule", "/spec/groups/0/rules/0", "labls"),
        ("Certificate", "/spec", "dnsName"),
    ] {
        let mut object = objects
            .iter()
            .find(|object| object["kind"] == kind)
            .context(kind)?
            .clone();
        object
            .pointer_mut(path)
            .and_then(Json::as_object_mut)
            .context(path)?
            .insert(unknown.to_owned(), json!("x"));
        let file = documents(control_plane, unknown, &[object])?;
        let refused = strictly(control_plane, &file)
            .await
            .err()
            .map(|error| error.to_string());
        let refused = refused.with_context(|| format!("{kind} with {unknown} was taken"))?;
        ensure!(
            refused.contains(unknown) && refused.contains("not declared in schema"),
            "{refused}"
        );
    }
    Ok(())
}

/// The case's objects, if they fit together and the programs take their settings.
async fn check(
    control_plane: &ControlPlane,
    programs: &Programs,
    case: &Case,
) -> Result<Vec<Json>> {
    let objects = rendered(control_plane, &case.write(control_plane)?).await?;
    let mut wrong = references::wrong(&objects);
    wrong.extend(case.foreign(&objects));
    wrong.extend(programs.refuse(&objects).await?);
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(objects)
}

/// `make yaml` into this folder.
async fn make_yaml(folder: &Path, variable: &str) -> Result<()> {
    let make = tokio::process::Command::new("make")
        .args(["--no-print-directory", "-C", REPOSITORY, "yaml", variable])
        .arg(format!("DIST={}", folder.display()))
        .env_remove("MAKEFLAGS")
        .output()
        .await?;
    ensure!(
        make.status.success(),
        "make yaml: {}",
        String::from_utf8_lossy(&make.stderr)
    );
    Ok(())
}

/// `make yaml`, with an image of one's own.
async fn the_release_manifest_is_taken(control_plane: &ControlPlane) -> Result<()> {
    let folder = control_plane.dir().join("dist");
    let file: PathBuf = folder.join("bottlerocket-update-operator.yaml");
    ensure!(
        make_yaml(&folder, "OVERLAY=none").await.is_err(),
        "there is no such overlay"
    );
    ensure!(
        std::fs::read_dir(&folder)?.next().is_none(),
        "of what failed something is left"
    );
    make_yaml(&folder, "VERSION=0.2.0").await?;
    let images = std::fs::read_to_string(&file)?
        .matches("/brupop:v0.2.0\n")
        .count();
    ensure!(images == 3, "{images} are of the version");

    make_yaml(&folder, &format!("IMAGE={IMAGE}")).await?;
    let text = std::fs::read_to_string(&file)?;
    let objects: Vec<Json> = serde_yaml_ng::Deserializer::from_str(&text)
        .map(Json::deserialize)
        .collect::<Result<_, _>>()?;
    let default = Case::new("default", &[]).write(control_plane)?;
    let mut expected = rendered(control_plane, &default).await?;
    let mut images = 0;
    for object in &mut expected {
        if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
            *image = json!(IMAGE);
            images += 1;
        }
    }
    ensure!(
        images == 3 && objects == expected,
        "make yaml wrote something else than the default overlay"
    );
    let taken = strictly(control_plane, &file).await?;
    ensure!(
        taken.said.lines().count() == objects.len(),
        "{}",
        taken.said
    );
    Ok(())
}

/// The files of `make dist` are named `brupop-v$VERSION-…`: a version that begins with `v` gets no second one.
#[tokio::test]
async fn a_versions_leading_v_is_optional() -> Result<()> {
    for given in ["0.2.0", "v0.2.0"] {
        let shell = tokio::process::Command::new("bash")
            .args(["-euc", ". image/release.sh; echo $VERSION"])
            .current_dir(REPOSITORY)
            .env("VERSION", given)
            .output()
            .await?;
        let said = String::from_utf8(shell.stdout)?;
        ensure!(
            shell.status.success() && said == "0.2.0\n",
            "{given} is taken for {said:?}"
        );
    }
    Ok(())
}
