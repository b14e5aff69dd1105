//! Prints the custom resource definitions: `cargo run -p brupop-api --example crds -- <folder>` writes one file each.

use std::{fs, io, path::PathBuf};

use kube::ResourceExt as _;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or_else(|| "manifests".into()),
    );
    for crd in brupop_api::definitions::all() {
        let singular = crd
            .spec
            .names
            .singular
            .clone()
            .unwrap_or_else(|| crd.name_any());
        let text = serde_yaml_ng::to_string(&crd).map_err(io::Error::other)?;
        let head = "# Generated from api/ by `make manifests`; edit the types, not this.\n";
        fs::write(
            folder.join(format!("{singular}-crd.yaml")),
            format!("{head}{text}"),
        )?;
    }
    Ok(())
}
