//! What goes on in each connection: which are silent, since when, and which of them is closed to make room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// All connections of a listener. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    next: u64,
    connections: HashMap<u64, Doing>,
}

struct Doing {
    /// Requests being answered.
    requests: usize,
    /// When the last request was answered; at first, when the connection was made.
    silent_since: Instant,
    /// How long the silence may last.
    patience: Duration,
    /// Told to end: somebody waits for its place.
    told: bool,
    leave: Arc<Notify>,
}

impl Crowd {
    /// One more connection. It may be silent for `first` before its first request, and for `idle` after each.
    pub(super) fn join(&self, first: Duration, idle: Duration) -> Activity {
        let leave = Arc::new(Notify::new());
        let doing = Doing {
            requests: 0,
            silent_since: Instant::now(),
            patience: first,
            told: false,
            leave: Arc::clone(&leave),
        };
        let mut members = self.lock();
        let id = members.next;
        members.next += 1;
        members.connections.insert(id, doing);
        drop(members);
        Activity { crowd: self.clone(), id, idle, leave }
    }

    /// Ends the connection that has been silent for longest, if that is at least `least`. One that has been told to end
    /// is not told again.
    pub(super) fn close_longest_idle(&self, least: Duration) {
        let now = Instant::now();
        let mut members = self.lock();
        let silent = members
            .connections
            .values_mut()
            .filter(|doing| doing.requests == 0 && !doing.told && doing.silent_since + least <= now);
        if let Some(doing) = silent.min_by_key(|doing| doing.silent_since) {
            doing.told = true;
            doing.leave.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What goes on in one connection. It leaves the crowd when this is dropped.
pub(super) struct Activity {
    crowd: Crowd,
    id: u64,
    idle: Duration,
    leave: Arc<Notify>,
}

/// One request is being answered, until this is dropped.
pub(super) struct Busy {
    crowd: Crowd,
    id: u64,
}

impl Activity {
    /// A request has come.
    pub(super) fn busy(&self) -> Busy {
        if let Some(doing) = self.crowd.lock().connections.get_mut(&self.id) {
            doing.requests += 1;
            doing.patience = self.idle;
        }
        Busy { crowd: self.crowd.clone(), id: self.id }
    }

    /// Resolves when the connection has been silent for too long, or is told to make room.
    pub(super) async fn silence(&self) {
        loop {
            let now = Instant::now();
            let until = match self.crowd.lock().connections.get(&self.id) {
                Some(doing) if doing.requests == 0 => doing.silent_since + doing.patience,
                Some(_) => now + self.idle,
                None => return,
            };
            if until <= now {
                return;
            }
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.leave.notified() => return,
            }
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.crowd.lock().connections.remove(&self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(doing) = self.crowd.lock().connections.get_mut(&self.id) {
            doing.requests -= 1;
            doing.silent_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_mins(2);
    const SECOND: Duration = Duration::from_secs(1);

    async fn ended(activity: &Activity) -> bool {
        tokio::time::timeout(Duration::ZERO, activity.silence()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_silent_for_longest_makes_room_and_never_one_that_is_busy() {
        let crowd = Crowd::default();
        let (busy, first, second) = (crowd.join(IDLE, IDLE), crowd.join(IDLE, IDLE), crowd.join(IDLE, IDLE));
        let request = busy.busy();
        tokio::time::advance(SECOND / 2).await;
        drop(first.busy());
        tokio::time::advance(SECOND / 2).await;
        let said = async || [ended(&busy).await, ended(&first).await, ended(&second).await];

        crowd.close_longest_idle(SECOND * 2);
        assert_eq!(said().await, [false, false, false], "nobody has been silent for two seconds");
        crowd.close_longest_idle(SECOND / 2);
        assert_eq!(said().await, [false, false, true]);
        crowd.close_longest_idle(SECOND / 2);
        assert_eq!(said().await, [false, true, false], "each is told once");
        crowd.close_longest_idle(SECOND / 2);
        assert_eq!(said().await, [false, false, false], "who is busy stays");
        drop(request);
        tokio::time::advance(SECOND).await;
        crowd.close_longest_idle(SECOND / 2);
        assert_eq!(said().await, [true, false, false]);
        drop((busy, first, second));
        assert!(crowd.lock().connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_shorter_before_the_first_request() {
        let crowd = Crowd::default();
        let (silent, asked) = (crowd.join(SECOND, IDLE), crowd.join(SECOND, IDLE));
        drop(asked.busy());
        tokio::time::advance(SECOND).await;
        assert!(ended(&silent).await && !ended(&asked).await);
        tokio::time::advance(IDLE).await;
        assert!(ended(&asked).await);
    }
}
