//! Whether the host's API has been away for so long that a new container may help.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::host::HostError;

/// When nobody has listened on the socket for so long, the process ends.
///
/// The container's mount is of the socket file, not of its folder. An API server that is restarted makes a new file, and
/// the mount stays with the old one, on which nobody listens any more. Only a new container gets a new mount, and the kubelet
/// makes one when the process has ended. Nothing is lost: all state is in the cluster and on the host. A host that has no
/// API server at all brings the pod into `CrashLoopBackOff`, so that it is not Ready for most of the time.
const ABSENT_FOR_GOOD: Duration = Duration::from_mins(1);

/// Why the agent ends by itself.
#[derive(Debug, thiserror::Error)]
#[error(
    "nobody has listened on {} for {} s; the process ends, so that a new container mounts the socket again. The kubelet \
     calls this CrashLoopBackOff until the host's API server is back; it is no fault of the agent",
    socket.display(),
    after.as_secs()
)]
pub struct SocketAbandoned {
    /// The socket of Bottlerocket's API.
    pub socket: PathBuf,
    /// For how long nobody listened.
    pub after: Duration,
}

/// Since when nobody listens on the socket.
#[derive(Debug, Default)]
pub(super) struct Absence(Option<Instant>);

impl Absence {
    /// A question to the host failed. Only one that found nobody there counts.
    pub(super) fn on_failure(&mut self, error: &HostError) {
        if error.is_absence() {
            self.0.get_or_insert_with(Instant::now);
        } else {
            self.on_answer();
        }
    }

    /// The host has answered.
    pub(super) fn on_answer(&mut self) {
        self.0 = None;
    }

    /// The error with which to end, once nobody has listened on `socket` for too long.
    pub(super) fn abandoned(&self, socket: impl Into<PathBuf>) -> Option<SocketAbandoned> {
        let after = self.0?.elapsed();
        (after >= ABSENT_FOR_GOOD).then(|| SocketAbandoned {
            socket: socket.into(),
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    fn unreachable(kind: ErrorKind) -> HostError {
        HostError::Unreachable {
            socket: "/run/api.sock".into(),
            source: Error::from(kind),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_absence_without_interruption_is_for_good() {
        let refused = unreachable(ErrorKind::ConnectionRefused);
        let mut absence = Absence::default();
        absence.on_failure(&refused);
        tokio::time::advance(ABSENT_FOR_GOOD / 2).await;
        absence.on_failure(&refused);
        assert!(absence.abandoned("s").is_none(), "a short one");
        for interruption in [
            None,
            Some(HostError::TimedOut {
                call: "GET /os",
                after: Duration::from_secs(10),
            }),
            Some(unreachable(ErrorKind::WouldBlock)),
        ] {
            absence.on_failure(&unreachable(ErrorKind::NotFound));
            match &interruption {
                None => absence.on_answer(),
                Some(error) => absence.on_failure(error),
            }
            tokio::time::advance(ABSENT_FOR_GOOD).await;
            assert!(
                absence.abandoned("s").is_none(),
                "somebody was there: {interruption:?}"
            );
        }
        absence.on_failure(&refused);
        tokio::time::advance(ABSENT_FOR_GOOD).await;
        absence.on_failure(&refused);
        assert_eq!(
            absence
                .abandoned("/run/api.sock")
                .map(|error| error.to_string())
                .as_deref(),
            Some(
                "nobody has listened on /run/api.sock for 60 s; the process ends, so that a new container mounts the \
                 socket again. The kubelet calls this CrashLoopBackOff until the host's API server is back; it is no \
                 fault of the agent"
            )
        );
    }
}
