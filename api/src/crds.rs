//! Bounds of fields, and what words of the system are.

/// Longest name of a Kubernetes object, in characters.
pub const NAME_MAX: usize = 253;
/// Longest word that says why or what, in CamelCase: of a condition, a failure.
pub const WORD_MAX: usize = 64;
/// Longest UID that is accepted; a UUID has 36 characters.
pub const UID_MAX: usize = 64;
/// Most conditions of an object.
pub const CONDITIONS_MAX: usize = 8;
/// Most slots in the ledger, and so most nodes that are updated at once, whatever is configured. The ledger is one object,
/// which is written again whenever a slot is taken or given back: with 500 slots it is stored as at most 1.25 MB, and etcd takes
/// no object of more than 1.5 MB.
pub const SLOTS_MAX: u64 = 500;
/// Most records of the ledger, each of one version and one variant.
pub const VERSION_RECORDS_MAX: usize = 64;
/// Most nodes that the ledger names as failed, for each version.
pub const FAILED_NODES_MAX: usize = 8;
/// Longest version string that is accepted.
pub const VERSION_MAX: usize = 64;
/// Longest variant, such as `aws-k8s-1.36-arm64`.
pub const VARIANT_MAX: usize = 48;
/// Longest boot id that is accepted; a UUID has 36 characters.
pub const BOOT_ID_MAX: usize = 64;
/// Longest message for people that is accepted, in characters. We cut ours to as many bytes, so to no more characters.
pub const MESSAGE_MAX: usize = 1024;
/// Longest time that is accepted; RFC 3339 with nanoseconds has 35 characters.
pub const TIME_MAX: usize = 64;
/// Longest name of a pool. Each slot in the ledger names one.
pub const POOL_NAME_MAX: usize = 63;
/// Most pools that a pool comes after.
pub const DEPENDS_ON_MAX: usize = 8;
/// Most pools of which the ledger notes which versions they are done with.
pub const DONE_POOLS_MAX: usize = 16;
/// Most versions of which it notes that: first those that nodes run or want.
pub const DONE_VERSIONS_MAX: usize = 16;
/// Most gates of a pool.
pub const GATES_MAX: usize = 4;
/// Longest expression that a gate asks for, in characters.
pub const QUERY_MAX: usize = 1024;
/// Most versions that the status of a pool counts nodes of.
pub const POOL_VERSIONS_MAX: usize = 8;
/// Longest name or value of a label.
pub(crate) const LABEL_MAX: usize = 63;
/// Highest count that is accepted: every JSON parser reads it exactly.
pub const COUNTER_MAX: u64 = 9_007_199_254_740_991;

/// Whether this text has the characters of a DNS label, whatever its length.
pub(crate) fn is_label_of_any_length(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    ends.iter().all(|end| end.is_some_and(inner))
        && text.bytes().all(|byte| inner(&byte) || byte == b'-')
}

/// Is this a boot id that the schemas take: at most [`BOOT_ID_MAX`] letters, digits, `.`, `_` and `-`? The kernel's is a
/// UUID.
pub fn is_boot_id(text: &str) -> bool {
    (1..=BOOT_ID_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether this text has the characters and the length of a variant.
pub fn is_variant(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=VARIANT_MAX).contains(&text.len()) && text.bytes().all(plain)
}

/// Whether this text has the characters and the length of a version.
pub fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    let begins = text.starts_with(|first: char| first.is_ascii_digit());
    begins && text.len() <= VERSION_MAX && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_from_others() {
        for (text, is_label) in [
            ("a", true),
            ("a-1", true),
            ("7a", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            ("a_b", false),
        ] {
            assert_eq!(is_label_of_any_length(text), is_label, "{text:?}");
        }
        for (text, expected) in [
            ("0a1b-2c", true),
            ("a_b.c", true),
            ("", false),
            ("a b", false),
            ("a/b", false),
            (&"a".repeat(BOOT_ID_MAX + 1), false),
        ] {
            assert_eq!(is_boot_id(text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("aws-k8s-1.30", true),
            ("", false),
            ("a b", false),
            (&"a".repeat(300), false),
        ] {
            assert_eq!(is_variant(text), expected, "{text:?}");
        }
    }
}
