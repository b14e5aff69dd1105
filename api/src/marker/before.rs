//! How a workload was before its pods were evicted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest note of a revision, in bytes. Kubernetes tells revisions apart by a hash of at most ten characters.
const REVISION_MAX: usize = 16;

/// How a workload was at the cordon, before its pods were evicted. Written as `<available>` or `<available>/<revision>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Before {
    /// How many of its pods were available.
    pub available: u32,
    /// Which revision its pods were to have, if it has revisions.
    pub revision: Option<Revision>,
}

/// The revision of a `StatefulSet`, as far as it is needed to tell it from others: the end of its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(String);

impl Revision {
    /// Of the name of a revision, such as `web-5d8f9c7b6`; `None` of an empty one.
    pub fn of(name: &str) -> Option<Self> {
        let hash = name.rsplit(['-', '/']).next()?;
        let end = hash
            .char_indices()
            .rev()
            .map(|(at, _)| at)
            .take_while(|at| hash.len() - at <= REVISION_MAX)
            .last()?;
        Some(Self(hash[end..].to_owned()))
    }
}

impl From<Before> for String {
    fn from(before: Before) -> Self {
        before.to_string()
    }
}

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.revision {
            None => write!(f, "{}", self.available),
            Some(Revision(revision)) => write!(f, "{}/{revision}", self.available),
        }
    }
}

impl TryFrom<String> for Before {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (available, revision) = text.split_once('/').unwrap_or((&text, ""));
        Ok(Self { available: available.parse()?, revision: Revision::of(revision) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_the_end_of_its_name() {
        let long = "x".repeat(300);
        for (name, noted) in [
            ("web-6596ffb49b", Some("6596ffb49b")),
            ("6596ffb49b", Some("6596ffb49b")),
            ("a/b", Some("b")),
            (long.as_str(), Some(&long[..REVISION_MAX])),
            ("aääääääää", Some("ääääääää")),
            ("ääääääää€", Some("ääääää€")),
            ("web-", None),
            ("", None),
        ] {
            assert_eq!(Revision::of(name).map(|it| it.0), noted.map(str::to_owned), "{name}");
        }
    }
}
