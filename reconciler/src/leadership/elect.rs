//! The loop around [`step`]: watches the Lease, acquires it, renews it, gives it back.

use std::fmt::Display;
use std::time::Duration;

use brupop_runtime::Shutdown;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Action, Memory, Timing, View, leads_until, step};

/// Until when this process may act as the leader; `None` = it may not. The value changes with each renewal.
pub type Elected = watch::Receiver<Option<Instant>>;

/// What the election needs to know.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Our identity, which no other process has, such as the pod's name.
    pub us: String,
    /// When to do what.
    pub timing: Timing,
}

/// Takes part in the election until the shutdown is requested. Then gives the Lease back, so that the next leader need
/// not wait until it expires.
pub async fn run(
    election: Election,
    client: Client,
    shutdown: Shutdown,
    elected: watch::Sender<Option<Instant>>,
) {
    let leases = Api::namespaced(client, &election.namespace);
    let mut candidate = Candidate {
        leases,
        election,
        epoch: Instant::now(),
        lease: None,
        memory: Memory::default(),
        failing: false,
    };
    tokio::select! {
        () = candidate.compete(&elected) => {}
        () = shutdown.requested() => {}
    }
    elected.send_replace(None);
    candidate.release().await;
}

struct Candidate {
    leases: Api<Lease>,
    election: Election,
    epoch: Instant,
    lease: Option<Lease>,
    memory: Memory,
    failing: bool,
}

impl Candidate {
    async fn compete(&mut self, elected: &watch::Sender<Option<Instant>>) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.election.lease));
        let mut events = watcher(self.leases.clone(), only).default_backoff().boxed();
        let (mut synced, mut listed) = (false, false);
        loop {
            let until = self.leads_until();
            elected.send_if_modified(|current| std::mem::replace(current, until) != until);
            let action = if synced { self.next() } else { Action::Wait(Duration::MAX) };
            let wake = match action {
                Action::Wait(at) => self.epoch.checked_add(at),
                Action::Acquire | Action::Renew => {
                    // Events do not cut this short: one of them is the echo of this very call.
                    self.claim().await;
                    continue;
                }
            };
            let event = tokio::select! {
                event = events.try_next() => event,
                () = sleep_until_some(wake) => continue,
            };
            match event {
                Ok(Some(watcher::Event::Apply(lease))) => self.saw(Some(lease)),
                Ok(Some(watcher::Event::Delete(lease))) if self.is_news(&lease) => self.saw(None),
                Ok(Some(watcher::Event::Init)) => listed = false,
                Ok(Some(watcher::Event::InitApply(lease))) => {
                    listed = true;
                    self.saw(Some(lease));
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    if !listed {
                        self.saw(None);
                    }
                    synced = true;
                }
                Ok(Some(watcher::Event::Delete(_)) | None) => {}
                Err(error) => self.failed("watched", &error),
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn view(&self) -> Option<View<'_>> {
        let spec = self.lease.as_ref()?.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
        Some(View {
            holder: spec.and_then(|spec| spec.holder_identity.as_deref()),
            duration: seconds.map_or(self.election.timing.duration, Duration::from_secs),
        })
    }

    fn next(&self) -> Action {
        step(self.view(), &self.memory, &self.election.us, &self.election.timing, self.now())
    }

    fn leads_until(&self) -> Option<Instant> {
        leads_until(self.view(), &self.memory, &self.election.us, &self.election.timing)
            .map(|until| self.epoch + until)
    }

    /// Is this version of the Lease as new as ours, or newer?
    fn is_news(&self, lease: &Lease) -> bool {
        let version = |lease: &Lease| lease.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        self.lease.as_ref().and_then(version) <= version(lease)
    }

    fn saw(&mut self, lease: Option<Lease>) {
        if lease.as_ref().is_some_and(|lease| !self.is_news(lease)) {
            return;
        }
        let version =
            |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if version(&lease) != version(&self.lease) {
            self.memory.first_seen = self.now();
        }
        self.lease = lease;
    }

    /// Acquires or renews the Lease, on condition that it still has the version that was read.
    async fn claim(&mut self) {
        let sent = self.now();
        let lease = self.claimed();
        let params = PostParams::default();
        let call = async {
            match &self.lease {
                Some(_) => self.leases.replace(&self.election.lease, &params, &lease).await,
                None => self.leases.create(&params, &lease).await,
            }
        };
        let answer = timeout(self.election.timing.call, call).await;
        match answer {
            Ok(Ok(lease)) => {
                self.saw(Some(lease));
                self.memory.renewed = Some(sent);
                self.memory.not_before = Duration::ZERO;
                if std::mem::take(&mut self.failing) {
                    tracing::info!(lease = self.election.lease, "the Lease can be reached again");
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                tracing::debug!(lease = self.election.lease, "somebody else was faster");
                self.read_again().await;
            }
            Ok(Err(error)) => self.failed("written", &error),
            Err(_) => {
                self.failed("written", &"no answer in time");
                // It may have been written nevertheless.
                self.read_again().await;
            }
        }
    }

    async fn read_again(&mut self) {
        self.memory.not_before = self.now() + self.election.timing.retry;
        let read = timeout(self.election.timing.call, self.leases.get_opt(&self.election.lease)).await;
        match read {
            Ok(Ok(lease)) => self.saw(lease),
            Ok(Err(error)) => self.failed("read", &error),
            Err(_) => self.failed("read", &"no answer in time"),
        }
    }

    fn claimed(&self) -> Lease {
        let now = || Some(MicroTime(Timestamp::now()));
        let before = self.lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = before.holder_identity.as_deref() == Some(&self.election.us);
        let seconds = i32::try_from(self.election.timing.duration.as_secs()).unwrap_or(i32::MAX);
        let metadata = self.lease.as_ref().map_or_else(
            || ObjectMeta { name: Some(self.election.lease.clone()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        let spec = LeaseSpec {
            holder_identity: Some(self.election.us.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: if ours { before.acquire_time } else { now() },
            renew_time: now(),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0).saturating_add(i32::from(!ours))),
            ..before
        };
        Lease { metadata, spec: Some(spec) }
    }

    async fn release(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        let Some(spec) = lease.spec.as_mut() else { return };
        if spec.holder_identity.as_deref() != Some(&self.election.us) {
            return;
        }
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let params = PostParams::default();
        let call = self.leases.replace(&self.election.lease, &params, &lease);
        match timeout(self.election.timing.call, call).await {
            Ok(Ok(_)) => tracing::info!(lease = self.election.lease, "gave back the Lease"),
            Ok(Err(error)) => self.failed("given back", &error),
            Err(_) => self.failed("given back", &"no answer in time"),
        }
    }

    /// Logs the first of several failures in a row, and delays the next call.
    fn failed(&mut self, what: &str, error: &dyn Display) {
        self.memory.not_before = self.memory.not_before.max(self.now() + self.election.timing.retry);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(lease = self.election.lease, %error, "the Lease could not be {what}; trying again");
        }
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
