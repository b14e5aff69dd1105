//! Queries and messages of all checks.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use brupop_testbed::ControlPlane;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::run::Check;
use tokio::time::sleep;

/// Time for which writes are counted once nothing is left to do.
const AT_REST: Duration = Duration::from_secs(20);
/// Conditions follow what they are about within this time: it is awaited until none was written for as long.
const QUIET: Duration = Duration::from_secs(5);

/// Returns what was to be so beside this program, what was found, and whether that is the same.
pub fn check(program: &str, what: &str, found: impl Display, holds: bool) -> Check {
    (holds, format!("{program}: {what}: {found}"))
}

/// `kubectl apply --server-side` of a file, or of all files in a folder.
pub async fn apply_files(control_plane: &ControlPlane, path: &Path) -> Result<()> {
    let apply = [
        "apply".as_ref(),
        "--server-side".as_ref(),
        "-f".as_ref(),
        path.as_os_str(),
    ];
    control_plane.kubectl(apply).await.map(drop)
}

/// The operator writes nothing any more once nothing is left to do: Leases and questions aside.
pub async fn rests(program: &str, audit: AuditReader) -> Result<Check> {
    let ours = format!("system:serviceaccount:{NAMESPACE}:");
    let mut reader = audit.from_now();
    let mut writes = written(&mut reader, &ours, QUIET).await?;
    for _ in 0..10 {
        if writes.is_empty() {
            break;
        }
        writes = written(&mut reader, &ours, QUIET).await?;
    }
    writes.extend(written(&mut reader, &ours, AT_REST).await?);
    let seconds = AT_REST.as_secs();
    let all: usize = writes.values().sum();
    let found = if all == 0 {
        "none".to_owned()
    } else {
        format!("{writes:?}")
    };
    Ok(check(
        program,
        &format!("at rest, the operator's writes in {seconds} s: none"),
        found,
        all == 0,
    ))
}

/// Returns what is written by users whose names begin so, for this long.
async fn written(
    reader: &mut AuditReader,
    users: &str,
    time: Duration,
) -> Result<BTreeMap<String, usize>> {
    sleep(time).await;
    let mut writes = BTreeMap::new();
    for event in reader.read()? {
        let object = &event.object;
        let is_write = event.is_write()
            && !matches!(
                object.resource.as_str(),
                "leases" | "tokenreviews" | "subjectaccessreviews"
            );
        if is_write && event.user.username.starts_with(users) {
            *writes
                .entry(format!("{} {}", event.verb, object.resource))
                .or_default() += 1;
        }
    }
    Ok(writes)
}
