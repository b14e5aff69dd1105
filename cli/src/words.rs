//! Words that others have written, in our commands and sentences: checked by their type, or shown as a quotation.

use brupop_api::crds::{NAME_MAX, VARIANT_MAX, VERSION_MAX, is_variant, is_version};
use brupop_api::names::{DEFAULT_NAMESPACE, is_object_name};
use brupop_api::printable::printable;

/// Returns the command of this plugin that says why a node waits, for the operator in this namespace. A name that is none is
/// left for people to fill in.
pub(crate) fn why(node: &str, namespace: &str) -> String {
    let node = if is_object_name(node) { node } else { "NODE" };
    let namespace = match namespace {
        DEFAULT_NAMESPACE => String::new(),
        other => format!(" -n {other}"),
    };
    format!("`kubectl brupop why {node}{namespace}`")
}

/// Returns the name of an object.
pub(crate) fn name(text: &str) -> String {
    quoted(text, is_object_name(text), NAME_MAX)
}

pub(crate) fn version(text: &str) -> String {
    quoted(text, is_version(text), VERSION_MAX)
}

pub(crate) fn variant(text: &str) -> String {
    quoted(text, is_variant(text), VARIANT_MAX)
}

/// Returns a word as it is if it is of its type, else as a quotation.
fn quoted(text: &str, is_of_type: bool, limit: usize) -> String {
    match shown(text, limit) {
        word if is_of_type => word,
        words => format!("\"{words}\""),
    }
}

/// Returns a text from outside, fit to be shown. Backquotes are left to our own commands.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    printable(text, limit).replace('`', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_take_arguments_of_their_type_only() {
        let injected = [
            "$(touch x)",
            "`touch x`",
            "1.20.0;id",
            "a b",
            "-n",
            "--pool",
            "A",
            "",
            "../x",
            "a\nb",
        ];
        assert_eq!(why("web-1", "ns"), "`kubectl brupop why web-1 -n ns`");
        for text in injected {
            assert_eq!(
                why(text, DEFAULT_NAMESPACE),
                "`kubectl brupop why NODE`",
                "{text}"
            );
        }
    }

    #[test]
    fn words_of_another_shape_are_quoted() {
        assert_eq!(
            (version("1.20.0"), name("web-1")),
            ("1.20.0".to_owned(), "web-1".to_owned())
        );
        assert_eq!(version("$(touch x)"), "\"$(touch x)\"");
        assert_eq!(name("`touch x`\n"), "\"'touch x'\\n\"");
    }
}
