//! What a leader asks for the gates of pools, and what it has been told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::printable::printable;
use brupop_core::gates::answer::GateAnswer;
use brupop_core::gates::{self, Gates};
use brupop_core::rules::{GateQuery, GateState, PoolGate};
use brupop_core::status::NoAnswer;
use brupop_runtime::FailureLog;
use brupop_runtime::errors::describe;
use futures::FutureExt as _;

use super::pass::Pass;
use super::{Completed, Reconciler};
use crate::gates::Sources;

/// The most bytes of an expression in the log.
const QUERY_LOGGED: usize = 256;

/// What is known, and what was logged of it.
pub(super) struct GateAnswers {
    gates: Gates,
    /// Why queries have no answer.
    failures: BTreeMap<GateQuery, FailureLog>,
}

impl GateAnswers {
    /// From now on each query is asked, and again after each interval.
    pub(super) fn new(interval: Duration, now: Duration) -> Self {
        Self {
            gates: Gates::new(interval, now),
            failures: BTreeMap::new(),
        }
    }

    /// What is known of this query now.
    pub(super) fn state(&self, query: &GateQuery, now: Duration) -> GateState {
        self.gates.state(query, now)
    }

    /// Why this query has no answer, if it has none.
    pub(super) fn failure(&self, query: &GateQuery) -> Option<NoAnswer<'_>> {
        self.failures
            .get(query)
            .map_or(Some(NoAnswer::NotAsked), |log| {
                log.reason().map(NoAnswer::Failed)
            })
    }

    /// This is the answer to a query, or why there is none.
    pub(super) fn answered(
        &mut self,
        query: &GateQuery,
        answer: Result<GateAnswer, String>,
        now: Duration,
    ) {
        let (source, expression) = (&query.source, printable(&query.expression, QUERY_LOGGED));
        let log = self.failures.entry(query.clone()).or_default();
        match &answer {
            Ok(_) if log.resolved() => {
                tracing::info!(source, query = %expression, "the source of a gate answers again");
            }
            Err(why) if log.is_new(why) => {
                tracing::warn!(source, query = %expression, why, "the source of a gate gives no answer, so the gate is closed");
            }
            _ => {}
        }
        self.gates
            .answered(query, answer.unwrap_or(GateAnswer::Unknown), now);
    }
}

impl Reconciler {
    /// Asks what is due for the gates. Returns how those are that matter now.
    pub(super) fn ask(&mut self, pass: &mut Pass<'_>) -> Vec<(String, String, GateState)> {
        let now = self.now();
        let matter = gates::matter(&pass.observed.fleet, &pass.observed.views);
        let queries: BTreeSet<&GateQuery> = pass
            .cluster
            .gates_of(&matter)
            .map(|(_, gate)| &gate.query)
            .collect();
        let all = pass.cluster.gate_queries();
        self.leading
            .gates
            .failures
            .retain(|query, _| all.contains(query));
        let (due, next) = self.leading.gates.gates.due(&queries, &all, now);
        if let Some(next) = next {
            pass.wake.by(next);
        }
        for query in due {
            let sources = Sources::new(&self.settings.gate_sources);
            let asking = async move {
                let answer = sources.ask(&query).await.map_err(|error| describe(&error));
                Completed::GateAnswer(query, answer)
            };
            self.leading.under_way.push(asking.boxed());
        }
        let state = |(pool, gate): (&str, &PoolGate)| {
            (
                pool.to_owned(),
                gate.name.clone(),
                self.leading.gates.state(&gate.query, now),
            )
        };
        pass.cluster.gates_of(&matter).map(state).collect()
    }
}
