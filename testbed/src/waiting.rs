//! The one way in which tests wait: for a condition, with a deadline.

use std::io;
use std::time::Duration;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Shortest and longest pause between two looks at a condition; a look is often a request. In between it is a twentieth of what
/// was waited for.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// A condition did not come true in time.
#[derive(Debug, Error)]
#[error("waited {} s without success for: {what}", waited.as_secs_f32())]
pub struct Elapsed {
    /// The condition, as the caller described it.
    pub what: String,
    /// How long it was waited for.
    pub waited: Duration,
}

/// Awaits the first `Some` of `condition`, which is asked at once and then every 20 ms, later every 100 ms. A look that hangs
/// counts against the deadline, too.
pub async fn await_until<T>(
    what: impl Into<String>,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Elapsed> {
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
        .map_err(|_| Elapsed { what: what.into(), waited: began.elapsed() })
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

/// As [`await_until`], but the deadline bounds the lack of progress, not the speed of the machine: it begins again with
/// each `progress`, which says when something last happened. Nothing is awaited for more than ten deadlines.
pub async fn await_progress<T>(
    what: impl Into<String>,
    deadline: Duration,
    progress: impl Fn() -> Option<Instant>,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Elapsed> {
    let began = Instant::now();
    let what = what.into();
    loop {
        let from = progress().map_or(began, |last| last.max(began)).min(began + deadline * 9);
        let left = (from + deadline).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Elapsed { what, waited: began.elapsed() });
        }
        // A look that was begun is cut off and begun again.
        if let Ok(value) = await_until("", left, &mut condition).await {
            return Ok(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_renews_the_deadline_ten_times() {
        let (second, began) = (Duration::from_secs(1), Instant::now());
        let never = async || None::<()>;
        let elapsed = await_progress("nothing", second, || None, never).await.unwrap_err();
        assert_eq!((elapsed.what.as_str(), elapsed.waited.as_secs()), ("nothing", 1));
        let once = || Some(began + Duration::from_millis(1600));
        let elapsed = await_progress("one thing", second, once, never).await.unwrap_err();
        assert_eq!(elapsed.waited.as_millis() / 100, 16);
        let always = || Some(Instant::now());
        assert_eq!(await_progress("much", second, always, never).await.unwrap_err().waited.as_secs(), 10);
        let mut looks = 0;
        let third = async || {
            looks += 1;
            (looks == 3).then_some(())
        };
        assert!(await_progress("a third look", second, || None, third).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_value_ends_the_wait() {
        let mut looks = 0;
        let seen = await_until("three looks", Duration::from_secs(1), async || {
            looks += 1;
            (looks == 3).then_some("done")
        });
        assert_eq!(seen.await.ok(), Some("done"));
        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn every_wait_ends_at_its_deadline() {
        let never = await_until("never", Duration::from_secs(2), async || None::<()>).await;
        assert_eq!(never.map_err(|e| e.to_string()), Err("waited 2 s without success for: never".to_owned()));
        let hangs = await_until("hangs", Duration::from_secs(2), async || {
            std::future::pending::<()>().await;
            Some(())
        });
        assert!(hangs.await.is_err());
    }
}
