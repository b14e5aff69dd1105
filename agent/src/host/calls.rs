//! Counts calls to the host's API, by what was called and by what came of it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Metric;

use super::{CommandAnswer, HostError, Os, StatusAnswer};

/// Each label has a handful of words, whatever the host says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Made {
    call: &'static str,
    result: &'static str,
}

/// Calls to the host's API by what came of them. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct HostCalls(Family<Made, Counter>);

impl HostCalls {
    /// What was counted, for a registry.
    pub fn family(&self) -> impl Metric + use<> {
        self.0.clone()
    }

    /// Counts a call by its answer.
    pub(super) fn count<T: AnswerWord>(&self, call: &'static str, answer: &Result<T, HostError>) {
        self.0.get_or_create(&Made { call, result: result(answer) }).inc();
    }
}

/// What the host answers to a call.
pub(super) trait AnswerWord {
    /// In one word.
    fn word(&self) -> &'static str;
}

impl AnswerWord for Os {
    fn word(&self) -> &'static str {
        "ok"
    }
}

impl AnswerWord for StatusAnswer {
    fn word(&self) -> &'static str {
        match self {
            Self::Known(_) => "ok",
            Self::Unknown => "not-found",
            Self::Busy => "busy",
        }
    }
}

impl AnswerWord for CommandAnswer {
    fn word(&self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::NotFound(_) => "not-found",
            Self::NotAllowed(_) => "not-allowed",
            Self::Busy => "busy",
            Self::Failed(_) => "failed",
        }
    }
}

/// What came of a call, in one word.
fn result<T: AnswerWord>(answer: &Result<T, HostError>) -> &'static str {
    match answer {
        Ok(answer) => answer.word(),
        Err(HostError::Unreachable { .. }) => "no-connection",
        Err(HostError::TimedOut { .. }) => "timed-out",
        Err(HostError::Broken { .. }) => "cut-off",
        Err(HostError::Unexpected { .. }) => "unexpected",
        // The boot id is read from a file, and no call ends with that.
        Err(HostError::TooLong { .. } | HostError::Nonsense { .. } | HostError::BootId { .. }) => "nonsense",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_agent_core::answer::UpdateStatus;

    #[test]
    fn each_answer_has_its_word() {
        let known = UpdateStatus::parse(br#"{"update_state": "Idle"}"#).unwrap();
        for (answer, word) in [
            (StatusAnswer::Known(known), "ok"),
            (StatusAnswer::Unknown, "not-found"),
            (StatusAnswer::Busy, "busy"),
        ] {
            assert_eq!(result(&Ok(answer)), word);
        }
        assert_eq!(result(&Ok(Os::parse(br#"{"version_id": "1.20.0"}"#).unwrap())), "ok");
        let why = || "the host's own words".to_owned();
        for (answer, word) in [
            (CommandAnswer::Begun, "begun"),
            (CommandAnswer::NotFound(why()), "not-found"),
            (CommandAnswer::NotAllowed(why()), "not-allowed"),
            (CommandAnswer::Busy, "busy"),
            (CommandAnswer::Failed(why()), "failed"),
        ] {
            assert_eq!(result(&Ok(answer)), word);
        }
    }
}
