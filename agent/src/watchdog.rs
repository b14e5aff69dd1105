//! Ends the process when the agent's loop hangs, so that the kubelet starts it again.

use std::io;
use std::thread;
use std::time::Duration;

use brupop_runtime::Heartbeat;

/// A turn takes less than this: each of its waits has a limit of its own, and these limits add up to 50 s.
pub(crate) const LONGEST_TURN: Duration = Duration::from_mins(1);
const PERIOD: Duration = Duration::from_secs(5);
/// Stack of the thread, which does next to nothing.
const STACK: usize = 128 << 10;

/// Ends the process once the loop is stuck. `main` is in that loop, and cannot return.
///
/// # Errors
/// The operating system refuses a thread.
#[allow(clippy::exit, reason = "the thread that should end it hangs")]
pub(crate) fn start(heartbeat: Heartbeat) -> io::Result<()> {
    thread::Builder::new()
        .name("watchdog".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            until_stuck(&heartbeat, PERIOD);
            tracing::error!(
                "the agent's loop has been stuck for {} s; the process exits, so that the kubelet restarts it",
                LONGEST_TURN.as_secs()
            );
            std::process::exit(1);
        })?;
    Ok(())
}

/// Returns when the loop is stuck at two checks in a row. A process that was stopped for a while looks stuck at the first one.
fn until_stuck(heartbeat: &Heartbeat, period: Duration) {
    let mut was_stuck = false;
    loop {
        thread::sleep(period);
        let is_stuck = heartbeat.is_stuck();
        if is_stuck && was_stuck {
            return;
        }
        was_stuck = is_stuck;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_a_loop_that_hangs_ends_the_process() {
        let period = Duration::from_millis(20);
        let heartbeat = Heartbeat::new(10 * period);
        let watched = {
            let heartbeat = heartbeat.clone();
            thread::spawn(move || until_stuck(&heartbeat, period))
        };
        for _ in 0..40 {
            heartbeat.beat();
            thread::sleep(period);
        }
        assert!(!watched.is_finished(), "it comes round");
        let hangs_since = Instant::now();
        watched.join().unwrap();
        assert!(hangs_since.elapsed() >= 9 * period);
    }
}
