//! Reads the kernel's facts about processes in containers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

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
    let pids = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| runs(pid, program)).map(read).collect()
}

fn runs(pid: u32, program: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).next() == Some(program.as_bytes())
}

fn read(pid: u32) -> Result<Confined> {
    let file = |name: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{name}"))
            .with_context(|| format!("{name} of process {pid}"))
    };
    let status = file("status")?;
    let fields: BTreeMap<&str, &str> = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let field = |name: &str| {
        fields
            .get(name)
            .map(|value| value.trim())
            .with_context(|| format!("no {name} of {pid}"))
    };
    let mut capabilities = 0;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        capabilities |= u64::from_str_radix(field(set)?, 16)?;
    }
    let words = |name: &str| field(name).map(str::split_whitespace);
    Ok(Confined {
        pid,
        uid: words("Uid")?.nth(1).context("no effective user")?.parse()?,
        groups: words("Groups")?.map(str::parse).collect::<Result<_, _>>()?,
        capabilities,
        no_new_privileges: field("NoNewPrivs")? == "1",
        seccomp: field("Seccomp")? == "2",
        read_only_root: read_only_root(&file("mountinfo")?),
        memory_limit: memory_limit(&file("cgroup")?),
        resident: words("VmRSS")?
            .next()
            .context("no memory")?
            .parse::<u64>()?
            * 1024,
    })
}

/// By its mount options, not those of the file system that it is a part of.
fn read_only_root(mounts: &str) -> bool {
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let mut roots = fields.filter(|fields| fields.get(4) == Some(&"/"));
    roots.next_back().is_some_and(|root| {
        root.get(5)
            .is_some_and(|options| options.split(',').any(|o| o == "ro"))
    })
}

/// By either version of control groups.
fn memory_limit(groups: &str) -> Option<u64> {
    let of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            controllers
                .split(',')
                .any(|name| name == controller)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let limit = match of("memory") {
        Some(path) => Path::new("/sys/fs/cgroup/memory")
            .join(path)
            .join("memory.limit_in_bytes"),
        None => Path::new("/sys/fs/cgroup").join(of("")?).join("memory.max"),
    };
    std::fs::read_to_string(limit).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_root_counts_by_its_own_options() {
        let writable = "21 1 0:1 / / rw,relatime - overlay overlay ro\n";
        let read_only = "21 1 0:1 / / ro,relatime - overlay overlay rw\n";
        assert!(!read_only_root(writable));
        assert!(read_only_root(read_only));
        assert!(read_only_root(&format!("{writable}{read_only}")));
        assert!(!read_only_root(""));
    }
}
