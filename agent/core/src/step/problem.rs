//! The problem in the status: one problem at a time, until what it is about has ended otherwise.

use brupop_api::{Problem, State};

use super::input::{ProblemText, StepInput};
use super::{LastCommand, Prefetch, Report};

impl StepInput<'_, '_> {
    /// Reports what is wrong with an idle host.
    pub(super) fn report_idle_problem(&self, report: &mut Report<'_>) {
        // The problem of a failed attempt outranks a failed download ahead of the next one. The spec keeps the
        // failure, so it does not hide that the host has been locked since.
        let is_free = !self.reported_problem().is_some_and(Problem::is_of_attempt)
            || self.failures_are_over();
        let prefetch = || self.prefetch_problem().filter(|_| is_free);
        let found = self
            .refresh_problem()
            .or_else(|| self.unchosen())
            .or_else(prefetch);
        self.report_problem(report, found);
    }

    /// Reports this, or takes back what is over.
    pub(super) fn report_problem(&self, report: &mut Report<'_>, found: Option<ProblemText>) {
        match found {
            _ if self.host_api_fails() => {}
            Some((problem, sentence)) => report.problem(problem, &sentence),
            None if self.is_resolved() => report.no_problem(),
            None => {}
        }
    }

    /// Has what the status says is wrong ended otherwise? What is under way says nothing about that.
    fn is_resolved(&self) -> bool {
        let known = self.host.known();
        match self.reported_problem() {
            // That was over before, or what stands there is of an agent that said nothing but the sentence.
            None => self.shadow.status.problem.is_some() || self.failures_are_over(),
            Some(Problem::HostUnreachable | Problem::CommandRefused | Problem::RebootRefused) => {
                false
            }
            Some(Problem::RefreshFailed) => self.host.last().is_some(),
            // A look that ends well shows that there is an updater.
            Some(Problem::NoInPlaceUpdates) => {
                !self.memory.no_in_place_updates
                    && self.host.last().is_some_and(LastCommand::found_updates)
            }
            Some(Problem::NoUpdateChosen) => {
                self.host.last().is_some_and(LastCommand::found_updates)
            }
            Some(Problem::PrefetchFailed) => {
                self.memory.prefetch == Prefetch::Off
                    || self.prefetched().is_some()
                    || known.is_some_and(|known| known.chosen.is_none())
            }
            Some(Problem::PrefetchBlocked) => {
                self.memory.prefetch == Prefetch::Off || known.is_some()
            }
            Some(Problem::StepFailed | Problem::NotNextToBoot) => self.failures_are_over(),
            // As long as it is so, nothing else is asked.
            Some(Problem::CannotDisarm) => true,
        }
    }

    /// Whether nothing has failed since the last success.
    fn failures_are_over(&self) -> bool {
        self.shadow.spec.state == State::Idle && self.shadow.spec.last_failure.is_none()
    }
}
