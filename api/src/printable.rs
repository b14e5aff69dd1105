//! Text from outside, made harmless before a person or a terminal reads it.
//!
//! What agents, hosts, callers and other people's objects say ends up in log lines, conditions, Events and tables. A line
//! break in it would forge a log line there, an escape sequence would drive the terminal, and a mark of writing direction
//! would show it in another order than it was written.

use std::borrow::Cow;

/// Stands where a text was cut off.
const CUT: char = '…';

/// A pattern of a schema (Go's RE2) that takes every text that [`is_printable`], and no control or format character.
pub const PATTERN: &str = r"^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$";

/// Whether Rust's `Debug` escapes this character: control and format characters, line and paragraph separators (Unicode's `Cc`,
/// `Cf`, `Zl`, `Zp`), spaces other than the usual one, and what is private or not assigned.
pub fn is_unprintable(character: char) -> bool {
    // After a letter, a mark that combines with it stays as it is.
    let is_escaped = || {
        let text = String::from_iter(['a', character]);
        text.escape_debug().nth(2).is_some()
    };
    character.is_ascii_control() || (!character.is_ascii() && is_escaped())
}

/// Whether no character of this text [`is_unprintable`].
pub fn is_printable(text: &str) -> bool {
    // Most texts are ASCII. A fold that never ends early compares many bytes at once.
    let is_ascii = text
        .bytes()
        .fold(true, |is, byte| is & matches!(byte, b' '..=b'~'));
    is_ascii || !text.contains(is_unprintable)
}

/// The text in at most `limit` bytes, with unprintable characters escaped as Rust does it (`\n`, `\u{1b}`). Where
/// something was cut off stands `…`. A text that is printable and short enough stays as it is.
///
/// A backslash is not escaped: `\n` in the result was a line break or these two characters.
pub fn printable(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit && is_printable(text) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut uncut) = (String::new(), 0);
    for character in text.chars() {
        if is_unprintable(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
        if shown.len() > limit {
            shown.truncate(uncut);
            if limit >= CUT.len_utf8() {
                shown.push(CUT);
            }
            break;
        }
        if shown.len() + CUT.len_utf8() <= limit {
            uncut = shown.len();
        }
    }
    Cow::Owned(shown)
}

/// Compact JSON text with unprintable characters escaped as JSON does it: it reads as the same value.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if is_printable(json) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::new();
    for character in json.chars() {
        if is_unprintable(character) {
            let units = character.encode_utf16(&mut [0; 2]).to_vec();
            shown.extend(units.into_iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_schema_refuses_is_unprintable() {
        let every: String = (char::MIN..=char::MAX).collect();
        let taken = regex::Regex::new(PATTERN).unwrap();
        for character in every.chars() {
            let is_taken = taken.is_match(character.encode_utf8(&mut [0; 4]));
            assert!(is_taken || is_unprintable(character), "{character:?}");
        }
        assert_eq!("aé\u{301}ß猫กี🦀\\\"'~".find(is_unprintable), None);
    }

    #[test]
    fn texts_are_escaped_and_cut() {
        for (text, limit, expected) in [
            ("", 0, ""),
            ("node-0 é 🦀 \\n \"", 99, "node-0 é 🦀 \\n \""),
            ("a\r\n\tb", 99, "a\\r\\n\\tb"),
            (
                "\0\u{1b}[2J\u{7f}\u{85}\u{9b}",
                99,
                "\\u{0}\\u{1b}[2J\\u{7f}\\u{85}\\u{9b}",
            ),
            (
                "\u{2028}\u{202e}\u{2066}\u{feff}",
                99,
                "\\u{2028}\\u{202e}\\u{2066}\\u{feff}",
            ),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abc…"),
            ("ab\u{1b}", 7, "ab…"),
            ("a\u{1b}", 7, "a\\u{1b}"),
            ("abéé", 5, "ab…"),
            ("abcd", 3, "…"),
            ("abcd", 2, ""),
        ] {
            assert_eq!(printable(text, limit), expected, "{text:?}, {limit}");
        }
        assert!(matches!(
            printable("as it is", 8),
            Cow::Borrowed("as it is")
        ));
    }

    /// Texts in which a quarter of the characters is unprintable.
    fn text() -> impl Strategy<Value = String> {
        let unprintable = (0..0x3_0000_u32).prop_filter_map("unprintable", |number| {
            char::from_u32(number % 0x100)
                .or(char::from_u32(number))
                .filter(|c| is_unprintable(*c))
        });
        let bidirectional =
            prop::sample::select(vec!['\u{202e}', '\u{2066}', '\u{2029}', '\u{e0041}']);
        let character = prop_oneof![6 => any::<char>(), 1 => unprintable, 1 => bidirectional];
        prop::collection::vec(character, 0..60).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn what_is_printed_is_printable_and_short(text in text(), limit in 0_usize..200) {
            let shown = printable(&text, limit);
            prop_assert!(shown.len() <= limit);
            prop_assert!(is_printable(&shown), "{shown:?}");
            prop_assert_eq!(printable(&shown, limit), shown.as_ref(), "it changes again");
            // Nothing is cut without need, and nothing is cut without a mark.
            let whole = printable(&text, usize::MAX);
            prop_assert_eq!(whole.len() <= limit, shown == whole);
            prop_assert!(shown == whole || shown.ends_with(CUT) || limit < CUT.len_utf8());
            prop_assert_eq!(is_printable(&text), whole == text);
        }

        #[test]
        fn printable_json_reads_as_the_same_value(text in text()) {
            let value = serde_json::json!({ text.as_str(): [text.as_str(), 1] });
            let written = value.to_string();
            let shown = printable_json(&written);
            prop_assert!(is_printable(&shown), "{shown}");
            prop_assert!(!is_printable(&text) || shown == written);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
