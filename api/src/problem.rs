//! What is wrong with a host or its update, as a word that is decided on; the sentence for people stands beside it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::words! {
    /// What an agent says is wrong. It stands until what it is about has ended otherwise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum Problem {
        /// Bottlerocket's API gives no answer that can be used.
        HostUnreachable,
        /// Bottlerocket's API refuses an update command.
        CommandRefused,
        /// Bottlerocket's API refuses to reboot.
        RebootRefused,
        /// The host could not look for updates, or does not get to it.
        RefreshFailed,
        /// The host's image has no in-place updates.
        NoInPlaceUpdates,
        /// The host's repository has a newer version, and the host does not choose it.
        NoUpdateChosen,
        /// A download ahead of its turn failed.
        PrefetchFailed,
        /// An image that may be a person's is in the way of a download ahead of its turn.
        PrefetchBlocked,
        /// The host would not boot the update next, and a reboot that was asked for may still come.
        NotNextToBoot,
        /// The host would boot an image whose update was given up, and fails to deactivate it.
        CannotDisarm,
        /// A step of an update failed.
        StepFailed,
    }
}

impl Problem {
    /// Does Bottlerocket's API not answer, or refuse what it is asked?
    pub fn is_of_host_api(self) -> bool {
        matches!(
            self,
            Self::HostUnreachable | Self::CommandRefused | Self::RebootRefused
        )
    }

    /// Is it about an attempt, and not about a host that waits for its turn?
    pub fn is_of_attempt(self) -> bool {
        matches!(self, Self::StepFailed | Self::NotNextToBoot)
    }

    /// Would an update fail for certain, most often at its first step, a refresh?
    pub fn prevents_update(self) -> bool {
        matches!(self, Self::RefreshFailed | Self::NoInPlaceUpdates) || self.is_of_host_api()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_problem_is_about_is_told_by_its_name() {
        use Problem::{
            CannotDisarm, CommandRefused, HostUnreachable, NoInPlaceUpdates, NoUpdateChosen,
            NotNextToBoot, PrefetchBlocked, PrefetchFailed, RebootRefused, RefreshFailed,
            StepFailed,
        };
        for problem in Problem::ALL {
            let expected = match problem {
                HostUnreachable | CommandRefused | RebootRefused => (true, false, true),
                RefreshFailed | NoInPlaceUpdates => (false, false, true),
                NoUpdateChosen | PrefetchFailed | PrefetchBlocked | CannotDisarm => {
                    (false, false, false)
                }
                NotNextToBoot | StepFailed => (false, true, false),
            };
            let told = (
                problem.is_of_host_api(),
                problem.is_of_attempt(),
                problem.prevents_update(),
            );
            assert_eq!(told, expected, "{problem}");
        }
    }
}
