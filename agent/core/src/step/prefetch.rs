//! An image that waits for the node's turn, and is never activated before: an update that was downloaded ahead, or the image of an
//! attempt that was given up.

use brupop_api::Problem;
use brupop_api::shadow::Staged;

use super::image::said_to_be_chosen;
use super::input::{ProblemText, StepInput, failure};
use super::{Command, EndedCommand, Prefetch, UpdateFacts, UpdateState, Updates};

const IN_THE_WAY: &str = "the update is not downloaded ahead: the inactive partition holds an image that may not be this agent's; it \
    is overwritten in the node's turn";

impl StepInput<'_, '_> {
    /// The image that waits for the node's turn, as far as it is known to be whole.
    pub(super) fn prefetched(&self) -> Option<Staged> {
        match self.host.updates {
            Updates::Unknown => None,
            // The running command may be a prepare; its end shows that.
            Updates::Busy => self.our_image.clone().filter(|staged| staged.prefetched),
            Updates::Known(known) => {
                let ours = self.whole(&known).or_else(|| self.just_prepared(&known));
                let waits = ours.or_else(|| said_to_be_chosen(&known));
                waits.map(|staged| Staged {
                    prefetched: true,
                    ..staged
                })
            }
        }
    }

    /// Is the chosen update to be downloaded now? Not over an image that a person staged or activated.
    pub(super) fn prefetch_is_due(&self) -> bool {
        let Some(known) = self
            .host
            .known()
            .filter(|_| self.memory.prefetch == Prefetch::Due)
        else {
            return false;
        };
        let Some(chosen) = known.chosen.filter(|chosen| *chosen != self.host.version) else {
            return false;
        };
        let free = match known.state {
            UpdateState::Available => true,
            UpdateState::Staged => {
                self.is_distrusted()
                    || self
                        .prefetched()
                        .is_some_and(|staged| staged.version != chosen)
            }
            UpdateState::Idle | UpdateState::Ready => false,
        };
        free && self.failed_refresh().is_none() && self.wrote_instead().is_none()
    }

    /// Whether the staging partition holds an image that may be a person's, so that no update is downloaded over it before the
    /// node's turn comes.
    fn is_in_the_way(&self) -> bool {
        let held = |known: &UpdateFacts<'_>| {
            let wanted = known
                .chosen
                .is_some_and(|chosen| chosen != self.host.version);
            wanted && matches!(known.state, UpdateState::Staged | UpdateState::Ready)
        };
        self.host.known().is_some_and(|known| held(&known))
            && self.failed_refresh().is_none()
            && !self.is_distrusted()
            && self.prefetched().is_none()
    }

    /// Whether the staging partition holds an image that we downloaded and do not trust.
    fn is_distrusted(&self) -> bool {
        let distrusted_at = self.memory.distrusted_at;
        distrusted_at.is_some() && distrusted_at == self.host.last().map(|last| last.at)
    }

    /// A download has just failed, or there cannot be one.
    pub(super) fn prefetch_problem(&self) -> Option<ProblemText> {
        if self.memory.prefetch == Prefetch::Off {
            return None;
        }
        match self.ended {
            Some(EndedCommand {
                command: Command::Prepare,
                last,
                ..
            }) if !last.success => {
                let nowhere = self.ended.is_some_and(EndedCommand::finds_no_partition);
                let problem = if nowhere {
                    Problem::NoInPlaceUpdates
                } else {
                    Problem::PrefetchFailed
                };
                return Some((problem, failure("prefetch", &last)));
            }
            _ => {}
        }
        if let Some(sentence) = self.wrote_instead() {
            return Some((
                Problem::PrefetchFailed,
                format!("prefetch failed: {sentence}"),
            ));
        }
        self.is_in_the_way()
            .then(|| (Problem::PrefetchBlocked, IN_THE_WAY.to_owned()))
    }
}
