//! What an answer may look like, whatever it answers: people read it in terminals, logs and audit logs.

use super::seen;
use serde_json::Value;

/// Longest answer, in bytes.
const ANSWER_MAX: usize = 16 * 1024;
/// Longest text in an answer, in bytes; an audit annotation is one.
const TEXT_MAX: usize = 4096;

/// Says what is wrong with the text of an answer, which is JSON if it is one to a review; nothing, if people may see it.
///
/// No text in it, and not the whole, has control characters or others that are not seen; and each is of limited length.
pub fn flaw(answer: &str) -> Option<String> {
    if answer.len() > ANSWER_MAX {
        return Some(format!("it has {} bytes", answer.len()));
    }
    let value = serde_json::from_str(answer).unwrap_or(Value::Null);
    texts(&value).into_iter().chain([answer]).find_map(|text| {
        let unseen = text.chars().find(|character| !seen(*character));
        let unseen = unseen.map(|character| format!("it has {character:?} in {text:?}"));
        unseen.or_else(|| {
            (text != answer && text.len() > TEXT_MAX)
                .then(|| format!("{} bytes: {text}", text.len()))
        })
    })
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, member)| [vec![name.as_str()], texts(member)].concat())
            .collect(),
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_and_long_texts_are_found() {
        for sound in [
            "",
            "not JSON",
            r#"{"a": ["b", {"c": "é"}], "d": 1}"#,
            &"x".repeat(ANSWER_MAX),
        ] {
            assert_eq!(flaw(sound), None);
        }
        let long = format!(r#"["{}"]"#, "x".repeat(TEXT_MAX + 1));
        for flawed in [
            "\n",
            "\u{202e}",
            r#"{"a": ["b", {"c": "\u001b"}]}"#,
            r#"{"\u2028": 1}"#,
            &long,
            &"x".repeat(ANSWER_MAX + 1),
        ] {
            assert!(flaw(flawed).is_some(), "{flawed:.99}");
        }
    }
}
