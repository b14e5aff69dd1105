//! The one way in which tests wait: for a condition, with a deadline.

use std::io;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Shortest and longest pause between two looks at a condition; a look is often a request. In between it is a twentieth of what
/// was waited for.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// Longest that tests wait for one thing, also on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(4);

/// Awaits the first `Some` of `condition`, for at most [`DEADLINE`].
pub async fn await_until<T>(
    what: impl Into<String>,
    condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    await_within(DEADLINE, what, condition).await
}

/// Awaits the first `Some` of `condition`, which is asked at once and then every 20 ms, later every 100 ms. A look that hangs
/// counts against the deadline, too.
pub async fn await_within<T>(
    deadline: Duration,
    what: impl Into<String>,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let began = Instant::now();
    let looks = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            sleep((began.elapsed() / 20).clamp(PAUSES[0], PAUSES[1])).await;
        }
    };
    tokio::time::timeout_at(began + deadline, looks)
        .await
        .map_err(|_| in_vain(&what.into(), began))
}

/// A condition has not come true in time.
fn in_vain(what: &str, began: Instant) -> Error {
    let waited = began.elapsed().as_secs_f32();
    anyhow!("waited {waited} s without success for: {what}")
}

/// Awaits SIGINT or SIGTERM. Returns what has happened in a word, and the exit status that shells have for it.
pub async fn await_signal() -> io::Result<(&'static str, u8)> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = interrupted.recv() => ("interrupted", 130),
        _ = terminated.recv() => ("terminated", 143),
    })
}

/// As [`await_within`], but the deadline bounds the lack of progress, not the speed of the machine: it begins again with
/// each `progress`, which says when something last happened. Nothing is awaited for more than ten deadlines.
pub(crate) async fn await_progress<T>(
    deadline: Duration,
    what: impl Into<String>,
    progress: impl Fn() -> Option<Instant>,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let began = Instant::now();
    let what = what.into();
    loop {
        let from = progress()
            .map_or(began, |last| last.max(began))
            .min(began + deadline * 9);
        let left = (from + deadline).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(in_vain(&what, began));
        }
        // A look that was begun is cut off and begun again.
        if let Ok(value) = await_within(left, "", &mut condition).await {
            return Ok(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Tenths of a second until a wait with this progress fails.
    async fn waited(progress: impl Fn() -> Option<Instant>) -> u128 {
        let began = Instant::now();
        let never = async || None::<()>;
        let waited = await_progress(SECOND, "", progress, never).await;
        assert!(waited.is_err());
        began.elapsed().as_millis() / 100
    }

    #[tokio::test(start_paused = true)]
    async fn progress_renews_the_deadline_ten_times() {
        let once = Instant::now() + Duration::from_millis(1600);
        assert_eq!(waited(|| None).await, 10);
        assert_eq!(waited(|| Some(once)).await, 16);
        assert_eq!(waited(|| Some(Instant::now())).await, 100);
        let mut looks = 0;
        let third = async || {
            looks += 1;
            (looks == 3).then_some(())
        };
        assert!(
            await_progress(SECOND, "a third look", || None, third)
                .await
                .is_ok()
        );
    }
}
