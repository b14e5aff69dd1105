//! SIGTERM and SIGINT as a value that tasks can check and wait for.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells whether the process was asked to end. Clones share one state. Once requested, it stays requested.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Requests the shutdown of the [`Shutdown`] that it was made with. Dropping it does the same.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Requests the shutdown. A second request changes nothing.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// A shutdown that only the trigger requests: for tests, and for parts that end before their process does.
    pub fn by_hand() -> (Trigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Self(receiver))
    }

    /// A shutdown that SIGTERM (from the kubelet) or SIGINT (from a person) requests. Needs a running tokio runtime.
    ///
    /// # Errors
    /// The operating system refused the signal handler.
    pub fn on_signals() -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (trigger, shutdown) = Self::by_hand();
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "shutting down");
            trigger.request();
        });
        Ok(shutdown)
    }

    /// True once the shutdown was requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Resolves when the shutdown is requested; at once if it was. Safe to drop and call again.
    pub async fn requested(&self) {
        // An error means that the trigger is gone, which counts as a request.
        let _ = self.0.clone().wait_for(|requested| *requested).await;
    }
}
