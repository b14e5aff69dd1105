//! The chosen update is downloaded while the node waits for its turn, and never activated before.

use brupop_api::shadow::Staged;

use super::goals::{View, failure};
use super::{Command, Ended, Prefetch, Report, UpdateState, Updates};

/// How the message on a download ahead of the turn that failed begins; it goes when one succeeds or none is wanted.
const PREFETCH_FAILED: &str = "prefetch failed";

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
        free && self.failed_refresh().is_none()
    }

    /// Does the staging partition hold what we downloaded and do not trust?
    fn is_distrusted(&self) -> bool {
        let distrusted_at = self.memory.distrusted_at;
        distrusted_at.is_some() && distrusted_at == self.host.last().map(|last| last.at)
    }

    /// Says once that a download has failed, and takes it back. What made an attempt fail is worth more.
    pub(super) fn say_prefetch(&self, report: &mut Report<'a>) {
        let said = self.shadow.status.message;
        let ours = said.filter(|message| message.starts_with(PREFETCH_FAILED));
        let free = ours.is_some() || said.is_none() || self.shadow.spec.failures.is_none();
        match self.ended {
            _ if self.memory.prefetch == Prefetch::Off || !free => {}
            Some(Ended { command: Command::Prepare, last, .. }) if !last.success => {
                report.message(Some(failure("prefetch", &last)));
            }
            _ if ours.is_some() => {
                let over = self.prefetched().is_some()
                    || self.host.known().is_some_and(|known| known.chosen.is_none());
                report.message(ours.filter(|_| !over).map(str::to_owned));
            }
            _ => {}
        }
    }
}
