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
    /// Time for which we may be silent before another takes over. All other times are parts of it.
    pub duration: Duration,
}

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

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
        known: KnownLease::new(Instant::now()),
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
    known: KnownLease,
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
            let until = self.known.leads_until(&self.election);
            elected.send_if_modified(|current| std::mem::replace(current, until) != until);
            let wake = if !is_synced {
                Instant::now() + LONGEST
            } else if self.is_stuck() {
                Instant::now() + self.retry()
            } else {
                let due = self.known.write_at(&self.election);
                if Instant::now() >= due {
                    // Events do not cut this short: one of them is the echo of this very call.
                    self.acquire_or_renew().await;
                    continue;
                }
                due
            };
            let state = tokio::select! {
                state = states.next() => state,
                () = sleep_until(wake) => continue,
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

    /// Returns the wait between two calls that failed.
    fn retry(&self) -> Duration {
        self.election.duration / 15
    }

    /// Returns whether the loop is stuck, and logs when that begins and ends.
    fn is_stuck(&mut self) -> bool {
        let is_stuck = self.heartbeat.is_stuck();
        match (std::mem::replace(&mut self.stuck, is_stuck), is_stuck) {
            (false, true) => {
                tracing::error!("the loop of this process is stuck: it stops renewing the Lease");
            }
            (true, false) => tracing::info!("the loop of this process is no longer stuck"),
            _ => {}
        }
        is_stuck
    }

    /// Takes the Lease from the watch, unless a call of ours was answered with a newer one.
    fn watched(&mut self, lease: Option<Item<LeaseRecord>>) {
        let known = self.known.lease.as_ref().and_then(version);
        if lease.as_ref().is_none_or(|lease| known <= version(lease)) {
            self.saw(lease);
        }
    }

    /// Takes the Lease as a call of ours was answered. Whatever is known was known before that call, so nothing is newer: etcd
    /// gives old versions once it was restored from a snapshot, and if nobody believed them, nobody could lead.
    fn saw(&mut self, lease: Option<Item<LeaseRecord>>) {
        let version = |lease: Option<&Item<_>>| lease?.metadata.resource_version.clone();
        if version(lease.as_ref()) != version(self.known.lease.as_ref()) {
            self.known.first_seen = Instant::now();
            if let Some(Err(why)) = lease.as_ref().map(|lease| &lease.body) {
                let lease = &self.election.lease;
                tracing::warn!(
                    lease,
                    ?why,
                    "the Lease cannot be read; it will be taken over"
                );
            }
        }
        self.known.lease = lease;
    }

    /// Acquires or renews the Lease, on condition that it still has the version that was read.
    async fn acquire_or_renew(&mut self) {
        let sent = Instant::now();
        match self.write(true).await {
            Ok(lease) => {
                self.saw(Some(lease));
                (self.known.renewed, self.known.not_before) = (Some(sent), sent);
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
        self.known.not_before = Instant::now() + self.retry();
        let read = self.leases.get_opt(&self.election.lease);
        match self.in_time(read).await {
            Ok(lease) => self.saw(lease),
            Err(error) => self.failed("read", &describe(&error)),
        }
    }

    /// Returns this answer, if it comes in time.
    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let answer = timeout(self.election.duration / 5, call).await;
        answer.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())))
    }

    /// Puts the next Lease, held by us or free, in the place of the one that was read, on condition that that is still there; or
    /// creates it, if there is none.
    async fn write(&self, is_held: bool) -> kube::Result<Item<LeaseRecord>> {
        let (namespace, name) = (&self.election.namespace, &self.election.lease);
        let next = self.known.next(&self.election, is_held, Timestamp::now());
        let replaced = self.known.lease.as_ref().map(|_| name.as_str());
        self.in_time(write(&self.client, namespace, replaced, &next))
            .await
    }

    async fn release(&mut self) {
        if self.known.holder() != Some(&self.election.us) {
            return;
        }
        match self.write(false).await {
            Ok(_) => tracing::info!(lease = self.election.lease, "gave back the Lease"),
            Err(error) => self.failed("given back", &describe(&error)),
        }
    }

    /// Logs the first of several failures in a row, and delays the next call.
    fn failed(&mut self, what: &'static str, error: &str) {
        let retry = Instant::now() + self.retry();
        self.known.not_before = self.known.not_before.max(retry);
        if !std::mem::replace(&mut self.failing, true) {
            let lease = &self.election.lease;
            tracing::warn!(lease, error, "the Lease could not be {what}; trying again");
        }
    }
}

/// The Lease as this process knows it, by its own clock.
struct KnownLease {
    /// The Lease as it was read last.
    lease: Option<Item<LeaseRecord>>,
    /// When the current version of the Lease was first seen.
    first_seen: Instant,
    /// When the last of our renewals that succeeded was *sent*.
    renewed: Option<Instant>,
    /// No call before this instant, because the last one failed.
    not_before: Instant,
}

impl KnownLease {
    /// The state before anything is known.
    fn new(now: Instant) -> Self {
        Self {
            lease: None,
            first_seen: now,
            renewed: None,
            not_before: now,
        }
    }

    /// Returns who holds the Lease, if anybody does. A Lease that cannot be read counts as another's.
    fn holder(&self) -> Option<&str> {
        match &self.lease.as_ref()?.body {
            Ok(record) => record.holder.as_deref().filter(|it| !it.is_empty()),
            Err(_) => Some("?"),
        }
    }

    /// Returns until when we may act as the leader; `None` = we may not. We stop before the Lease expires, so before another
    /// leader begins.
    fn leads_until(&self, Election { us, duration, .. }: &Election) -> Option<Instant> {
        let renewed = self.renewed.filter(|_| self.holder() == Some(us));
        renewed.map(|renewed| renewed + *duration * 2 / 3)
    }

    /// When to write the Lease next: to create it, to take it over from its last holder, or to renew ours.
    fn write_at(&self, Election { us, duration, .. }: &Election) -> Instant {
        let due = match self.holder() {
            // If it is ours from before a restart, it can be renewed at once: nobody else uses our name.
            Some(holder) if holder == us => self.renewed.map(|renewed| renewed + *duration / 3),
            Some(_) => {
                let record = self.lease.as_ref().and_then(Item::ok);
                let silence = record.and_then(|record| record.seconds);
                Some(self.first_seen + silence.map_or(*duration, Duration::from_secs).min(LONGEST))
            }
            None => None,
        };
        due.map_or(self.not_before, |due| due.max(self.not_before))
    }

    /// The Lease to write, so that it is held by us from now on, or by nobody. It has no labels, annotations, owners and
    /// finalizers: we write none, so any that are there were planted.
    fn next(&self, election: &Election, is_held: bool, now: Timestamp) -> Lease {
        let Election { us, duration, .. } = election;
        let read = self.lease.as_ref();
        let record = read.and_then(Item::ok);
        let ours = record.filter(|record| record.holder.as_ref() == Some(us));
        let acquired = ours.and_then(|ours| ours.acquired).unwrap_or(now);
        let transitions = record.map_or(0, |record| record.transitions);
        Lease {
            metadata: ObjectMeta {
                name: Some(election.lease.clone()),
                uid: read.and_then(|lease| lease.metadata.uid.clone()),
                resource_version: read.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: is_held.then(|| us.clone()),
                lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
                acquire_time: Some(MicroTime(acquired)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(transitions.saturating_add(i32::from(ours.is_none()))),
                ..LeaseSpec::default()
            }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
