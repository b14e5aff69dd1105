//! Writes what fuzzing starts from: one file a row for each target, and a dictionary of the words in them.
//!
//! `cargo run -p brupop-admission-cases --example corpus -- <folder>`

use brupop_admission_cases::{review, table};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs, io};

/// Longest word of the dictionary, in bytes; libFuzzer takes 64.
const WORD_MAX: usize = 60;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(
        env::args_os()
            .nth(1)
            .ok_or_else(|| io::Error::other("say where to"))?,
    );
    let reviews: Vec<Value> = table().iter().filter_map(review).collect();
    for target in ["review", "verdict"] {
        fs::create_dir_all(folder.join(target))?;
    }
    let mut words = BTreeSet::new();
    for (row, review) in reviews.iter().enumerate() {
        // A review as it is; and the row's number, which is a row without edits.
        fs::write(
            folder.join("review").join(format!("row-{row}")),
            review.to_string(),
        )?;
        let number = u16::try_from(row).map_err(io::Error::other)?;
        fs::write(
            folder.join("verdict").join(format!("row-{row}")),
            number.to_le_bytes(),
        )?;
        words_of(review, &mut words);
    }
    let quoted = words.iter().filter(|word| word.len() <= WORD_MAX);
    let lines: Vec<String> = quoted
        .map(|word| format!("\"{}\"", escaped(word)))
        .collect();
    fs::write(folder.join("dictionary"), lines.join("\n") + "\n")
}

/// As libFuzzer reads an entry of a dictionary.
fn escaped(word: &str) -> String {
    let escaped = word.bytes().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    });
    escaped.collect()
}

/// Members' names, strings and numbers, as JSON has them.
fn words_of(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                words.insert(format!("{}:", Value::from(name.as_str())));
                words_of(member, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| words_of(item, words)),
        other => {
            words.insert(other.to_string());
        }
    }
}
