//! Checks the logs of the operator's processes.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::Violation;
use crate::world::SECRET;

/// Texts that no log may contain: a workload's secret, the head of a token, a key, the end of a process.
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
}
