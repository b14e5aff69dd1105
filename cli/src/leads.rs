//! Whether a reconciler leads. Without one nothing happens, whatever objects still say.

use brupop_core::objects::LeaseRecord;
use jiff::{SignedDuration, Timestamp};

/// Time after the last renewal from which a Lease has no holder: one that was given back may have a holder again soon, and the clocks of
/// its holder and of this machine differ.
const LONGEST_SILENCE: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    Yes,
    /// No, and since this time, if one ever did.
    No(Option<Timestamp>),
    /// It cannot be found out, and this is why.
    NotKnown(String),
}

impl Leads {
    /// Decides by the Lease, if there is one, at this time.
    pub(crate) fn of(lease: Option<&LeaseRecord>, now: Timestamp) -> Self {
        match lease.and_then(|lease| lease.renewed) {
            Some(renewed) if now.duration_since(renewed) <= LONGEST_SILENCE => Self::Yes,
            renewed => Self::No(renewed),
        }
    }

    /// Returns a sentence for people, unless one leads.
    pub(crate) fn warning(&self) -> Option<String> {
        Some(match self {
            Self::Yes => return None,
            Self::No(Some(since)) => format!(
                "no reconciler has led since {since:.0}, if the clock here is right: nothing happens until one does, and what is \
                 shown may be outdated"
            ),
            Self::No(None) => {
                "no reconciler has led yet: nothing happens until one does".to_owned()
            }
            Self::NotKnown(why) => format!("it is not known whether a reconciler leads: {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_not_renewed_has_no_leader() {
        let renewed: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        for (after, expected) in [
            (59, Leads::Yes),
            (61, Leads::No(Some(renewed))),
            // The leader's clock is ahead.
            (-60, Leads::Yes),
        ] {
            let lease = LeaseRecord {
                renewed: Some(renewed),
                ..LeaseRecord::default()
            };
            let now = renewed + SignedDuration::from_secs(after);
            assert_eq!(Leads::of(Some(&lease), now), expected, "after {after} s");
        }
        assert_eq!(
            Leads::of(Some(&LeaseRecord::default()), renewed),
            Leads::No(None)
        );
        assert_eq!(Leads::of(None, renewed), Leads::No(None));
    }

    #[test]
    fn it_is_told_since_when() {
        let since = "2026-11-21T04:00:00.123Z".parse().ok();
        let told = Leads::No(since).warning().unwrap();
        assert!(
            told.starts_with("no reconciler has led since 2026-11-21T04:00:00Z, if the clock here is right: nothing"),
            "{told}"
        );
        assert_eq!(Leads::Yes.warning(), None);
    }
}
