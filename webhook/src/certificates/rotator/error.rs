//! What can go wrong while certificates are brought in order.

use super::PASS_TIMEOUT;
use crate::certificates::issue;
use brupop_api::item::Unreadable;
use brupop_runtime::tls::TlsError;
use thiserror::Error;

/// After this many patches in a row that came too late because of another replica, people are told.
const LOST_RACES: u32 = 4;

/// Why certificates could not be brought in order this time.
#[derive(Debug, Error)]
pub(crate) enum RotationError {
    /// The Secret cannot be read or written.
    #[error("Secret {name}")]
    Secret {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The configuration cannot be read or written.
    #[error("ValidatingWebhookConfiguration {name}")]
    Configuration {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret is none that we could write back.
    #[error("Secret {name} cannot be read: {why}")]
    UnreadableSecret { name: String, why: Unreadable },
    /// The configuration has other entries than ours.
    #[error("ValidatingWebhookConfiguration {name} cannot be read: {why}")]
    UnreadableConfiguration { name: String, why: Unreadable },
    /// The certificate could not be made.
    #[error(transparent)]
    Issue(#[from] issue::IssueError),
    /// The certificate could not be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The generations could not be written as JSON.
    #[error("the certificates could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// Other replicas were faster each time.
    #[error("somebody else keeps changing Secret {0}")]
    Race(String),
    /// Somebody changed the configuration between our look at it and our patch.
    #[error("ValidatingWebhookConfiguration {0} was changed by somebody else at the same time")]
    Outrun(String),
    /// The API server does not answer.
    #[error("the API server takes longer than {}s", PASS_TIMEOUT.as_secs())]
    Timeout,
}

impl RotationError {
    /// Is the configuration not there?
    pub(super) fn is_deleted(&self) -> bool {
        matches!(self, Self::Configuration { source, .. }
            if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404))
    }

    /// Should people be told, after this many failures in a row? Of a race that is lost, only if that does not end.
    pub(super) fn is_worth_logging(&self, failures: u32) -> bool {
        !matches!(self, Self::Outrun(_)) || failures >= LOST_RACES
    }
}
