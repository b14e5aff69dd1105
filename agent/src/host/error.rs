//! Errors of the host's API.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// Reasons why the host's API gave no answer that can be used. The sentences do not change from one try to the next.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No connection to the socket: nobody listens, or the way there is barred.
    #[error("nobody answers on {}: {source}", socket.display())]
    Unreachable {
        socket: PathBuf,
        source: std::io::Error,
    },
    #[error("{call} got no answer within {} s", after.as_secs_f32())]
    TimedOut { call: &'static str, after: Duration },
    /// The connection broke before the answer was there, or the answer is longer than any that makes sense.
    #[error("the answer to {call} was cut off: {source}")]
    Broken {
        call: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer cannot be read.
    #[error("the answer to {call} cannot be understood: {why}")]
    Nonsense { call: &'static str, why: String },
    /// A status code that the API does not give to this call.
    #[error("{call} was answered with {status}: {sentence}")]
    Unexpected {
        call: &'static str,
        status: u16,
        /// The body, as far as it was text.
        sentence: String,
    },
    /// The boot id cannot be told.
    #[error("the boot id cannot be read from {}: {why}", path.display())]
    BootId { path: PathBuf, why: String },
}

impl HostError {
    /// Does nobody listen on the socket? A server whose queue of connections is full, or that access is denied to, is there.
    pub fn is_absence(&self) -> bool {
        use ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, Self::Unreachable { source, .. } if matches!(source.kind(), NotFound | ConnectionRefused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new container would be refused, too.
    #[test]
    fn a_barred_socket_is_there() {
        for (kind, absent) in [
            (ErrorKind::NotFound, true),
            (ErrorKind::ConnectionRefused, true),
            (ErrorKind::WouldBlock, false),
            (ErrorKind::PermissionDenied, false),
        ] {
            let (socket, source) = (PathBuf::new(), kind.into());
            let error = HostError::Unreachable { socket, source };
            assert_eq!(error.is_absence(), absent, "{kind}");
        }
    }
}
