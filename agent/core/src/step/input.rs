//! The input of one step.

use brupop_api::Problem;
use brupop_api::shadow::{ShadowFacts, Staged};

use super::{EndedCommand, HostFacts, LastCommand, StepMemory};

/// Facts of host, shadow and this process on which a step is decided.
pub(super) struct StepInput<'g, 'a> {
    pub(super) host: &'g HostFacts<'a>,
    pub(super) shadow: &'g ShadowFacts<'a>,
    pub(super) memory: &'g StepMemory,
    pub(super) ended: Option<EndedCommand<'a>>,
    /// Our image, by [`super::image::our_image_after`] this look.
    pub(super) our_image: Option<Staged>,
}

/// A word to decide on, and a sentence for people.
pub(super) type ProblemText = (Problem, String);

impl StepInput<'_, '_> {
    /// Returns what the status says is wrong, unless it is known from elsewhere that it no longer is.
    pub(super) fn reported_problem(&self) -> Option<Problem> {
        self.shadow
            .status
            .problem
            .filter(|problem| !problem.is_of_host_api() || self.memory.host_api_fails)
    }

    /// Does the status say what is wrong with the host's API, and still rightly? The shell says it, and would say it again.
    pub(super) fn host_api_fails(&self) -> bool {
        self.reported_problem().is_some_and(Problem::is_of_host_api)
    }
}

/// A sentence on a command that failed, with what it wrote to stderr as one line. The updater's own failures have the exit
/// status 1; a number beyond that may be a signal's, which the host reports in the same place.
pub(super) fn failure(command: &str, last: &LastCommand<'_>) -> String {
    let status = match last.exit_status {
        None => "no exit status".to_owned(),
        Some(1) => "exit status 1".to_owned(),
        Some(other) => format!("exit status or signal {other}"),
    };
    let words: Vec<&str> = last.stderr.split_whitespace().collect();
    format!("{command} failed with {status}: {}", words.join(" "))
}
