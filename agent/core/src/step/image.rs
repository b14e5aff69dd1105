//! Decides who staged the image and whether it is intact. The host would also activate a damaged image.

use brupop_api::State;
use brupop_api::shadow::{ShadowFacts, Staged};
use jiff::Timestamp;

use super::input::StepInput;
use super::{Command, EndedCommand, HostFacts, StepMemory, UpdateFacts, UpdateState};

/// The image that we staged, as of the host's last command. No command of ours but a prepare writes to it: if one follows
/// right after the command that the image was known by, its time takes the place of that command's. But if the first refresh
/// that succeeds chooses another version, the prepare may have written that one, or nothing: then there is no image to be
/// trusted.
pub(super) fn our_image_after(
    shadow: &ShadowFacts<'_>,
    host: &HostFacts<'_>,
    ended: Option<EndedCommand<'_>>,
    memory: &mut StepMemory,
) -> Option<Staged> {
    let reported = shadow.status.staged.as_ref().and_then(at);
    memory.image_at = memory.image_at.filter(|(of, _)| Some(*of) == reported);
    let staged = shadow.status.staged.as_ref()?;
    let known_at = memory.image_at.map(|(_, at)| at);
    let follows = |ended: &EndedCommand<'_>| {
        ended.command != Command::Prepare
            && ended.before.is_some()
            && ended.before == known_at.or(reported)
    };
    let as_of = |at: Timestamp| Staged {
        at: at.to_string(),
        ..staged.clone()
    };
    let Some(ended) = ended.filter(follows) else {
        return Some(known_at.map_or_else(|| staged.clone(), as_of));
    };
    memory.image_at = reported.map(|of| (of, ended.last.at));
    let doubtful = host.known().is_some_and(|known| {
        let chosen_still = known.chosen == Some(staged.version.as_str());
        known.state == UpdateState::Staged
            && ended.is_first_look
            && ended.last.found_updates()
            && !chosen_still
    });
    (!doubtful).then(|| as_of(ended.last.at))
}

/// Is this an image of an attempt that is over, which could not be activated? What keeps it from that may stand in the
/// partition table, and goes with another download.
pub(super) fn is_unfit(
    image: &Staged,
    host: &HostFacts<'_>,
    shadow: &ShadowFacts<'_>,
    memory: &StepMemory,
) -> bool {
    let stands = |known: UpdateFacts<'_>| {
        known.state == UpdateState::Staged
            && known.last.is_some_and(|last| at(image) == Some(last.at))
    };
    shadow.spec.state == State::Idle
        && memory.activate_failed.is_some()
        && host.known().is_some_and(stands)
}

fn at(staged: &Staged) -> Option<Timestamp> {
    staged.at.parse().ok()
}

impl StepInput<'_, '_> {
    /// Whether an attempt of ours may have activated an image.
    pub(super) fn pending(&self) -> bool {
        self.our_image
            .as_ref()
            .is_some_and(|staged| !staged.prefetched && staged.version != self.host.version)
    }

    /// Is the staged image the one that an attempt of ours staged, and whole? Not if another prepare has run since.
    pub(super) fn is_ours(&self, known: &UpdateFacts<'_>) -> bool {
        let Some(staged) = self.our_image.as_ref().filter(|staged| !staged.prefetched) else {
            return false;
        };
        let untouched = match known.last {
            Some(last) if last.kind == Some(Command::Prepare) => {
                last.prepared(&staged.version) && at(staged) == Some(last.at)
            }
            _ => true,
        };
        untouched && known.staged_version == Some(staged.version.as_str())
    }

    pub(super) fn is_ours_and_wanted(&self, known: &UpdateFacts<'_>) -> bool {
        self.is_ours(known) && known.staged_version == self.shadow.spec.version.as_deref()
    }

    /// The staged image, if it is whole, is the wanted one, and is the one that the host chooses.
    pub(super) fn whole_and_wanted(&self, known: &UpdateFacts<'_>) -> Option<Staged> {
        let whole = self
            .whole(known)
            .or_else(|| self.just_prepared(known))
            .or_else(|| self.predecessors(known))
            .or_else(|| said_to_be_chosen(known))?;
        let version = Some(whole.version.as_str());
        (version == self.shadow.spec.version.as_deref() && version == known.chosen).then_some(whole)
    }

    /// The image that we reported, if it is still there and whole. The host's last command must be our prepare, or one of the
    /// commands of ours right after it: any other may hide that another prepare has failed and damaged the image.
    pub(super) fn whole(&self, known: &UpdateFacts<'_>) -> Option<Staged> {
        let (staged, last) = (self.our_image.as_ref()?, known.last?);
        let harmless = match last.kind {
            Some(Command::Prepare) => last.prepared(&staged.version),
            Some(Command::Refresh | Command::Activate | Command::Deactivate) => true,
            None => false,
        };
        let there = known.state == UpdateState::Staged
            && known.staged_version == Some(staged.version.as_str());
        (there && harmless && at(staged) == Some(last.at)).then(|| staged.clone())
    }

    /// Returns what a prepare of this process has staged, if it has just succeeded.
    pub(super) fn just_prepared(&self, known: &UpdateFacts<'_>) -> Option<Staged> {
        self.ended
            .filter(|ended| ended.command == Command::Prepare)?;
        last_prepared(known)
    }

    /// Returns what the process that began this attempt has staged, if it died before it could say so. If this process began
    /// the attempt, the image is somebody else's.
    fn predecessors(&self, known: &UpdateFacts<'_>) -> Option<Staged> {
        if self.memory.began == self.shadow.spec.attempt {
            None
        } else {
            last_prepared(known)
        }
    }
}

/// Returns what stands in the staging partition, if the last command is a prepare that succeeded and does not say that it wrote
/// something else.
fn last_prepared(known: &UpdateFacts<'_>) -> Option<Staged> {
    let version = known
        .staged_version
        .filter(|_| known.state == UpdateState::Staged)?;
    let last = known.last.filter(|last| last.prepared(version))?;
    Some(Staged {
        version: version.to_owned(),
        at: last.at.to_string(),
        prefetched: false,
    })
}

/// Returns what the host's last command, a prepare that anybody may have asked for, says itself that it wrote, if that is what
/// the host chooses.
pub(super) fn said_to_be_chosen(known: &UpdateFacts<'_>) -> Option<Staged> {
    let says = |version: &&str| {
        known
            .last
            .is_some_and(|last| last.says_it_prepared(version))
    };
    known
        .chosen
        .filter(says)
        .filter(|chosen| known.staged_version == Some(chosen))?;
    last_prepared(known)
}
