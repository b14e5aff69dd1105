//! Reads the kernel's facts about processes in containers.

use std::path::Path;

use anyhow::{Context as _, Result};
use procfs::ProcessCGroups;
use procfs::process::{Process, all_processes};

/// A process and what confines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    pub pid: u32,
    pub uid: u32,
    pub groups: Vec<u32>,
    /// Effective, permitted, inheritable, bounding and ambient capabilities, all in one.
    pub capabilities: u64,
    /// It cannot gain privileges by running another program.
    pub no_new_privileges: bool,
    /// A seccomp filter is in force.
    pub seccomp: bool,
    /// Its root file system is read-only.
    pub read_only_root: bool,
    /// Most bytes of memory that its container may use, if there is a limit.
    pub memory_limit: Option<u64>,
    /// Resident memory, in bytes.
    pub resident: u64,
}

/// All processes that run this program, by the path that it has in its container.
pub fn running(program: &str) -> Result<Vec<Confined>> {
    let runs = |process: &Process| {
        let line = process.cmdline().unwrap_or_default();
        line.first().is_some_and(|word| word == program)
    };
    let processes = all_processes()?.filter_map(std::result::Result::ok);
    processes
        .filter(runs)
        .map(|process| read(&process))
        .collect()
}

fn read(process: &Process) -> Result<Confined> {
    let status = process.status()?;
    let bounds = status.capbnd.context("no bounding capabilities")?;
    let ambient = status.capamb.context("no ambient capabilities")?;
    // By its mount options, not those of the file system that it is a part of.
    let mounts = process.mountinfo()?.into_iter();
    let mut roots = mounts.filter(|mount| mount.mount_point == Path::new("/"));
    let root = roots.next_back().context("no root file system")?;
    Ok(Confined {
        pid: u32::try_from(process.pid)?,
        uid: status.euid,
        groups: status.groups,
        capabilities: status.capinh | status.capprm | status.capeff | bounds | ambient,
        no_new_privileges: status.nonewprivs == Some(1),
        seccomp: status.seccomp == Some(2),
        read_only_root: root.mount_options.contains_key("ro"),
        memory_limit: memory_limit(&process.cgroups()?),
        resident: status.vmrss.context("no memory")? * 1024,
    })
}

/// By either version of control groups.
fn memory_limit(groups: &ProcessCGroups) -> Option<u64> {
    let mut groups = groups.0.iter();
    let first = groups
        .clone()
        .find(|group| group.controllers.iter().any(|it| it == "memory"));
    let (root, group, file) = match first {
        Some(group) => ("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"),
        None => (
            "/sys/fs/cgroup",
            groups.find(|group| group.hierarchy == 0)?,
            "memory.max",
        ),
    };
    let folder = Path::new(root).join(group.pathname.trim_start_matches('/'));
    std::fs::read_to_string(folder.join(file))
        .ok()?
        .trim()
        .parse()
        .ok()
}
