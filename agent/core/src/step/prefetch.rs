//! The chosen update is downloaded while the node waits for its turn, and never activated before.

use brupop_api::shadow::Staged;

use super::view::{View, failure};
use super::{Command, Ended, Prefetch, Report, UpdateFacts, UpdateState, Updates};

/// How messages on downloads ahead of the turn begin; they go when one succeeds or none is wanted.
pub(super) const PREFETCH: &str = "prefetch ";

const IN_THE_WAY: &str = "prefetch waits: the inactive partition holds an image that is not known to be ours; it is \
    overwritten when the node's turn comes";

impl<'a> View<'_, 'a> {
    /// What was downloaded ahead of its turn, as far as it is known to be whole.
    pub(super) fn prefetched(&self) -> Option<Staged> {
        if self.memory.prefetch == Prefetch::Off {
            return None;
        }
        match self.host.updates {
            Updates::Unknown => None,
            // What runs may be a prepare: that is seen when it has ended.
            Updates::Busy => self.our_image.clone().filter(|staged| staged.prefetched),
            Updates::Known(known) => {
                let ours = self.whole(&known).or_else(|| self.just_prepared(&known));
                ours.map(|staged| Staged { prefetched: true, ..staged })
            }
        }
    }

    /// Is the chosen update to be downloaded now? Not over an image that a person staged or activated.
    pub(super) fn prefetch_is_due(&self) -> bool {
        let Some(known) = self.host.known().filter(|_| self.memory.prefetch == Prefetch::Due) else {
            return false;
        };
        let Some(chosen) = known.chosen.filter(|chosen| *chosen != self.host.version) else { return false };
        let free = match known.state {
            UpdateState::Available => true,
            UpdateState::Staged => {
                self.is_distrusted() || self.prefetched().is_some_and(|staged| staged.version != chosen)
            }
            UpdateState::Idle | UpdateState::Ready => false,
        };
        free && self.failed_refresh().is_none() && self.wrote_instead().is_none()
    }

    /// Does the staging partition hold an image that may be a person's, so that no update is downloaded over it before the
    /// node's turn comes?
    fn is_in_the_way(&self) -> bool {
        let held = |known: &UpdateFacts<'_>| {
            let wanted = known.chosen.is_some_and(|chosen| chosen != self.host.version);
            wanted && matches!(known.state, UpdateState::Staged | UpdateState::Ready)
        };
        self.host.known().is_some_and(|known| held(&known))
            && self.failed_refresh().is_none()
            && !self.is_distrusted()
            && self.prefetched().is_none()
    }

    /// Does the staging partition hold what we downloaded and do not trust?
    fn is_distrusted(&self) -> bool {
        let distrusted_at = self.memory.distrusted_at;
        distrusted_at.is_some() && distrusted_at == self.host.last().map(|last| last.at)
    }

    /// Says once that a download has failed, or why there is none, and takes it back. What made an attempt fail is worth more.
    pub(super) fn say_prefetch(&self, report: &mut Report<'a>) {
        let said = self.shadow.status.message;
        let ours = said.filter(|message| message.starts_with(PREFETCH));
        let wrote_instead = self.wrote_instead();
        match self.ended {
            _ if self.memory.prefetch == Prefetch::Off && ours.is_some() => report.message(None),
            _ if self.memory.prefetch == Prefetch::Off || !self.is_free_for(PREFETCH) => {}
            Some(Ended { command: Command::Prepare, last, .. }) if !last.success => {
                report.message(Some(failure("prefetch", &last)));
            }
            _ if wrote_instead.is_some() => {
                report.message(wrote_instead.map(|sentence| format!("prefetch failed: {sentence}")));
            }
            _ if self.is_in_the_way() => report.message(Some(IN_THE_WAY.to_owned())),
            _ if ours.is_some() => {
                let over = self.prefetched().is_some()
                    || self.host.known().is_some_and(|known| known.chosen.is_none());
                report.message(ours.filter(|_| !over).map(str::to_owned));
            }
            _ => {}
        }
    }
}
