//! Words that others have written, in our commands and sentences: checked by their type, or shown as a quotation.

use std::fmt;

use brupop_api::crds::{NAME_MAX, VARIANT_MAX, VERSION_MAX, is_variant, is_version};
use brupop_api::names::{DEFAULT_NAMESPACE, is_object_name};
use brupop_api::printable::printable;

/// An argument of a command that people paste. What is not of its type is left for them to fill in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Node(&'a str),
    Pool(&'a str),
    Version(&'a str),
}

impl fmt::Display for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, is_one, left_open) = match *self {
            Self::Node(name) => (name, is_object_name(name), "NODE"),
            Self::Pool(name) => (name, is_object_name(name), "POOL"),
            Self::Version(version) => (version, is_version(version), "VERSION"),
        };
        f.write_str(if is_one { word } else { left_open })
    }
}

/// A command of this plugin that can be pasted, for the operator in this namespace.
pub(crate) fn brupop(
    command: &'static str,
    argument: Option<Argument<'_>>,
    namespace: &str,
) -> String {
    let argument = argument.map_or(String::new(), |argument| format!(" {argument}"));
    let namespace = match namespace {
        DEFAULT_NAMESPACE => String::new(),
        other => format!(" -n {other}"),
    };
    format!("`kubectl brupop {command}{argument}{namespace}`")
}

/// Returns the name of an object.
pub(crate) fn name(text: &str) -> String {
    quoted(text, is_object_name(text), NAME_MAX)
}

/// Returns a version.
pub(crate) fn version(text: &str) -> String {
    quoted(text, is_version(text), VERSION_MAX)
}

/// Returns a variant.
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
        for (argument, word, left_open) in [
            (
                Argument::Node as fn(_) -> _,
                "ip-10-0-0-1.ec2.internal",
                "NODE",
            ),
            (Argument::Pool, "web-1", "POOL"),
            (Argument::Version, "1.20.0-rc.1+8d96bbfd", "VERSION"),
        ] {
            assert_eq!(
                brupop("x", Some(argument(word)), "ns"),
                format!("`kubectl brupop x {word} -n ns`")
            );
            for text in injected {
                let command = brupop("x", Some(argument(text)), DEFAULT_NAMESPACE);
                assert_eq!(command, format!("`kubectl brupop x {left_open}`"), "{text}");
            }
        }
        assert_eq!(
            brupop("status", None, DEFAULT_NAMESPACE),
            "`kubectl brupop status`"
        );
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
