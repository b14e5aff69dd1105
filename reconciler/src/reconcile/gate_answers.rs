//! What a leader asks for the gates of pools, and what it has been told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::printable::printable;
use brupop_core::gates::answer::Answer;
use brupop_core::gates::{self, Gates};
use brupop_core::rules::{Gate, GateState, Question};
use brupop_runtime::FailureLog;
use brupop_runtime::errors::describe;
use futures::FutureExt as _;

use super::pass::Pass;
use super::{Completed, Reconciler};

/// Of an expression the log has at most so many bytes.
const QUERY_LOGGED: usize = 256;

/// What is known, and what was logged of it.
pub(super) struct GateAnswers {
    gates: Gates,
    /// Why questions have no answer.
    failures: BTreeMap<Question, FailureLog>,
}

impl GateAnswers {
    /// From now on each question is asked, and again after each interval.
    pub(super) fn new(interval: Duration, now: Duration) -> Self {
        Self { gates: Gates::new(interval, now), failures: BTreeMap::new() }
    }

    /// What is known of this question now.
    pub(super) fn state(&self, question: &Question, now: Duration) -> GateState {
        self.gates.state(question, now)
    }

    /// This is the answer to a question, or why there is none.
    pub(super) fn answered(&mut self, question: &Question, answer: Result<Answer, String>, now: Duration) {
        let (source, query) = (&question.source, printable(&question.query, QUERY_LOGGED));
        let log = self.failures.entry(question.clone()).or_default();
        match &answer {
            Ok(_) if log.resolved() => tracing::info!(source, %query, "the source of a gate answers again"),
            Err(why) if log.is_new(why) => {
                tracing::warn!(source, %query, why, "the source of a gate gives no answer, so the gate is closed");
            }
            _ => {}
        }
        self.gates.answered(question, answer.unwrap_or(Answer::Unknown), now);
    }
}

impl Reconciler {
    /// Asks what is due for the gates that matter now. Returns how these gates are.
    pub(super) fn ask(&mut self, pass: &mut Pass<'_>) -> Vec<(String, String, GateState)> {
        let now = self.now();
        let matter = gates::matter(&pass.observed.fleet, &pass.observed.views);
        let questions: BTreeSet<&Question> =
            pass.cluster.gates_of(&matter).map(|(_, gate)| &gate.question).collect();
        self.leading.gates.failures.retain(|question, _| questions.contains(question));
        let (due, next) = self.leading.gates.gates.due(&questions, now);
        if let Some(next) = next {
            pass.wake.by(next);
        }
        for question in due {
            let sources = self.asking.sources.clone();
            let asking = async move {
                let answer = sources.ask(&question).await.map_err(|error| describe(&error));
                Completed::GateAnswer(question, answer)
            };
            self.leading.under_way.push(asking.boxed());
        }
        let state = |(pool, gate): (&str, &Gate)| {
            (pool.to_owned(), gate.name.clone(), self.leading.gates.state(&gate.question, now))
        };
        pass.cluster.gates_of(&matter).map(state).collect()
    }
}
