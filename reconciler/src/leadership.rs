//! Who leads: the loop around [`timing`], which watches the Lease, acquires it, renews it, gives it back.
//!
//! The Lease is for liveness only: somebody leads, and mostly just one. The ledger's term and conditional writes
//! prevent what must never happen twice. So nothing here compares wall clocks.
//!
//! It runs on another thread than the loop that the Lease is for. If that loop is stuck, this process asks for the Lease no
//! more, so that another leads; what the loop has begun, it gives up when it finds that it no longer leads.

pub mod lease;
pub mod timing;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use brupop_api::Item;
use brupop_core::objects::LeaseRecord;
use brupop_runtime::errors::describe;
use brupop_runtime::{Heartbeat, Shutdown, only, patient, requests};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};

use lease::{LONGEST, held_by, replacement, seen};
use timing::{ElectionState, SeenLease, Timing, leads_until, write_at};

/// Until when this process may act as the leader; `None` = it may not. The value changes with each renewal.
pub type Elected = watch::Receiver<Option<Instant>>;

/// Until when this process may act as the leader, if it may now.
pub fn leads_now(elected: &Elected) -> Option<Instant> {
    elected.borrow().filter(|until| Instant::now() < *until)
}

/// What this stream yields next. While this process does not lead, it is not even polled, and yields nothing.
pub async fn next_while_leading<S: Stream + Unpin>(
    elected: &Elected,
    stream: &mut S,
) -> Option<S::Item> {
    poll_fn(|context| match leads_now(elected) {
        Some(_) => stream.poll_next_unpin(context),
        None => Poll::Ready(None),
    })
    .await
}

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

/// Takes part in the election until the shutdown is requested; but not while the loop of this heartbeat is stuck. Then gives
/// the Lease back, so that the next leader need not wait until it expires.
pub async fn run(
    election: Election,
    client: Client,
    shutdown: Shutdown,
    heartbeat: Heartbeat,
    elected: watch::Sender<Option<Instant>>,
) {
    let leases = Api::namespaced(client.clone(), &election.namespace);
    let mut candidate = Candidate {
        client,
        leases,
        election,
        epoch: Instant::now(),
        lease: None,
        state: ElectionState::default(),
        failing: false,
        heartbeat,
        stuck: false,
    };
    tokio::select! {
        () = candidate.compete(&elected) => {}
        () = shutdown.requested() => {}
    }
    elected.send_replace(None);
    candidate.release().await;
}

struct Candidate {
    client: Client,
    leases: Api<Item<LeaseRecord>>,
    election: Election,
    epoch: Instant,
    lease: Option<Item<LeaseRecord>>,
    state: ElectionState,
    failing: bool,
    heartbeat: Heartbeat,
    /// The loop was stuck when it was last looked at.
    stuck: bool,
}

