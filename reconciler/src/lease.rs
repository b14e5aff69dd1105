//! Leader election: watches the Lease, acquires it, renews it, gives it back.
//!
//! The Lease is for liveness only: somebody leads, and mostly just one. The ledger's term and conditional writes
//! prevent what must never happen twice. So nothing here compares wall clocks.
//!
//! It runs on another thread than the loop that the Lease is for. If that loop is stuck, this process asks for the Lease no
//! more, so that another leads; what the loop has begun, it gives up when it finds that it no longer leads.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use brupop_api::Item;
use brupop_core::cluster::version;
use brupop_core::objects::LeaseRecord;
use brupop_runtime::client::write;
use brupop_runtime::errors::describe;
use brupop_runtime::{Heartbeat, Shutdown, watch_one};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::Api;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// The time until which this process may act as the leader; `None` = it may not. The value changes with each renewal.
pub type Elected = watch::Receiver<Option<Instant>>;

/// Returns until when this process may act as the leader, if it may now.
pub fn leads_now(elected: &Elected) -> Option<Instant> {
    elected.borrow().filter(|until| Instant::now() < *until)
}

/// Returns what this stream yields next. While this process does not lead, it is not even polled, and yields nothing.
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

/// The parameters of the election.
#[derive(Clone, Debug)]
pub struct Election {
    pub namespace: String,
    pub lease: String,
    /// Our identity, which no other process has, such as the pod's name.
    pub us: String,
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
        let mut states = watch_one(self.leases.clone(), &self.election.lease).boxed();
        let mut is_synced = false;
        loop {
            let until = self.leads_until();
            elected.send_if_modified(|current| std::mem::replace(current, until) != until);
            let wake = if !is_synced {
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
            let state = tokio::select! {
                state = states.next() => state,
                () = sleep_until(self.epoch + wake) => continue,
            };
            match state {
                Some(Ok(lease)) => {
                    is_synced = true;
                    self.watched(lease);
                }
                Some(Err(error)) => self.failed("watched", &describe(&error)),
                None => return,
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
        let Election { us, timing, .. } = &self.election;
        write_at(self.seen_lease(), &self.state, us, timing)
    }

    fn leads_until(&self) -> Option<Instant> {
        let Election { us, timing, .. } = &self.election;
        let until = leads_until(self.seen_lease(), &self.state, us, timing);
        until.map(|until| self.epoch + until)
    }

    /// Takes the Lease from the watch, unless a call of ours was answered with a newer one.
    fn watched(&mut self, lease: Option<Item<LeaseRecord>>) {
        let known = self.lease.as_ref().and_then(version);
        if lease.as_ref().is_none_or(|lease| known <= version(lease)) {
            self.saw(lease);
        }
    }

    /// Takes the Lease as a call of ours was answered. Whatever is known was known before that call, so nothing is newer: etcd
    /// gives old versions once it was restored from a snapshot, and if nobody believed them, nobody could lead.
    fn saw(&mut self, lease: Option<Item<LeaseRecord>>) {
        let version = |lease: Option<&Item<_>>| lease?.metadata.resource_version.clone();
        if version(lease.as_ref()) != version(self.lease.as_ref()) {
            self.state.first_seen = self.now();
            if let Some(Err(why)) = lease.as_ref().map(|lease| &lease.body) {
                tracing::warn!(
                    lease = self.election.lease,
                    ?why,
                    "the Lease cannot be read; it will be taken over"
                );
            }
        }
        self.lease = lease;
    }

    /// Acquires or renews the Lease, on condition that it still has the version that was read.
    async fn acquire_or_renew(&mut self) {
        let sent = self.now();
        match self.write(self.held_by_us()).await {
            Ok(lease) => {
                self.saw(Some(lease));
                self.state.renewed = Some(sent);
                self.state.not_before = Duration::ZERO;
                if std::mem::take(&mut self.failing) {
                    let lease = &self.election.lease;
                    tracing::info!(lease, "the Lease can be read and written again");
                }
                return;
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tracing::debug!(lease = self.election.lease, "lost the race for the Lease");
            }
            // It may have been written nevertheless.
            Err(error) => self.failed("written", &describe(&error)),
        }
        self.state.not_before = self.now() + self.election.timing.retry;
        match self
            .in_time(self.leases.get_opt(&self.election.lease))
            .await
        {
            Ok(lease) => self.saw(lease),
            Err(error) => self.failed("read", &describe(&error)),
        }
    }

    /// Returns this answer, if it comes in time.
    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let answer = timeout(self.election.timing.call, call).await;
        answer.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())))
    }

    fn record_read(&self) -> LeaseRecord {
        let read = self.lease.as_ref().and_then(Item::ok);
        read.cloned().unwrap_or_default()
    }

    fn held_by_us(&self) -> LeaseSpec {
        let Election { us, timing, .. } = &self.election;
        held_by(&self.record_read(), us, timing.duration, Timestamp::now())
    }

    /// Puts this Lease in the place of the one that was read, on condition that that is still there; or creates it, if
    /// there is none.
    async fn write(&self, spec: LeaseSpec) -> kube::Result<Item<LeaseRecord>> {
        let (client, read) = (&self.client, self.lease.as_ref());
        let (namespace, name) = (&self.election.namespace, &self.election.lease);
        let lease = replacement(read, name, spec);
        let replaced = read.map(|_| name.as_str());
        self.in_time(write(client, namespace, replaced, &lease))
            .await
    }

    async fn release(&mut self) {
        if self.record_read().holder.as_ref() != Some(&self.election.us) {
            return;
        }
        let free = LeaseSpec {
            holder_identity: None,
            ..self.held_by_us()
        };
        match self.write(free).await {
            Ok(_) => tracing::info!(lease = self.election.lease, "gave back the Lease"),
            Err(error) => self.failed("given back", &describe(&error)),
        }
    }

    /// Logs the first of several failures in a row, and delays the next call.
    fn failed(&mut self, what: &'static str, error: &str) {
        let retry = self.now() + self.election.timing.retry;
        self.state.not_before = self.state.not_before.max(retry);
        if !std::mem::replace(&mut self.failing, true) {
            let lease = &self.election.lease;
            tracing::warn!(lease, error, "the Lease could not be {what}; trying again");
        }
    }
}

