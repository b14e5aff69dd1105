//! What a leader asks for the gates of pools, and what it has been told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::printable::printable;
use brupop_core::gates::GateAnswer;
use brupop_core::gates::{self, Gates};
use brupop_core::rules::{GateQuery, GateState, PoolGate};
use brupop_core::status::NoAnswer;
use brupop_runtime::FailureLog;
use brupop_runtime::errors::describe;

use crate::gates::Sources;
use crate::pass::Pass;
use crate::run::Reconciler;

/// The most bytes of an expression in the log.
const QUERY_LOGGED: usize = 256;

/// What is known, and what was logged of it.
pub(crate) struct GateAnswers {
    gates: Gates,
    /// Why queries have no answer.
    failures: BTreeMap<GateQuery, FailureLog>,
    /// How many answers each one counts for. In a plan one good answer opens a gate: what the leader was told before is stored
    /// nowhere.
    pub(crate) times: u8,
}

impl GateAnswers {
    /// From now on each query is asked, and again after each interval.
    pub(crate) fn new(interval: Duration, now: Duration) -> Self {
        Self {
            gates: Gates::new(interval, now),
            failures: BTreeMap::new(),
            times: 1,
        }
    }

    /// What is known of this query now.
    pub(crate) fn state(&self, query: &GateQuery, now: Duration) -> GateState {
        self.gates.state(query, now)
    }

    /// Why this query has no answer, if it has none.
    pub(crate) fn failure(&self, query: &GateQuery) -> Option<NoAnswer<'_>> {
        self.failures
            .get(query)
            .map_or(Some(NoAnswer::NotAsked), |log| {
                log.reason().map(NoAnswer::Failed)
            })
    }

    /// This is the answer to a query, or why there is none.
    pub(crate) fn answered(
        &mut self,
        query: &GateQuery,
        answer: &Result<GateAnswer, String>,
        now: Duration,
    ) {
        let (source, expression) = (&query.source, printable(&query.expression, QUERY_LOGGED));
        let log = self.failures.entry(query.clone()).or_default();
        match answer {
            Ok(_) if log.resolved() => {
                tracing::info!(source, query = %expression, "the source of a gate answers again");
            }
            Err(why) if log.is_new(why) => {
                tracing::warn!(source, query = %expression, why, "the source of a gate gives no answer, so the gate is closed");
            }
            _ => {}
        }
        let answer = answer.as_ref().copied().unwrap_or(GateAnswer::Unknown);
        for _ in 0..self.times {
            self.gates.answered(query, answer, now);
        }
    }
}

impl Reconciler {
    /// Asks what is due for the gates. Returns how those are that matter now.
    pub(crate) fn ask(&mut self, pass: &mut Pass<'_>) -> Vec<(String, String, GateState)> {
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
        pass.wake.by_if(next);
        for query in due {
            let sources = Sources::new(&self.settings.gate_sources);
            let asking = async move {
                let answer = sources.ask(&query).await.map_err(|error| describe(&error));
                (query, answer)
            };
            self.start(asking, |this, (query, answer)| {
                let now = this.now();
                this.leading.gates.answered(&query, &answer, now);
            });
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
