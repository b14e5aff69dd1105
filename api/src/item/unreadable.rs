//! Why something cannot be read.

use serde_json::error::Category;

/// Why something cannot be read. The sentence names the place, and quotes nothing, as serde's own sentences do: what stands
/// there may be a secret in somebody else's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not the JSON that it should be, and was read from a text.
    #[error("{what} (line {line}, column {column})")]
    At {
        /// What is wrong.
        what: &'static str,
        /// The line, from 1.
        line: usize,
        /// The column, from 0.
        column: usize,
    },
    /// It is not the JSON that it should be.
    #[error("{0}")]
    Somewhere(&'static str),
    /// A field is longer than its reader keeps.
    #[error("its {0} is too long")]
    TooLong(&'static str),
    /// It stands for all of its kind in its namespace, of which there are more than its reader keeps.
    #[error("there are too many of them in its namespace, or too large ones")]
    TooMany,
}

impl From<&serde_json::Error> for Unreadable {
    fn from(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            Category::Io => "it cannot be read",
            Category::Syntax => "it is not JSON, or nested too deeply",
            Category::Data => "it is JSON of another shape",
            Category::Eof => "it ends too early",
        };
        match (error.line(), error.column()) {
            (0, _) => Self::Somewhere(what),
            (line, column) => Self::At { what, line, column },
        }
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_json_quote_no_value() {
        let secret = r#"{"password": "hunter2"}"#;
        let read = |text: &str| serde_json::from_str::<Vec<u8>>(text).unwrap_err();
        let typed = serde_json::from_value::<u8>("hunter2".into()).unwrap_err();
        assert!(
            typed.to_string().contains("hunter2"),
            "serde quotes no longer: {typed}"
        );
        for (error, expected) in [
            (
                read(secret),
                "it is JSON of another shape (line 1, column 0)",
            ),
            (
                read("[\n 1, \"hunter2\"]"),
                "it is JSON of another shape (line 2, column 13)",
            ),
            (
                read("[1, hunter2]"),
                "it is not JSON, or nested too deeply (line 1, column 5)",
            ),
            (read("[1,"), "it ends too early (line 1, column 3)"),
            (typed, "it is JSON of another shape"),
        ] {
            assert_eq!(Unreadable::from(&error).to_string(), expected, "{error}");
        }
    }
}