/// The Lease as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLease<'a> {
    /// `spec.holderIdentity`; `None` or empty when it was released.
    pub holder: Option<&'a str>,
    /// Time for which its holder may be silent: `spec.leaseDurationSeconds`, as far as that is believed.
    pub duration: Duration,
}

/// When to do what; all of it in proportion to the lease's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for which we may be silent before another takes over.
    pub duration: Duration,
    /// Time from one renewal to the next.
    pub renew_after: Duration,
    /// Time after the last renewal at which we stop acting. Less than `duration`, so that we stop before another leader
    /// begins.
    pub renew_deadline: Duration,
    /// Wait between two calls that failed.
    pub retry: Duration,
    /// Longest wait for an answer of the API server.
    pub call: Duration,
}

impl Timing {
    /// The timing for a lease of this duration.
    pub fn of(duration: Duration) -> Self {
        Self {
            duration,
            renew_after: duration / 3,
            renew_deadline: duration * 2 / 3,
            retry: duration / 15,
            call: duration / 5,
        }
    }
}

/// The memory of this process; instants are durations since any fixed moment of a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionState {
    /// When the current version of the Lease was first seen.
    pub first_seen: Duration,
    /// When the last of our renewals that succeeded was *sent*.
    pub renewed: Option<Duration>,
    /// No call before this instant, because the last one failed.
    pub not_before: Duration,
}

/// Returns until when we may act as the leader; `None` = we may not.
pub fn leads_until(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
) -> Option<Duration> {
    let ours = lease.is_some_and(|lease| lease.holder == Some(us));
    state
        .renewed
        .filter(|_| ours)
        .map(|renewed| renewed + timing.renew_deadline)
}

/// When to write the Lease next: to create it, to take it over from its last holder, or to renew ours.
pub fn write_at(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
) -> Duration {
    let due = match lease {
        // If it is ours from before a restart, it can be renewed at once: nobody else uses our name.
        Some(lease) if lease.holder == Some(us) => state
            .renewed
            .map_or(Duration::ZERO, |renewed| renewed + timing.renew_after),
        Some(SeenLease {
            holder: Some(holder),
            duration,
        }) if !holder.is_empty() => state.first_seen + duration,
        _ => Duration::ZERO,
    };
    due.max(state.not_before)
}

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

/// This record as the election sees it; `ours` is the duration of a Lease of ours.
pub fn seen(record: &LeaseRecord, ours: Duration) -> SeenLease<'_> {
    SeenLease {
        holder: record.holder.as_deref(),
        duration: record.duration.unwrap_or(ours).min(LONGEST),
    }
}

/// The Lease to write, so that it is held by `us` from now on.
pub fn held_by(record: &LeaseRecord, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    let ours = record.holder.as_deref() == Some(us);
    LeaseSpec {
        holder_identity: Some(us.to_owned()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(record.acquired.filter(|_| ours).unwrap_or(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(record.transitions.saturating_add(i32::from(!ours))),
        ..LeaseSpec::default()
    }
}

/// The Lease with this spec, as it is put in the place of the one that was read. It has no labels, annotations, owners
/// and finalizers: we write none, so any that are there were planted.
pub fn replacement(read: Option<&Item<LeaseRecord>>, name: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: read.and_then(|lease| lease.metadata.uid.clone()),
        resource_version: read.and_then(|lease| lease.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    Lease {
        metadata,
        spec: Some(spec),
    }
}

#[cfg(test)]
pub(crate) mod tests;
