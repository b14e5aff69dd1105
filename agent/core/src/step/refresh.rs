//! The result of a refresh, or the reason why there is none.

use brupop_api::Problem;
use semver::Version;

use super::input::{ProblemText, StepInput, failure};
use super::{Command, LastCommand, Prefetch, Report, UpdateFacts, Updates};

impl<'a> StepInput<'_, 'a> {
    /// An update is available which the host does not choose. Its refresh is a success all the same if it could not read its
    /// settings.
    pub(super) fn unchosen(&self) -> Option<ProblemText> {
        let known = self
            .host
            .known()
            .filter(|known| known.last.is_some_and(LastCommand::found_updates))?;
        let newest = self.newer(&known).filter(|_| known.chosen.is_none())?;
        let sentence = format!(
            "the host does not choose {newest}, which its repository has: settings.updates.version-lock may hold it \
             back, or the host cannot read settings.updates"
        );
        Some((Problem::NoUpdateChosen, sentence))
    }

    /// The newest version that is available, if it is newer than what runs.
    fn newer(&self, known: &UpdateFacts<'a>) -> Option<&'a str> {
        let version = |text: &str| Version::parse(text).ok();
        known
            .newest
            .filter(|newest| version(newest) > version(self.host.version))
    }

    /// Returns what holds the host's lock, if it has been held for long. A download ahead of the turn may well take hours.
    fn held_up(&self) -> Option<&'static str> {
        let asked = self.memory.asked.map(|asked| asked.command);
        let may_be_download = asked == Some(Command::Prepare)
            || (asked.is_none() && self.memory.prefetch != Prefetch::Off);
        if self.host.updates != Updates::Busy || !self.memory.busy_for_long || may_be_download {
            None
        } else if asked == Some(Command::Refresh) {
            Some("it has not ended for more than 10 minutes")
        } else {
            Some("another update command has held the host's lock for more than 10 minutes")
        }
    }

    /// The last look for updates failed, or cannot be made. A refresh that runs for long says nothing about the one before,
    /// if that failed: it may fail, too, and then one thing would be said in turn with the other.
    pub(super) fn refresh_problem(&self) -> Option<ProblemText> {
        let sentence = if let Some(last) = self.failed_refresh() {
            failure("refresh", &last)
        } else if self.memory.refresh_lost {
            "refresh failed: the host does not say how it ended".to_owned()
        } else {
            let why = self
                .held_up()
                .filter(|_| self.reported_problem() != Some(Problem::RefreshFailed))?;
            format!("refresh failed: {why}")
        };
        Some((Problem::RefreshFailed, sentence))
    }

    /// The host's last command, if it was a refresh that failed. Then the document says nothing about updates.
    pub(super) fn failed_refresh(&self) -> Option<LastCommand<'a>> {
        let last = self.host.known()?.last?;
        (last.kind == Some(Command::Refresh) && !last.success).then_some(last)
    }

    /// The chosen update, once the host has looked in this boot.
    pub(super) fn report_target(&self, report: &mut Report<'a>) {
        match self.host.updates {
            // If no command has ended since boot, nothing was looked for.
            Updates::Known(known) if known.last.is_some() || known.chosen.is_some() => {
                report.target(known.chosen.filter(|chosen| *chosen != self.host.version));
            }
            _ if self.shadow.status.target_version.as_deref() == Some(self.host.version) => {
                report.target(None);
            }
            _ => {}
        }
    }
}
