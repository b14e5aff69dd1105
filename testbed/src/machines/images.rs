//! The images of the machines: ours as it ships, and one for sandboxes and workloads.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::binaries::node_programs;

/// Archives of images (OCI), and the programs of machines.
#[derive(Debug)]
pub struct Images {
    programs: PathBuf,
    archives: Vec<PathBuf>,
}

impl Images {
    /// The image of a pod's sandbox, and of workloads: it waits for SIGTERM, and answers on `LISTEN`.
    pub const SANDBOX: &str = "localhost/brupop-testbed/pause:1";

    /// Builds what is missing; `archive` holds the operator's image, as `make image` writes it.
    pub async fn new(archive: &Path) -> Result<Self> {
        ensure!(
            archive.is_file(),
            "there is no {}: `make image` writes it",
            archive.display()
        );
        let programs = node_programs().await?;
        let pause = programs.join("pause.oci.tar");
        Ok(Self {
            programs,
            archives: vec![archive.canonicalize()?, pause],
        })
    }

    /// Folder of kubelet, kube-proxy, containerd and what belongs to it.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Links the archives into a folder.
    pub(super) fn link(&self, folder: &Path) -> Result<()> {
        for archive in &self.archives {
            let name = archive.file_name().context("an archive without a name")?;
            std::os::unix::fs::symlink(archive, folder.join(name))?;
        }
        Ok(())
    }
}
