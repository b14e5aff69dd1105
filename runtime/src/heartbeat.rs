//! Whether a loop still comes round.

use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A loop beats at least this often, also when it has nothing to do.
const PERIOD: Duration = Duration::from_secs(2);

/// Tells others that a loop still comes round. Clones share one state.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    last: watch::Sender<Instant>,
    longest: Duration,
}

impl Heartbeat {
    /// Begins with a beat. After a silence of `longest` the loop counts as stuck.
    pub fn new(longest: Duration) -> Self {
        Self {
            last: watch::Sender::new(Instant::now()),
            longest,
        }
    }

    /// The loop has come round.
    pub fn beat(&self) {
        self.last.send_replace(Instant::now());
    }

    /// Resolves when the next beat is due.
    pub async fn due(&self) {
        sleep(PERIOD.min(self.longest / 4)).await;
    }

    /// Beats as long as it waits for this.
    pub async fn during<T>(&self, waiting: impl Future<Output = T>) -> T {
        let mut waiting = pin!(waiting);
        loop {
            self.beat();
            tokio::select! {
                done = &mut waiting => return done,
                () = self.due() => {}
            }
        }
    }

    /// Whether the loop has not come round for too long.
    pub fn is_stuck(&self) -> bool {
        self.last.borrow().elapsed() >= self.longest
    }
}
