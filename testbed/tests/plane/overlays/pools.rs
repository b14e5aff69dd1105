//! The component `pools`: applied where the definitions are not there yet, over a fleet that people have paused, and again.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::{ControlPlane, Options};
use serde_json::Value as Json;

use crate::custom_resources;
use crate::overlays::apply;
use crate::overlays::cases::{Case, PREFIX, SUFFIX};

/// What kubectl says of a kind that it does not know.
const UNKNOWN: &str = "no matches for kind";

async fn spec(control_plane: &ControlPlane, case: &Case, kind: &str, name: &str) -> Result<Json> {
    let object = control_plane
        .kubectl(["get", kind, name, "-n", case.namespace(), "-o", "json"])
        .await?;
    let object: Json = serde_json::from_str(&object)?;
    Ok(object["spec"].clone())
}

async fn patch(
    control_plane: &ControlPlane,
    case: &Case,
    kind: &str,
    name: &str,
    patch: &str,
) -> Result<()> {
    let args = [
        "patch",
        kind,
        name,
        "-n",
        case.namespace(),
        "--type=merge",
        "-p",
        patch,
    ];
    control_plane.kubectl(args).await.map(drop)
}

/// What people say of the fleet stays, no matter who applies the component, and however often.
async fn leaves_people_theirs(
    control_plane: &ControlPlane,
    case: &Case,
    flags: &[&str],
) -> Result<()> {
    let overlay = case.write(control_plane)?;
    patch(
        control_plane,
        case,
        "brf",
        "fleet",
        r#"{"spec": {"paused": true, "maxUnavailable": "20%"}}"#,
    )
    .await?;
    for _ in 0..2 {
        apply(control_plane, flags, "-k", &overlay).await?;
        let fleet = spec(control_plane, case, "brf", "fleet").await?;
        ensure!(fleet["unpooledNodes"] == "Hold", "{fleet}");
        ensure!(
            fleet["paused"] == true && fleet["maxUnavailable"] == "20%",
            "{flags:?} took away: {fleet}"
        );
    }
    let name = if case.renamed {
        format!("{PREFIX}others{SUFFIX}")
    } else {
        "others".to_owned()
    };
    let pool = spec(control_plane, case, "brp", &name).await?;
    ensure!(
        pool["nodeSelector"] == serde_json::json!({}) && pool["maxUnavailable"] == 1,
        "{pool}"
    );

    // The way back, as the component says it.
    patch(
        control_plane,
        case,
        "brf",
        "fleet",
        r#"{"spec": {"unpooledNodes": null}}"#,
    )
    .await?;
    let fleet = spec(control_plane, case, "brf", "fleet").await?;
    ensure!(
        fleet["unpooledNodes"] == "DefaultPool" && fleet["paused"] == true,
        "{fleet}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_component_pools_names_one_field_of_the_fleet() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    let case = Case::new("default", &["pools"]);
    let overlay = case.write(&control_plane)?;
    // kubectl asks for all kinds before it makes the first definition.
    let refused = apply(&control_plane, &[], "-k", &overlay)
        .await
        .err()
        .context("it was taken")?;
    let said = refused.to_string();
    ensure!(said.matches(UNKNOWN).count() == 2, "{said}");
    for kind in ["BottlerocketPool", "BottlerocketFleet"] {
        ensure!(said.contains(&format!("{UNKNOWN} \"{kind}\"")), "{said}");
    }
    // They were made by that, and only have to be served.
    custom_resources::install(&control_plane).await?;
    apply(&control_plane, &[], "-k", &overlay).await?;
    leaves_people_theirs(&control_plane, &case, &[]).await?;

    let renamed = Case {
        renamed: true,
        ..case
    };
    // The definitions have been applied by the client.
    let by_server = ["--server-side", "--force-conflicts"];
    apply(
        &control_plane,
        &by_server,
        "-k",
        &renamed.write(&control_plane)?,
    )
    .await?;
    leaves_people_theirs(&control_plane, &renamed, &by_server).await
}
