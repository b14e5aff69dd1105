//! The loop: look at host and shadow, take one step, wait for what may change it.

mod absence;
mod calls;
mod refusals;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use brupop_api::facts::ShadowFacts;
use brupop_api::{BottlerocketShadow, Field, Item, Problem, Value, Write};
use brupop_runtime::errors::{describe, status_message};
use brupop_runtime::{Shutdown, waits::doubled};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::host::Host;
use crate::options::Options;
use crate::pace::{Begun, Polls, Prefetches, Repeats};
use crate::shadow::{Seen, View};
use crate::trouble::{Trouble, jittered, random};
use absence::Absence;
pub use absence::SocketAbandoned;
use brupop_agent_core::step::Memory;
use refusals::Refusals;

/// Shortest wait after a refused report, until the shadow is looked at again. A change that the watch brings ends it.
const REREAD_MIN: Duration = Duration::from_secs(1);
/// Longest such wait, after many refused reports.
const REREAD_MAX: Duration = Duration::from_secs(45);
/// An image that was downloaded ahead of its turn makes looks for updates this many times rarer, for each look costs a
/// report.
const REFRESHES_LEFT_OUT: u32 = 12;
/// A host that is busy for longer while nothing is asked of it is worth a word. A refresh takes seconds, or its network
/// time-outs.
const BUSY_FOR_LONG: Duration = Duration::from_mins(10);
/// So many reports in a row, with nothing else in between, are more than any update needs.
const REPORTS_ON_END: u32 = 8;

