//! Tests of applying: once, again, over another overlay and back; and of deleting.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::binaries::others_definitions;
use brupop_testbed::{ControlPlane, Options, await_until};
use serde_json::Value as Json;

use crate::overlays::apply;
use crate::overlays::cases::Case;

/// The flags of `kubectl apply`.
const BY_CLIENT: &[&str] = &[];
const BY_SERVER: &[&str] = &["--server-side"];
/// The same after a client-side apply, which has become the manager of what the API server filled in.
const BY_SERVER_FIRST: &[&str] = &["--server-side", "--force-conflicts"];

#[tokio::test(flavor = "multi_thread")]
async fn overlays_can_be_reapplied_switched_and_deleted() -> Result<()> {
    let control_plane = ControlPlane::start(Options::CLUSTER).await?;
    let definitions = others_definitions().await?;
    apply(&control_plane, BY_SERVER, "-f", &definitions).await?;

    let default = Case::new("default", &[]).write(&control_plane)?;
    apply(&control_plane, BY_CLIENT, "-k", &default).await?;
    let first = shapes(&control_plane, &default).await?;
    again_changes_nothing(&control_plane, BY_CLIENT, &default).await?;
    // Ports and strategies that one has and the other has not are where a way back gets lost.
    let over = [
        (
            BY_CLIENT,
            Case::new(
                "production",
                &["host-network", "trusted-placement", "network-policy"],
            ),
        ),
        (
            BY_CLIENT,
            Case::new(
                "default",
                &["auto-label", "cert-manager", "prometheus-operator"],
            ),
        ),
        (BY_SERVER_FIRST, Case::new("single-node", &["force-drain"])),
        (
            BY_SERVER,
            Case::new("production", &["host-network", "trusted-placement"]),
        ),
    ];
    for (how, case) in over {
        let other = case.write(&control_plane)?;
        apply(&control_plane, how, "-k", &other).await?;
        ensure!(
            shapes(&control_plane, &default).await? != first,
            "{} is like the default one",
            case.name()
        );
        let back = if how == BY_CLIENT {
            BY_CLIENT
        } else {
            BY_SERVER
        };
        apply(&control_plane, back, "-k", &default).await?;
        same(&first, &shapes(&control_plane, &default).await?)
            .with_context(|| format!("back from {}, applied with {how:?}", case.name()))?;
    }
    again_changes_nothing(&control_plane, BY_SERVER, &default).await?;
    // Anyone who has applied by the server may go back to the client.
    apply(&control_plane, BY_CLIENT, "-k", &default).await?;
    same(&first, &shapes(&control_plane, &default).await?)?;

    // With all that was added on the way, and a Secret that goes with its account.
    let all = Case::new(
        "default",
        &[
            "network-policy",
            "force-drain",
            "prometheus-operator",
            "cert-manager",
        ],
    )
    .write(&control_plane)?;
    delete(&control_plane, &all).await
}

type Objects = BTreeMap<(String, String), Json>;

async fn stored(control_plane: &ControlPlane, overlay: &Path) -> Result<Objects> {
    let list = control_plane
        .kubectl(["get", "-o", "json", "-k", &overlay.to_string_lossy()])
        .await?;
    let list: Json = serde_json::from_str(&list)?;
    let objects = list["items"].as_array().context("no list")?;
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let named = |object: &Json| {
        (
            (text(&object["kind"]), text(&object["metadata"]["name"])),
            object.clone(),
        )
    };
    Ok(objects.iter().map(named).collect())
}

/// Returns what is stored, but for what controllers and kubectl keep there for themselves.
async fn shapes(control_plane: &ControlPlane, overlay: &Path) -> Result<Objects> {
    let mut objects = stored(control_plane, overlay).await?;
    for object in objects.values_mut() {
        let fields = object.as_object_mut().context("an object")?;
        fields.remove("status");
        let metadata = fields
            .get_mut("metadata")
            .and_then(Json::as_object_mut)
            .context("metadata")?;
        metadata.retain(|field, _| field == "labels");
    }
    Ok(objects)
}

fn same(first: &Objects, now: &Objects) -> Result<()> {
    for (name, object) in first {
        let found = now.get(name);
        ensure!(found == Some(object), "{name:?} is {found:?}, not {object}");
    }
    Ok(())
}

/// Controllers may write a status meanwhile, so more than one try is allowed; an apply that always changes something
/// never passes.
async fn again_changes_nothing(
    control_plane: &ControlPlane,
    how: &[&str],
    overlay: &Path,
) -> Result<()> {
    let versions = async || {
        let objects = stored(control_plane, overlay).await?.into_iter();
        let versions =
            objects.map(|(name, object)| (name, object["metadata"]["resourceVersion"].to_string()));
        anyhow::Ok(versions.collect::<BTreeMap<_, _>>())
    };
    let mut changed = Vec::new();
    let quiet = await_until("nothing changes", async || {
        let before = versions().await.ok()?;
        apply(control_plane, how, "-k", overlay).await.ok()?;
        let after = versions().await.ok()?;
        changed = after
            .into_iter()
            .filter(|(name, version)| before.get(name) != Some(version))
            .collect();
        changed.is_empty().then_some(())
    });
    quiet.await.with_context(|| format!("{changed:?}"))
}

async fn delete(control_plane: &ControlPlane, overlay: &Path) -> Result<()> {
    let overlay = overlay.to_string_lossy();
    control_plane
        .kubectl(["delete", "--ignore-not-found", "-k", &overlay])
        .await?;
    let left = control_plane
        .kubectl(["get", "--ignore-not-found", "-o", "name", "-k", &overlay])
        .await?;
    ensure!(left.is_empty(), "still there: {left}");
    Ok(())
}
