//! The agent's work for each state of the spec.

use brupop_api::{Problem, State};

use super::input::{StepInput, failure};
use super::memory::NextAction;
use super::written::{Instead, written_instead};
use super::{Command, EndedCommand, Report, UpdateFacts, UpdateState, Updates};

impl<'a> StepInput<'_, 'a> {
    /// Idle: nothing of ours is pending; look for updates now and then.
    pub(super) fn toward_idle(&self, report: &mut Report<'a>) -> NextAction {
        if self.pending() {
            // An image that our attempt activated must not be booted by accident.
            report.staged(self.our_image.clone());
            match self.host.updates {
                Updates::Busy => return NextAction::Poll,
                Updates::Unknown => return NextAction::Command(Command::Refresh),
                Updates::Known(known)
                    if known.state == UpdateState::Ready && self.is_ours(&known) =>
                {
                    if let Some(EndedCommand {
                        command: Command::Deactivate,
                        last,
                        ..
                    }) = self.ended
                    {
                        let (version, why) = (
                            known.staged_version.unwrap_or(""),
                            failure("deactivate", &last),
                        );
                        let sentence = format!("{version} cannot be deactivated: {why}");
                        report.problem(Problem::CannotDisarm, &sentence);
                    }
                    return NextAction::Command(Command::Deactivate);
                }
                // It may be carried out yet.
                Updates::Known(_)
                    if self
                        .memory
                        .asked
                        .is_some_and(|it| it.command == Command::Activate) =>
                {
                    return NextAction::Poll;
                }
                Updates::Known(_) => {}
            }
        }
        if self.fell_back_unreported() {
            report.crash(&self.fell_back());
            self.keep_cause(report);
        }
        report.state(State::Idle);
        report.staged(self.prefetched());
        report.claim(None);
        if self.shadow.spec.last_failure.is_none() {
            report.no_failures();
        }
        self.report_idle_problem(report);
        self.look_for_updates(report)
    }

    fn look_for_updates(&self, report: &mut Report<'a>) -> NextAction {
        if self.failed_refresh().is_none() {
            self.report_target(report);
        }
        if self.memory.refresh_due {
            return NextAction::Command(Command::Refresh);
        }
        match self.host.updates {
            _ if self.prefetch_is_due() => NextAction::Command(Command::Prepare),
            Updates::Busy => NextAction::Poll,
            _ => NextAction::Wait,
        }
    }

    /// Wanted: the host runs `spec.version`. It may be rebooted from the granted boot, once that is claimed.
    pub(super) fn toward_rebooted(&self, report: &mut Report<'a>) -> NextAction {
        report.attempt();
        if self.runs_wanted() {
            report.state(State::RebootedIntoUpdate);
            return NextAction::Wait;
        }
        if self.shadow.reports(State::ErrorReset) {
            return NextAction::Wait;
        }
        let claim = self.shadow.status.reboot_claimed_boot_id.as_deref();
        let granted = self.shadow.spec.reboot_granted_boot_id.as_deref();
        if claim.is_some_and(|claim| claim != self.host.boot_id && granted == Some(claim)) {
            report.failure(&self.fell_back());
            self.keep_cause(report);
            return NextAction::Wait;
        }
        if granted.is_none()
            && self.shadow.reports(State::StagedAndPerformedUpdate)
            && self.is_disarmed()
        {
            report.failure(&self.not_next());
        }
        if granted != Some(self.host.boot_id) {
            return NextAction::Wait;
        }
        let claimed = claim == granted;
        if claimed && self.memory.refused {
            report.failure(&self.refuses("to reboot"));
            report.claim(None);
            return NextAction::Wait;
        }
        self.reboot(claimed, report)
    }

    /// Claims the reboot that is granted for this boot, and once it is `claimed`, asks for it; fails if the host would boot
    /// something else.
    fn reboot(&self, claimed: bool, report: &mut Report<'a>) -> NextAction {
        match self.host.updates {
            Updates::Busy => NextAction::Poll,
            Updates::Unknown => NextAction::Command(Command::Refresh),
            Updates::Known(known)
                if known.state == UpdateState::Ready && self.is_ours_and_wanted(&known) =>
            {
                report.claim(Some(self.host.boot_id));
                if self.reported_problem() == Some(Problem::NotNextToBoot) {
                    report.no_problem();
                }
                if claimed {
                    NextAction::Reboot
                } else {
                    NextAction::Wait
                }
            }
            // The claim stays for as long as the node may go down.
            Updates::Known(_) if claimed && self.memory.reboot_may_come => {
                if !self.host_api_fails() {
                    let still = format!(
                        "{}; a reboot that was asked for may still come",
                        self.not_next()
                    );
                    report.problem(Problem::NotNextToBoot, &still);
                }
                NextAction::Poll
            }
            Updates::Known(_) => {
                report.failure(&self.not_next());
                if claimed {
                    report.claim(None);
                }
                NextAction::Wait
            }
        }
    }

    /// Wanted: the host goes on running `spec.version`.
    pub(super) fn toward_monitoring(&self, report: &mut Report<'a>) -> NextAction {
        if self.runs_wanted() {
            report.state(State::MonitoringUpdate);
        } else {
            report.failure(&format!("the host came back with {}", self.host.version));
        }
        NextAction::Wait
    }

    pub(super) fn runs_wanted(&self) -> bool {
        self.shadow.spec.version.as_deref() == Some(self.host.version)
    }

    /// Returns what a prepare of ours, which has just gone well, says that it wrote, if not what the host shows.
    pub(super) fn wrote_instead(&self) -> Option<String> {
        let instead = written_instead(self.host, self.ended)?;
        let shown = self.host.known()?.staged_version?;
        Some(match instead {
            Instead::Nothing => instead.to_string(),
            Instead::Other(_) => format!("{instead}, not {shown}"),
        })
    }

    fn fell_back(&self) -> String {
        let fell_back = format!(
            "the host came back with {} when it rebooted",
            self.host.version
        );
        if self.was_not_next() {
            format!("{fell_back}: {}", self.not_next())
        } else {
            fell_back
        }
    }

    /// Whether the agent reported before the reboot that the host would not boot the update.
    fn was_not_next(&self) -> bool {
        self.shadow.status.problem == Some(Problem::NotNextToBoot)
    }

    /// The word that was said before the reboot stays, for it is why the host has come back with the old version.
    fn keep_cause(&self, report: &mut Report<'a>) {
        if self.was_not_next() {
            report.problem(Problem::NotNextToBoot, &self.fell_back());
        }
    }

    /// Is the update, which was next to boot, so no more? Somebody has deactivated it, or activated another.
    pub(super) fn is_disarmed(&self) -> bool {
        self.host
            .known()
            .is_some_and(|known| !self.is_armed(&known))
    }

    /// Whether the update is next to boot.
    pub(super) fn is_armed(&self, known: &UpdateFacts<'_>) -> bool {
        known.state == UpdateState::Ready && self.is_ours_and_wanted(known)
    }

    /// With the host's own words, which were said before.
    pub(super) fn refuses(&self, what: &str) -> String {
        let status = &self.shadow.status;
        let told = (status.message.as_deref())
            .filter(|_| status.problem.is_some_and(Problem::is_of_host_api));
        told.map_or_else(
            || format!("the host refuses {what}"),
            |words| format!("the host refuses {what}: {words}"),
        )
    }

    /// The reconciler saw from the Node that the host has fallen back, and gave up the attempt before we could say
    /// so. The claim, which goes with the same write, is there to say it once.
    fn fell_back_unreported(&self) -> bool {
        let (spec, status) = (self.shadow.spec, self.shadow.status);
        let (claim, failure) = (&status.reboot_claimed_boot_id, &spec.last_failure);
        (claim.as_ref()).is_some_and(|claim| claim != self.host.boot_id)
            && (failure.as_ref()).is_some_and(|failure| Some(failure.attempt) == spec.attempt)
            && !self.runs_wanted()
            && !self.shadow.reports(State::ErrorReset)
    }

    pub(super) fn not_next(&self) -> String {
        let version = self.shadow.spec.version.as_deref().unwrap_or("the update");
        format!("the host would not boot {version} next")
    }
}
