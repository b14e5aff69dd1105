//! What our processes say and need.

use std::path::Path;

use anyhow::{Context as _, Result};
use brupop_testbed::kubelet::PodProcess;

use super::Violation;
use crate::world::SECRET;

/// What no log may hold: a workload's secret, the head of a token, a key, the end of a process.
const FORBIDDEN: [(&str, &str); 4] = [
    (SECRET, "a secret of a workload"),
    ("eyJhbGciOi", "a token"),
    ("PRIVATE KEY", "a key"),
    ("panicked at", "a panic"),
];

/// Looks through the logs of our processes, which are those whose names begin so.
pub(crate) fn logs(folder: &Path) -> Result<Vec<Violation>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("brupop-") {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            // Not `lines`, which takes a carriage return for a part of the line's end.
            found.extend(text.split('\n').filter_map(|line| in_line(&name, line)));
        }
    }
    Ok(found)
}

fn in_line(name: &str, line: &str) -> Option<Violation> {
    let forbidden = FORBIDDEN
        .iter()
        .find(|(words, _)| line.contains(words))
        .map(|(_, what)| *what);
    let control = line
        .chars()
        .any(|character| character.is_control() && character != '\t');
    let bidirectional = line
        .chars()
        .any(|character| matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
    let what = forbidden.or((control || bidirectional).then_some("a control character"))?;
    Some(Violation::new(
        "logs",
        format!("{name} logs {what}: {}", line.escape_debug()),
    ))
}

/// Those of these processes that have needed more memory than they may.
pub(crate) fn memory(processes: &[PodProcess]) -> Vec<Violation> {
    let found = processes.iter().filter_map(|process| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
        needs_too_much(&process.component, &process.pod, &status)
    });
    found.collect()
}

/// The process of this pod of a component has this `/proc/<pid>/status`.
fn needs_too_much(component: &str, pod: &str, status: &str) -> Option<Violation> {
    let bound = bound(component);
    let is_more = resident(status).is_some_and(|kib| kib / 1024 > bound);
    is_more.then(|| Violation::new("memory", format!("{pod} needs more than {bound} MiB")))
}

/// In MiB; for programs as they are shipped. They are allowed about thrice of what they need with a fleet of this size,
/// and programs that are not optimized are larger.
fn bound(component: &str) -> u64 {
    match component {
        "agent" => 40,
        "webhook" => 60,
        _ => 80,
    }
}

/// `VmHWM`, in KiB: the most that it ever was.
fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_neither_secrets_nor_control_characters() {
        let forbidden = |line: &str| in_line("brupop-agent-x", line).is_some();
        assert!(!forbidden(r"INFO shadow: a message of the host \u{1b}[2J"));
        for line in [
            "\u{1b}[2J",
            "a\u{202e}b",
            "PASSWORD=hunter2-is-nobodys-business",
            "Bearer eyJhbGciOiJSUzI1",
            "-----BEGIN PRIVATE KEY-----",
            "thread 'main' panicked at agent/src/main.rs:1:1:",
        ] {
            assert!(forbidden(line), "{line:?}");
        }
    }

    #[test]
    fn each_component_has_a_bound_of_memory() {
        let status = |mib: u64| format!("VmPeak:\t  999999 kB\nVmHWM:\t    {} kB\n", mib * 1024);
        for component in ["agent", "webhook", "reconciler"] {
            let bound = bound(component);
            assert_eq!(
                needs_too_much(component, "p", &status(bound)),
                None,
                "{component}"
            );
            let more = needs_too_much(component, "p", &status(bound + 1));
            assert_eq!(
                more.map(|violation| violation.rule),
                Some("memory"),
                "{component}"
            );
        }
    }
}
