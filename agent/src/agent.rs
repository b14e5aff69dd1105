//! The loop: look at host and shadow, take one step, wait for what may change it.
//!
//! [`host_session`] speaks to the host and paces what is asked of it, [`reporter`] knows the shadow and reports on it.

mod calls;
mod host_session;
mod pace;
mod reboots;
mod reporter;

use std::path::PathBuf;
use std::time::Duration;

use brupop_agent_core::step::{HostFacts, Step, StepMemory, host_silence, host_trouble, step};
use brupop_api::BottlerocketShadow;
use brupop_api::shadow::ShadowFacts;
use brupop_runtime::{Heartbeat, Shutdown};
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::options::Options;
use crate::shadow::Seen;
use host_session::{HostSession, now};
use reporter::Reporter;

/// The reason why the agent exits by itself.
#[derive(Debug, thiserror::Error)]
#[error(
    "nobody has listened on {} for {} s; the process exits, so that a new container mounts the socket again. The kubelet \
     shows CrashLoopBackOff until the host's API server (apiserver.service) is back; repair that",
    socket.display(),
    after.as_secs()
)]
pub struct SocketAbandoned {
    /// The socket of Bottlerocket's API.
    pub socket: PathBuf,
    /// Time for which nobody listened.
    pub after: Duration,
}

/// The agent's loop, which looks after one host.
#[derive(Debug)]
pub struct Agent {
    host: HostSession,
    reporter: Reporter,
    memory: StepMemory,
    /// UID of the shadow to which the memory belongs. A new shadow counts its attempts from 1 again.
    shadow_uid: String,
}

impl Agent {
    /// Looks after the host of `node`, whose shadow is in `namespace`. Nothing is asked of the host yet.
    pub fn new(options: Options, client: Client, namespace: &str, node: &str) -> Self {
        Self {
            host: HostSession::new(options),
            reporter: Reporter::new(client, namespace, node),
            memory: StepMemory::default(),
            shadow_uid: String::new(),
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
        heartbeat: &Heartbeat,
    ) -> Result<(), SocketAbandoned> {
        let living = async {
            let known = seen.borrow_and_update().clone();
            self.reporter.copy.on_event(known);
            loop {
                heartbeat.beat();
                let pause = self.turn().await;
                self.host.abandoned()?;
                if !heartbeat.during(self.wait(pause, &mut seen)).await {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            ended = living => ended,
            () = shutdown.requested() => Ok(()),
        }
    }

    /// One turn: look, decide, do. Returns how long to wait for the shadow to change.
    async fn turn(&mut self) -> Duration {
        let shadow = self.reporter.newest().await;
        let with_facts = |shadow| Some((shadow, ShadowFacts::of(shadow)?));
        let Some((shadow, facts)) = shadow.as_deref().and_then(with_facts) else {
            return self.host.options.refresh_interval;
        };
        if self.shadow_uid != facts.uid {
            facts.uid.clone_into(&mut self.shadow_uid);
            (self.memory, self.host.reboots) = Default::default();
        }
        let answers = match self.host.observe().await {
            Ok(answers) => answers,
            Err(delay) => {
                self.reporter.nothing_to_report();
                let told = self.report_host_failure(&facts, shadow).await;
                return told.filter(|pause| !pause.is_zero()).unwrap_or(delay);
            }
        };
        let span = tracing::info_span!("host", version = answers.version);
        self.act(&answers.facts(), &facts, shadow)
            .instrument(span)
            .await
    }

    /// Decides what to do next, and does it.
    async fn act(
        &mut self,
        host: &HostFacts<'_>,
        facts: &ShadowFacts<'_>,
        shadow: &BottlerocketShadow,
    ) -> Duration {
        self.host.prompt(&mut self.memory, host, facts, shadow);
        let (step, memory) = step(host, facts, &self.memory);
        if let Step::Report(write) = step {
            let taken = self.reporter.report(&write, shadow).await;
            if taken.is_ok() {
                self.memory = memory;
                self.host.reboots.on_report(&write);
            }
            return taken.unwrap_or_else(|pause| pause);
        }
        self.reporter.nothing_to_report();
        // Only now: a call that is still to be made, or whose end is not known, may yet fail.
        if step == Step::Wait && self.host.resolved() {
            self.memory = memory;
            // Once more: what the shadow says of it may be taken back now.
            return Duration::ZERO;
        }
        if let Step::Call(call) = step {
            self.memory = memory.until_begun(call, &self.memory);
        }
        if let Some(pause) = self.report_host_failure(facts, shadow).await {
            return pause;
        }
        if let Step::Call(call) = step {
            let before = &mut self.memory;
            return self.host.call(call, host, facts, before, memory).await;
        }
        self.memory = memory;
        if step == Step::Wait {
            return self.host.until_look(host, facts);
        }
        self.host.forget_lost(&mut self.memory, host);
        self.host.options.poll_interval
    }

    /// Says in the shadow what has been wrong with the host's API for a while, or fails the attempt if that lasts.
    async fn report_host_failure(
        &mut self,
        facts: &ShadowFacts<'_>,
        shadow: &BottlerocketShadow,
    ) -> Option<Duration> {
        let (problem, reason) = self.host.lasting_failure()?;
        let now = now();
        let silent = self.host.is_silent().then_some(facts);
        let ends = silent.and_then(|facts| host_silence(facts, reason, &now));
        let write = ends.or_else(|| host_trouble(facts, problem, reason, &now))?;
        let taken = self.reporter.report(&write, shadow).await;
        Some(taken.unwrap_or_else(|pause| pause))
    }

    /// Waits until the shadow changes or has to be read again, but no longer than `pause`. False if there is nothing left to
    /// wait for.
    async fn wait(&mut self, pause: Duration, seen: &mut watch::Receiver<Seen>) -> bool {
        let until = Instant::now() + pause;
        let copy = &mut self.reporter.copy;
        let before = copy.version();
        loop {
            let until = copy.reread_at.map_or(until, |at| at.min(until));
            tokio::select! {
                biased;
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
                () = sleep_until(until) => return true,
            }
        }
    }
}
