//! What a look for updates found, or why there is none.

use brupop_api::facts::{HOST_TROUBLE, REFRESH_FAILED};
use semver::Version;

use super::view::{View, failure};
use super::{Command, LastCommand, Prefetch, Report, UpdateFacts, Updates};

/// How the message on an update begins that is available and not chosen; it goes when one is chosen or none is available.
pub(super) const UNCHOSEN: &str = "the host chooses no update";

impl<'a> View<'_, 'a> {
    /// Says that an update is available which the host does not choose. Its refresh is a success all the same if it could
    /// not read its settings.
    pub(super) fn say_unchosen(&self, report: &mut Report<'a>) {
        let said = self.shadow.status.message;
        let ours = said.is_some_and(|message| message.starts_with(UNCHOSEN));
        let Some(known) =
            self.host.known().filter(|known| known.last.is_some_and(LastCommand::found_updates))
        else {
            return;
        };
        match self.newer(&known) {
            Some(newest) if known.chosen.is_none() && self.is_free_for(UNCHOSEN) => report.message(Some(format!(
                "{UNCHOSEN}, although {newest} is available: settings.updates.version-lock may hold it back, or the \
                 host cannot read settings.updates"
            ))),
            _ if ours => report.message(None),
            _ => {}
        }
    }

    /// May a message that begins like this be said? What is wrong with the host's API, and what made an attempt fail, is
    /// worth more.
    pub(super) fn is_free_for(&self, start: &str) -> bool {
        self.shadow.status.message.is_none_or(|said| {
            let of_attempt = self.shadow.spec.failures.is_some();
            said.starts_with(start) || !(of_attempt || said.starts_with(HOST_TROUBLE))
        })
    }

    /// The newest version that is available, if it is newer than what runs.
    fn newer(&self, known: &UpdateFacts<'a>) -> Option<&'a str> {
        let version = |text: &str| Version::parse(text).ok();
        known.newest.filter(|newest| version(newest) > version(self.host.version))
    }

    /// What holds the host's lock, if it has been held for long. A download ahead of the turn may well take hours.
    fn held_up(&self) -> Option<&'static str> {
        let asked = self.memory.asked.map(|asked| asked.command);
        let may_be_download =
            asked == Some(Command::Prepare) || (asked.is_none() && self.memory.prefetch != Prefetch::Off);
        if self.host.updates != Updates::Busy || !self.memory.busy_for_long || may_be_download {
            None
        } else if asked == Some(Command::Refresh) {
            Some("it has not ended for more than 10 minutes")
        } else {
            Some("another update command has held the host's lock for more than 10 minutes")
        }
    }

    /// Says that the last look for updates failed, or cannot be made; takes that back after the next one that succeeded. A
    /// message about the API itself stays: the shell writes it, and would write it again.
    pub(super) fn say_refresh(&self, report: &mut Report<'a>) {
        let said = self.shadow.status.message.unwrap_or_default();
        if said.starts_with(HOST_TROUBLE) {
            return;
        }
        if let Some(last) = self.failed_refresh() {
            report.message(Some(failure("refresh", &last)));
        } else if let Some(why) = self.held_up() {
            report.message(Some(format!("{REFRESH_FAILED}: {why}")));
        } else if self.memory.refresh_lost {
            report.message(Some(format!("{REFRESH_FAILED}: the host does not say how it ended")));
        } else if self.host.last().is_some() && said.starts_with(REFRESH_FAILED) {
            report.message(None);
        }
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
            _ if self.shadow.status.target_version == Some(self.host.version) => report.target(None),
            _ => {}
        }
    }
}
