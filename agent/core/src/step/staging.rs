//! Toward `StagedAndPerformedUpdate`: look for updates, download, look again, activate.
//!
//! `updog update-image`, which Bottlerocket runs for a prepare, reads the repository again and decides for itself what it
//! writes, or that there is nothing to write. The status document then names what the last refresh had chosen. So the name
//! may be wrong, and only a refresh after the prepare that still chooses this version makes it likely enough to be right.
//! A prepare that says that it wrote something else is believed, whatever that refresh chooses.

use brupop_api::shadow::Staged;
use brupop_api::{Problem, State};

use super::input::{StepInput, failure};
use super::memory::NextAction;
use super::{Command, EndedCommand, LastCommand, Report, UpdateFacts, UpdateState, Updates};

impl<'a> StepInput<'_, 'a> {
    /// Wanted: the host boots `spec.version` next.
    pub(super) fn toward_staged(&self, report: &mut Report<'a>) -> NextAction {
        report.staged(self.our_image.clone());
        if self.shadow.status.attempt != self.shadow.spec.attempt {
            return self.begin_attempt(report);
        }
        if self.shadow.reports(State::ErrorReset) {
            return NextAction::Wait;
        }
        if self.runs_wanted() {
            report.state(State::StagedAndPerformedUpdate);
            return NextAction::Wait;
        }
        if self.shadow.reached() {
            // A drain would lead nowhere.
            if self.is_disarmed() {
                report.failure(&self.not_next());
            }
            return NextAction::Wait;
        }
        if let Some((command, last)) = self.failed_for_good() {
            let sentence = failure(command.as_str(), &last);
            report.failure(&sentence);
            if self.ended.is_some_and(EndedCommand::finds_no_partition) {
                report.problem(Problem::NoInPlaceUpdates, &sentence);
            }
            return NextAction::Wait;
        }
        if self.memory.refused && !self.host.known().is_some_and(|known| self.is_armed(&known)) {
            report.failure(&self.refused_for_good());
            return NextAction::Wait;
        }
        match self.host.updates {
            Updates::Busy => NextAction::Poll,
            Updates::Unknown => NextAction::Command(Command::Refresh),
            Updates::Known(known) if self.is_armed(&known) => {
                report.state(State::StagedAndPerformedUpdate);
                let over = [Problem::StepFailed, Problem::RefreshFailed].map(Some);
                if over.contains(&self.reported_problem()) {
                    report.no_problem();
                }
                NextAction::Wait
            }
            Updates::Known(known) => {
                self.report_problem(report, self.refresh_problem());
                self.activate(&known, report)
                    .unwrap_or_else(|| self.prepare(&known, report))
            }
        }
    }

    /// Reports the attempt, before the host is touched.
    fn begin_attempt(&self, report: &mut Report<'a>) -> NextAction {
        if let Some(staged) = self
            .host
            .known()
            .and_then(|known| self.just_prepared(&known))
        {
            // The turn came when a download ahead of it had just ended.
            report.staged(Some(Staged {
                prefetched: true,
                ..staged
            }));
        }
        report.attempt();
        report.claim(None);
        report.no_problem();
        NextAction::Wait
    }

    /// The command of ours that has just failed, if that ends the attempt. A refresh or an activate that fails while an image
    /// of ours waits does not: it is repeated, so that no download is wasted. The step's deadline is the reconciler's.
    fn failed_for_good(&self) -> Option<(Command, LastCommand<'a>)> {
        let EndedCommand { command, last, .. } = self.ended.filter(|ended| !ended.last.success)?;
        let waits = || {
            self.host
                .known()
                .is_some_and(|known| self.whole(&known).is_some())
        };
        (!matches!(command, Command::Refresh | Command::Activate) || !waits())
            .then_some((command, last))
    }

    /// Returns why the attempt fails: the host refuses its commands, or no activate has succeeded for as long, which is said
    /// already.
    fn refused_for_good(&self) -> String {
        let told = matches!(
            self.reported_problem(),
            Some(Problem::StepFailed | Problem::RefreshFailed)
        );
        let message = self.shadow.status.message.as_deref();
        let words = message.filter(|_| told && self.activate_fails());
        words.map_or_else(|| self.refuses("the commands of the update"), str::to_owned)
    }

    /// Whether an activate has failed in this attempt, and none has succeeded since.
    fn activate_fails(&self) -> bool {
        self.memory.activate_failed.is_some()
            && self.memory.activate_failed == self.shadow.spec.attempt
    }

    /// Activates the image that waits, once the host has looked for updates after the prepare and still chooses it. `None`
    /// if no image waits that could be activated.
    fn activate(&self, known: &UpdateFacts<'a>, report: &mut Report<'a>) -> Option<NextAction> {
        if self.failed_refresh().is_some() && self.whole(known).is_some() {
            // A look that failed says nothing of what the host chooses.
            return Some(NextAction::Command(Command::Refresh));
        }
        let staged = self.whole_and_wanted(known)?;
        if let Some(EndedCommand {
            command: command @ Command::Activate,
            last,
            ..
        }) = self.ended
        {
            report.problem(Problem::StepFailed, &failure(command.as_str(), &last));
        }
        let looked = self.has_looked(known);
        // Reported before it is activated: so a restarted agent, and a later Idle, know it for this attempt's. What was
        // downloaded ahead of the turn becomes this attempt's only now.
        report.staged(Some(Staged {
            prefetched: staged.prefetched && !looked,
            ..staged
        }));
        Some(NextAction::Command(if looked {
            Command::Activate
        } else {
            Command::Refresh
        }))
    }

    /// Downloads the update, if the host still chooses `spec.version`.
    fn prepare(&self, known: &UpdateFacts<'a>, report: &mut Report<'a>) -> NextAction {
        if let Some(sentence) = self.wrote_instead() {
            report.problem(Problem::StepFailed, &sentence);
        }
        let wrote_instead = self.memory.wrote_instead == self.shadow.spec.attempt;
        if self.memory.refreshed != self.shadow.spec.attempt
            || (wrote_instead && !self.has_looked(known))
        {
            return NextAction::Command(Command::Refresh);
        }
        self.report_target(report);
        if known.chosen != self.shadow.spec.version.as_deref() {
            // The reconciler gives up this attempt; nothing has failed.
            return NextAction::Wait;
        }
        if wrote_instead {
            // The host still wants this version, and its updater another: a further prepare would go the same way.
            let told = self.shadow.status.message.as_deref();
            let told = told.filter(|_| self.reported_problem() == Some(Problem::StepFailed));
            let told = told.unwrap_or("prepare did not write what the host has chosen");
            report.failure(told);
            return NextAction::Wait;
        }
        match known.state {
            UpdateState::Ready => NextAction::Command(Command::Deactivate),
            UpdateState::Staged | UpdateState::Available => {
                // The partition is about to be overwritten, so its image is no longer trusted.
                report.staged(None);
                NextAction::Command(Command::Prepare)
            }
            UpdateState::Idle => NextAction::Wait,
        }
    }

    /// Is the host's last command a refresh that succeeded, and has this process made one in this attempt? Of an image
    /// that is whole, this refresh is ours, and came after its prepare.
    fn has_looked(&self, known: &UpdateFacts<'_>) -> bool {
        self.memory.refreshed == self.shadow.spec.attempt
            && known.last.is_some_and(LastCommand::found_updates)
    }
}
