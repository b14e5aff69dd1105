//! A JSON text whose long strings are cut while it is read.
//!
//! What a command of the host writes to stderr has no limit, and the status document holds all of it.

/// Longest string that is kept, in bytes as they stand in the JSON text. The first that do not fit are cut off with all that
/// follow, between two characters.
const STRING_MAX: usize = 4096;

/// The text as far as it is kept. What comes in may be cut into pieces anywhere.
#[derive(Debug, Default)]
pub struct Shortened {
    kept: Vec<u8>,
    position: Position,
    /// Bytes of the present string so far.
    length: usize,
    /// The rest of the present string is left out.
    cut: bool,
}

/// Where in the text the next byte is.
#[derive(Clone, Copy, Debug, Default)]
enum Position {
    #[default]
    Outside,
    /// In a string, between two characters, or in one that is not ASCII.
    Inside,
    /// After a backslash.
    Escape,
    /// In the digits of `\uXXXX`: how many are still to come, and the value of those before.
    Digits(u8, u16),
    /// After the first half of a pair of `\uXXXX`, which must not be left alone.
    HalfPair,
}

impl Shortened {
    /// More of the text.
    pub fn push(&mut self, text: &[u8]) {
        for &byte in text {
            let begins = matches!(self.position, Position::Inside) && byte & 0xc0 != 0x80;
            self.cut |= begins && byte != b'"' && self.length >= STRING_MAX;
            self.position = self.after(byte);
            let ends = matches!(self.position, Position::Outside);
            if ends {
                (self.length, self.cut) = (0, false);
            } else {
                self.length = self.length.saturating_add(1);
            }
            if !self.cut {
                self.kept.push(byte);
            }
        }
    }

    /// How many bytes are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// The text.
    pub fn into_text(self) -> Vec<u8> {
        self.kept
    }

    fn after(&self, byte: u8) -> Position {
        match (self.position, byte) {
            (Position::Outside, b'"') => Position::Inside,
            (Position::Outside, _) | (Position::Inside | Position::HalfPair, b'"') => {
                Position::Outside
            }
            (Position::Inside | Position::HalfPair, b'\\') => Position::Escape,
            (Position::Escape, b'u') => Position::Digits(4, 0),
            (Position::Inside | Position::HalfPair | Position::Escape, _) => Position::Inside,
            (Position::Digits(left, value), _) => {
                // What is no digit is for the reader of the text to refuse.
                let digit = char::from(byte)
                    .to_digit(16)
                    .and_then(|digit| u16::try_from(digit).ok());
                let value = value << 4 | digit.unwrap_or(0);
                match left {
                    2.. => Position::Digits(left - 1, value),
                    _ if (0xd800..0xdc00).contains(&value) => Position::HalfPair,
                    _ => Position::Inside,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn shortened(text: &str, piece: usize) -> Vec<u8> {
        let mut shortened = Shortened::default();
        for piece in text.as_bytes().chunks(piece) {
            shortened.push(piece);
        }
        assert_eq!(shortened.kept_bytes(), shortened.kept.len());
        shortened.into_text()
    }

    /// The string, however its characters are written.
    fn read(text: &[u8]) -> String {
        serde_json::from_slice::<Vec<String>>(text)
            .unwrap()
            .remove(0)
    }

    #[test]
    fn a_long_string_is_cut_between_two_characters() {
        for character in [
            "x",
            "é",
            "😀",
            "\\n",
            "\\\"",
            "\\\\",
            "\\u00e9",
            "\\ud83d\\ude00",
            "\\u001b",
        ] {
            for before in 0..12 {
                let (before, many) = ("y".repeat(before), character.repeat(5_000));
                let whole = format!("[\"{before}{many}\", \"next\"]");
                for piece in [1, 7, whole.len()] {
                    let text = shortened(&whole, piece);
                    let (kept, all) = (read(&text), read(whole.as_bytes()));
                    assert!(all.starts_with(&kept), "{character}");
                    assert!(
                        (STRING_MAX..STRING_MAX + 50).contains(&text.len()),
                        "{character}: {}",
                        text.len()
                    );
                    assert!(text.ends_with(br#"", "next"]"#), "{character}");
                }
            }
        }
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in [
            "<html>",
            "\"\\u12",
            "\"\\uZZZZ\"",
            "\"\\ud83d\"",
            "{\"a\": \"",
            "\u{0}\"",
        ] {
            assert_eq!(shortened(text, 1), text.as_bytes());
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::from),
            any::<Option<bool>>().prop_map(|it| json!(it)),
            any::<String>().prop_map(Value::from),
            "[\"\\\\\\n\u{1b}é😀]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_short_stays_as_it_is(value in any_json(), piece in 1..9usize) {
            let text = value.to_string();
            prop_assert_eq!(shortened(&text, piece), text.as_bytes());
        }
    }
}
