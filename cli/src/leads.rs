//! Whether a reconciler leads. Without one nothing happens, whatever objects still say.

use brupop_core::objects::LeaseRecord;
use jiff::{SignedDuration, Timestamp};

/// A Lease that was given back, or is renewed late, may have a holder again within this time.
const HAND_OVER: SignedDuration = SignedDuration::from_secs(15);

/// Whether a reconciler leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    /// Yes.
    Yes,
    /// No, and since this time, if one ever did.
    No(Option<Timestamp>),
    /// It cannot be found out, and this is why.
    NotKnown(String),
}

impl Leads {
    /// Decides by the Lease, if there is one, at this time of the API server.
    pub(crate) fn of(lease: Option<&LeaseRecord>, now: Timestamp) -> Self {
        let Some(LeaseRecord {
            holder,
            renewed: Some(renewed),
            duration,
            ..
        }) = lease
        else {
            return Self::No(None);
        };
        let valid = duration.filter(|_| holder.is_some()).unwrap_or_default();
        let silent = now.duration_since(*renewed)
            > valid
                .try_into()
                .unwrap_or(SignedDuration::MAX)
                .max(HAND_OVER);
        if silent {
            Self::No(Some(*renewed))
        } else {
            Self::Yes
        }
    }

    /// Returns a sentence for people, unless one leads.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Yes => None,
            Self::No(Some(since)) => Some(format!(
                "no reconciler has led since {since:.0}: nothing will happen before one does, and what is shown may be old"
            )),
            Self::No(None) => {
                Some("no reconciler has ever led: nothing will happen before one does".to_owned())
            }
            Self::NotKnown(why) => Some(format!("whether a reconciler leads is not known: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_that_is_not_renewed_has_no_leader() {
        let renewed: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        for (holder, seconds, after, leads) in [
            (true, 15, 14, true),
            (true, 15, 16, false),
            (true, 60, 59, true),
            (true, 60, 61, false),
            // Given back: another one may be about to take it.
            (false, 1, 14, true),
            (false, 1, 16, false),
            // The leader's clock is ahead.
            (true, 15, -60, true),
        ] {
            let holder = holder.then(|| "p".to_owned());
            let duration = Some(Duration::from_secs(seconds));
            let lease = LeaseRecord {
                holder,
                renewed: Some(renewed),
                duration,
                ..LeaseRecord::default()
            };
            let expected = if leads {
                Leads::Yes
            } else {
                Leads::No(Some(renewed))
            };
            let now = renewed + SignedDuration::from_secs(after);
            assert_eq!(
                Leads::of(Some(&lease), now),
                expected,
                "{lease:?} after {after} s"
            );
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
            told.starts_with("no reconciler has led since 2026-11-21T04:00:00Z: nothing"),
            "{told}"
        );
        assert_eq!(Leads::Yes.warning(), None);
    }
}
