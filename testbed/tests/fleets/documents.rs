//! Parts of the documents that tests read.

use anyhow::{Context as _, Result};
pub use brupop_testbed::read;

/// Returns what stands under a heading such as `## Gates`, up to the next one of its level or above.
pub fn section<'d>(document: &'d str, heading: &str) -> Result<&'d str> {
    let (_, below) = document
        .split_once(&format!("\n{heading}\n"))
        .with_context(|| format!("no heading {heading}"))?;
    let level = level_of(heading);
    let (mut end, mut is_code) = (0, false);
    for line in below.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        if !is_code && (1..=level).contains(&level_of(line)) {
            break;
        }
        end += line.len();
    }
    Ok(&below[..end])
}

/// Returns how many hashes a heading has; 0 if this is none.
fn level_of(line: &str) -> usize {
    let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
    if line[hashes..].starts_with(' ') {
        hashes
    } else {
        0
    }
}

/// The code blocks of a language, in their order.
pub fn blocks<'d>(text: &'d str, language: &str) -> Vec<&'d str> {
    let begin = format!("```{language}\n");
    text.split(begin.as_str())
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect()
}