impl Candidate {
    async fn compete(&mut self, elected: &watch::Sender<Option<Instant>>) {
        let mut events = patient(watcher(self.leases.clone(), only(&self.election.lease))).boxed();
        let (mut synced, mut listed) = (false, false);
        loop {
            let until = self.leads_until();
            elected.send_if_modified(|current| std::mem::replace(current, until) != until);
            let wake = if !synced {
                self.now() + LONGEST
            } else if self.is_stuck() {
                self.now() + self.election.timing.retry
            } else {
                let due = self.write_at();
                if self.now() >= due {
                    // Events do not cut this short: one of them is the echo of this very call.
                    self.acquire_or_renew().await;
                    continue;
                }
                due
            };
            let event = tokio::select! {
                event = events.try_next() => event,
                () = sleep_until(self.epoch + wake) => continue,
            };
            match event {
                Ok(Some(watcher::Event::Apply(lease))) => self.watched(lease),
                Ok(Some(watcher::Event::Delete(lease))) if self.is_news(&lease) => self.saw(None),
                Ok(Some(watcher::Event::Init)) => listed = false,
                Ok(Some(watcher::Event::InitApply(lease))) => {
                    listed = true;
                    self.watched(lease);
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    if !listed {
                        self.saw(None);
                    }
                    synced = true;
                }
                Ok(Some(watcher::Event::Delete(_)) | None) => {}
                Err(error) => self.failed("watched", &describe(&error)),
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns whether the loop is stuck, and logs when that begins and ends.
    fn is_stuck(&mut self) -> bool {
        let is_stuck = self.heartbeat.is_stuck();
        match (std::mem::replace(&mut self.stuck, is_stuck), is_stuck) {
            (false, true) => {
                tracing::error!("the loop of this process is stuck: it does not ask for the Lease");
            }
            (true, false) => tracing::info!("the loop of this process comes round again"),
            _ => {}
        }
        is_stuck
    }

    /// The Lease as it was read. One that cannot be read counts as another's, which is taken over after the usual time.
    fn seen_lease(&self) -> Option<SeenLease<'_>> {
        let Timing { duration, .. } = self.election.timing;
        self.lease.as_ref().map(|lease| match &lease.body {
            Ok(record) => seen(record, duration),
            Err(_) => SeenLease {
                holder: Some("?"),
                duration,
            },
        })
    }

    fn write_at(&self) -> Duration {
        write_at(
            self.seen_lease(),
            &self.state,
            &self.election.us,
            &self.election.timing,
        )
    }

    fn leads_until(&self) -> Option<Instant> {
        leads_until(
            self.seen_lease(),
            &self.state,
            &self.election.us,
            &self.election.timing,
        )
        .map(|until| self.epoch + until)
    }

    /// Whether this version of the Lease is as new as ours, or newer.
    fn is_news(&self, lease: &Item<LeaseRecord>) -> bool {
        let version = |lease: &Item<LeaseRecord>| {
            lease
                .metadata
                .resource_version
                .as_ref()?
                .parse::<u64>()
                .ok()
        };
        self.lease.as_ref().and_then(version) <= version(lease)
    }

    /// Takes the Lease from the watch, unless a call of ours was answered with a newer one.
    fn watched(&mut self, lease: Item<LeaseRecord>) {
        if self.is_news(&lease) {
            self.saw(Some(lease));
        }
    }

    /// Takes the Lease as a call of ours was answered. Whatever is known was known before that call, so nothing is newer: etcd
    /// gives old versions once it was restored from a snapshot, and if nobody believed them, nobody could lead.
    fn saw(&mut self, lease: Option<Item<LeaseRecord>>) {
        let version = |lease: &Option<Item<LeaseRecord>>| {
            lease
                .as_ref()
                .and_then(|lease| lease.metadata.resource_version.clone())
        };
        if version(&lease) != version(&self.lease) {
            self.state.first_seen = self.now();
            if let Some(Err(why)) = lease.as_ref().map(|lease| &lease.body) {
                tracing::warn!(lease = self.election.lease, %why, "the Lease cannot be read; it will be taken over");
            }
        }
        self.lease = lease;
    }

    /// Acquires or renews the Lease, on condition that it still has the version that was read.
    async fn acquire_or_renew(&mut self) {
        let sent = self.now();
        let record = self.record_read();
        let Election { us, timing, .. } = &self.election;
        let answer = self
            .write(held_by(&record, us, timing.duration, Timestamp::now()))
            .await;
        match answer {
            Ok(Ok(lease)) => {
                self.saw(Some(lease));
                self.state.renewed = Some(sent);
                self.state.not_before = Duration::ZERO;
                if std::mem::take(&mut self.failing) {
                    tracing::info!(
                        lease = self.election.lease,
                        "the Lease can be read and written again"
                    );
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                tracing::debug!(lease = self.election.lease, "lost the race for the Lease");
                self.read_again().await;
            }
            Ok(Err(error)) => self.failed("written", &describe(&error)),
            Err(_) => {
                self.failed("written", "no answer in time");
                // It may have been written nevertheless.
                self.read_again().await;
            }
        }
    }

    async fn read_again(&mut self) {
        self.state.not_before = self.now() + self.election.timing.retry;
        let read = timeout(
            self.election.timing.call,
            self.leases.get_opt(&self.election.lease),
        )
        .await;
        match read {
            Ok(Ok(lease)) => self.saw(lease),
            Ok(Err(error)) => self.failed("read", &describe(&error)),
            Err(_) => self.failed("read", "no answer in time"),
        }
    }

    fn record_read(&self) -> LeaseRecord {
        self.lease
            .as_ref()
            .and_then(Item::ok)
            .cloned()
            .unwrap_or_default()
    }

    /// Puts this Lease in the place of the one that was read, on condition that that is still there; or creates it, if
    /// there is none.
    async fn write(&self, spec: LeaseSpec) -> Result<kube::Result<Item<LeaseRecord>>, Elapsed> {
        let Election {
            namespace,
            lease: name,
            timing,
            ..
        } = &self.election;
        let read = self.lease.as_ref();
        let lease = replacement(read, name, spec);
        let call = async {
            match read {
                Some(_) => requests::replace(&self.client, namespace, name, &lease).await,
                None => requests::create(&self.client, namespace, &lease).await,
            }
        };
        timeout(timing.call, call).await
    }

    async fn release(&mut self) {
        let record = self.record_read();
        let Election { us, timing, .. } = &self.election;
        if record.holder.as_ref() != Some(us) {
            return;
        }
        let ours = held_by(&record, us, timing.duration, Timestamp::now());
        match self
            .write(LeaseSpec {
                holder_identity: None,
                ..ours
            })
            .await
        {
            Ok(Ok(_)) => tracing::info!(lease = self.election.lease, "gave back the Lease"),
            Ok(Err(error)) => self.failed("given back", &describe(&error)),
            Err(_) => self.failed("given back", "no answer in time"),
        }
    }

    /// Logs the first of several failures in a row, and delays the next call.
    fn failed(&mut self, what: &str, error: &str) {
        self.state.not_before = self
            .state
            .not_before
            .max(self.now() + self.election.timing.retry);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                lease = self.election.lease,
                error,
                "the Lease could not be {what}; trying again"
            );
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