/// Looks after one host.
#[derive(Debug)]
pub struct Agent {
    options: Options,
    host: Host,
    /// Boot id, and the version that runs in this boot.
    running: Option<(String, String)>,
    shadows: Api<Item<BottlerocketShadow>>,
    name: String,
    view: View,
    memory: Memory,
    begun: Option<Begun>,
    refusals: Refusals,
    /// Since when an update command has run on the host at each look.
    busy_since: Option<Instant>,
    polls: Polls,
    repeats: Repeats,
    prefetches: Prefetches,
    refresh_at: Instant,
    absence: Absence,
    /// Questions to the host that got no usable answer.
    host_unreachable: Trouble,
    /// Calls that the host refused or did not answer.
    call_failing: Trouble,
    /// What that is, in one word.
    call_problem: Problem,
    /// Downloads ahead of the turn that the host refused or did not answer.
    prefetch_failing: Trouble,
    /// Reports that the API server did not take.
    reports_failing: Trouble,
    /// Reports in a row that were refused because the shadow had changed.
    refused: u32,
    /// Reports in a row that were taken.
    reports: u32,
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
        let refresh_at = Instant::now() + options.start_jitter.mul_f64(random());
        Self {
            host: Host::new(&options.socket, options.host_timeout),
            running: None,
            shadows: Api::namespaced(client, namespace),
            name: brupop_api::names::shadow_name(node),
            view: View::default(),
            memory: Memory::default(),
            begun: None,
            refusals: Refusals::default(),
            busy_since: None,
            polls: Polls::default(),
            repeats: Repeats::default(),
            prefetches: Prefetches::not_before(refresh_at),
            refresh_at,
            absence: Absence::default(),
            host_unreachable: Trouble::new("Bottlerocket's API"),
            call_failing: Trouble::new("the call to the host"),
            call_problem: Problem::HostUnreachable,
            prefetch_failing: Trouble::new("the download ahead of its turn"),
            reports_failing: Trouble::new("the report to the API server"),
            refused: 0,
            reports: 0,
            options,
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
            self.view.watched(seen.borrow_and_update().clone());
            let turn = async {
                let pause = self.turn().await;
                match self.absence.for_good(&self.options.socket) {
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
        let before = revision(&self.view);
        loop {
            tokio::select! {
                changed = seen.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    self.view.watched(seen.borrow_and_update().clone());
                    // The echo of a report of ours is no news.
                    if revision(&self.view) != before {
                        return true;
                    }
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return true,
            }
        }
    }

    /// The newest shadow; read again if reports are refused although the watch brings nothing.
    async fn newest(&mut self) -> Seen {
        if self.refused > 1
            && let Some(known) = self.view.current()
        {
            match self.shadows.get_opt(&self.name).await {
                Ok(Some(Item { body: Ok(shadow), .. })) if shadow.metadata.uid == known.metadata.uid => {
                    self.view.answered(shadow);
                }
                // Deleted, made anew, or not to be read: the watch will say so, in its order.
                Ok(_) => {}
                Err(error) => {
                    self.reports_failing.failed(&describe(&error));
                }
            }
        }
        self.view.current()
    }

    /// Patches the status. If that fails, the error says how long to wait.
    async fn report(&mut self, write: &Write<'_>, shadow: &BottlerocketShadow) -> Result<(), Pause> {
        let observed = serde_json::to_value(shadow).unwrap_or_default();
        let patch = match write.patch(&observed) {
            Ok(patch) => Patch::<BottlerocketShadow>::Json(patch),
            Err(misfit) => {
                tracing::error!(%misfit, "this report is a mistake, and is not made");
                return Err(Pause::ShadowOr(REREAD_MAX));
            }
        };
        match self.shadows.patch_status(&self.name, &PatchParams::default(), &patch).await {
            Ok(answer) => {
                if let Ok(shadow) = answer.body {
                    self.view.answered(shadow);
                }
                self.reports_failing.over();
                self.refused = 0;
                said(write);
                Ok(())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                self.refused = self.refused.saturating_add(1);
                let reason = status_message(&status);
                tracing::debug!(code = status.code, %reason, "the shadow has changed meanwhile");
                if self.refused > 2 {
                    // The shadow was read again, and the report was refused again: this is no mere race.
                    self.reports_failing.failed(&reason);
                }
                let wait = doubled(REREAD_MIN, self.refused - 1, REREAD_MAX);
                Err(Pause::ShadowOr(jittered(wait, 0.2)))
            }
            Err(error) => Err(Pause::ShadowOr(self.reports_failing.failed(&describe(&error)))),
        }
    }

    /// Slows down reports that follow each other without end: they are a bug, and must not become a flood.
    fn after_report(&mut self) -> Pause {
        self.reports = self.reports.saturating_add(1);
        if self.reports < REPORTS_ON_END {
            return Pause::None;
        }
        tracing::warn!(reports = self.reports, "the shadow does not keep what is reported");
        Pause::For(jittered(REREAD_MAX, 0.2))
    }
}

fn revision(view: &View) -> Option<(Option<String>, Option<String>)> {
    view.current().map(|shadow| (shadow.uid(), shadow.resource_version()))
}

/// A log line about a report that the API server took.
fn said(write: &Write<'_>) {
    let state = write.sets.iter().find_map(|(field, value)| match (field, value) {
        (Field::CurrentState, Value::State(state)) => Some(state.as_str()),
        _ => None,
    });
    let problem = write.sets.iter().find_map(|(field, value)| match (field, value) {
        (Field::StatusProblem, Value::Problem(problem)) => Some(problem.as_str()),
        _ => None,
    });
    let message = write.sets.iter().find_map(|(field, value)| match (field, value) {
        (Field::StatusMessage, Value::Text(message)) => Some(message.as_ref()),
        _ => None,
    });
    let fields: Vec<String> = write.sets.iter().map(|(field, _)| format!("{field:?}")).collect();
    tracing::info!(state, problem, says = message, fields = fields.join(","), "reported");
}

/// A shadow that the API server sent has name, UID and generation.
fn facts(shadow: &Arc<BottlerocketShadow>) -> Option<ShadowFacts<'_>> {
    let facts = ShadowFacts::of(shadow);
    if facts.is_none() {
        tracing::warn!("the shadow has no UID or no generation, which no API server sends");
    }
    facts
}
