//! The loop: look at host and shadow, take one step, wait for what may change it.
//!
//! [`host_session`] speaks to the host and paces what is asked of it, [`reporter`] knows the shadow and reports on it.

mod absence;
mod calls;
mod host_session;
mod refusals;
mod reporter;

use std::sync::Arc;
use std::time::Duration;

use brupop_agent_core::step::{HostFacts, Step, StepMemory, host_silence, host_trouble, step};
use brupop_api::facts::ShadowFacts;
use brupop_api::{BottlerocketShadow, State, Write};
use brupop_runtime::Shutdown;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::options::Options;
use crate::shadow::Seen;
pub use absence::SocketAbandoned;
use host_session::{HostSession, now};
use reporter::Reporter;

/// Looks after one host.
#[derive(Debug)]
pub struct Agent {
    host: HostSession,
    reporter: Reporter,
    memory: StepMemory,
}

/// What to wait for before the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// No wait.
    None,
    /// This long.
    For(Duration),
    /// Until the shadow changes, but no longer than this.
    ShadowOr(Duration),
    /// Until the shadow changes.
    Shadow,
}

impl Agent {
    /// Looks after the host of `node`, whose shadow is in `namespace`. Nothing is asked of the host yet.
    pub fn new(options: Options, client: Client, namespace: &str, node: &str) -> Self {
        Self {
            host: HostSession::new(options),
            reporter: Reporter::new(client, namespace, node),
            memory: StepMemory::default(),
        }
    }

    /// Runs until the shutdown is requested, or the channel of shadows is closed.
    ///
    /// # Errors
    /// Nobody has listened on the host's socket for a minute.
    pub async fn live(
        mut self,
        mut seen: watch::Receiver<Seen>,
        shutdown: Shutdown,
    ) -> Result<(), SocketAbandoned> {
        loop {
            self.reporter
                .copy
                .on_event(seen.borrow_and_update().clone());
            let turn = async {
                let pause = self.turn().await;
                match self.host.abandoned() {
                    Some(abandoned) => Err(abandoned),
                    None => Ok(self.wait(pause, &mut seen).await),
                }
            };
            let alive = tokio::select! {
                alive = turn => alive?,
                () = shutdown.requested() => false,
            };
            if !alive {
                return Ok(());
            }
        }
    }

    /// One turn: look, decide, do.
    async fn turn(&mut self) -> Pause {
        let Some(shadow) = self.reporter.newest().await else {
            return Pause::Shadow;
        };
        let Some(facts) = facts(&shadow) else {
            return Pause::Shadow;
        };
        let answers = match self.host.observe().await {
            Ok(answers) => answers,
            Err(delay) => {
                self.reporter.nothing_to_report();
                let told = self.report_host_failure(&facts, &shadow).await;
                return told
                    .filter(|pause| *pause != Pause::None)
                    .unwrap_or(Pause::ShadowOr(delay));
            }
        };
        let span = tracing::info_span!("host", version = answers.version);
        self.act(&answers.facts(), &facts, &shadow)
            .instrument(span)
            .await
    }

    /// Decides what to do next, and does it.
    async fn act(
        &mut self,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Pause {
        self.host.prompt(&mut self.memory, host, facts, shadow);
        self.host.note_busy(&self.memory, host);
        let (step, memory) = step(host, facts, &self.memory);
        // Only now: a call that is still to be made, or whose end is not known, may yet fail.
        if step == Step::Wait && self.host.failures.calls.resolved() {
            self.memory = memory;
            // Once more: what the shadow says of it may be taken back now.
            return Pause::None;
        }
        if !matches!(step, Step::Report(_)) {
            self.reporter.nothing_to_report();
            if let Some(pause) = self.report_host_failure(facts, shadow).await {
                return pause;
            }
        }
        // A host that refuses a call because it is busy is asked again less and less often.
        if !matches!(step, Step::Poll | Step::Call(_)) {
            self.host.stop_polling();
        }
        self.carry_out(step, memory, host, facts, shadow).await
    }

    /// Carries out a step. `memory` is what to remember once that is done.
    async fn carry_out(
        &mut self,
        step: Step<'_>,
        memory: StepMemory,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Pause {
        match step {
            Step::Report(write) => self.report(&write, memory, shadow).await,
            Step::Call(call) => {
                let made = self
                    .host
                    .call(call, host, facts, self.memory.refresh_due)
                    .await;
                if made.may_have_begun {
                    self.memory = memory;
                }
                Pause::ShadowOr(made.wait)
            }
            Step::Poll => {
                self.memory = memory;
                self.host.forget_lost(&mut self.memory, host);
                Pause::ShadowOr(self.host.next_poll())
            }
            Step::Wait => {
                self.memory = memory;
                match facts.spec.state {
                    State::Idle => Pause::ShadowOr(self.host.idle_for(host)),
                    // Somebody may deactivate the image.
                    _ if facts.reports(State::StagedAndPerformedUpdate) => {
                        Pause::ShadowOr(self.host.options.poll_interval)
                    }
                    _ => Pause::Shadow,
                }
            }
        }
    }

    /// Reports a step. `memory` is what to remember if the API server takes the report.
    async fn report(
        &mut self,
        write: &Write<'_>,
        memory: StepMemory,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Pause {
        match self.reporter.report(write, shadow).await {
            Ok(pause) => {
                self.memory = memory;
                self.host.on_report(write, &mut self.memory);
                pause
            }
            Err(pause) => pause,
        }
    }

    /// Says in the shadow what has been wrong with the host's API for a while, or fails the attempt if that lasts.
    async fn report_host_failure(
        &mut self,
        facts: &ShadowFacts<'_>,
        shadow: &Arc<BottlerocketShadow>,
    ) -> Option<Pause> {
        let (problem, reason) = self.host.lasting_failure()?;
        let now = now();
        let ends = self
            .host
            .silence()
            .and_then(|reason| host_silence(facts, reason, &now));
        let write = ends.or_else(|| host_trouble(facts, problem, reason, &now))?;
        let (Ok(pause) | Err(pause)) = self.reporter.report(&write, shadow).await;
        Some(pause)
    }

    /// False if there is nothing left to wait for.
    async fn wait(&mut self, pause: Pause, seen: &mut watch::Receiver<Seen>) -> bool {
        let until = match pause {
            Pause::None => return true,
            Pause::For(pause) => {
                tokio::time::sleep(pause).await;
                return true;
            }
            Pause::ShadowOr(pause) => Some(Instant::now() + pause),
            Pause::Shadow => None,
        };
        let copy = &mut self.reporter.copy;
        let before = copy.version();
        loop {
            let until = [until, copy.doubtful_from()].into_iter().flatten().min();
            tokio::select! {
                changed = seen.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    copy.on_event(seen.borrow_and_update().clone());
                    // The echo of a report of ours is no news.
                    if copy.version() != before {
                        return true;
                    }
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return true,
            }
        }
    }
}

/// A shadow that the API server sent has name, UID and generation.
fn facts(shadow: &Arc<BottlerocketShadow>) -> Option<ShadowFacts<'_>> {
    let facts = ShadowFacts::of(shadow);
    if facts.is_none() {
        tracing::warn!("the shadow has no UID or no generation, which no API server sends");
    }
    facts
}
