//! The rules by name, and what a refusal says.

use brupop_api::printable::printable;

/// Longest sentence of a refusal, in bytes. It has room for two names of objects and some words.
const ALLOWED_MAX: usize = 1024;
/// Longest name of a field in a refusal, in bytes.
const FIELD_MAX: usize = 64;

brupop_api::words! {
    /// A rule that allows or refuses. Its name is stable: it stands in messages, metrics and audit annotations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Rule {
        /// Allows: an agent reports on its own node.
        AgentReport => "agent-report",
        /// Allows: the reconciler creates, steers or deletes a shadow.
        ReconcilerSteer => "reconciler-steer",
        /// Allows: the caller is no service account of this namespace.
        Outsider => "outsider",
        /// The token does not name one node and one pod.
        AgentIdentity => "agent-identity",
        /// An agent may update `/status` and nothing else.
        AgentStatusOnly => "agent-status-only",
        /// The shadow is another node's.
        AgentOwnNode => "agent-own-node",
        /// The shadow is not owned by the very Node of the token.
        AgentNodeUid => "agent-node-uid",
        /// The field is not the agent's.
        AgentOwnFields => "agent-own-fields",
        /// The attempt is not the one that was asked for, or goes backwards.
        AgentAttempt => "agent-attempt",
        /// The step is not on the way to what the spec asks for.
        AgentTransition => "agent-transition",
        /// The reboot was not granted for this boot.
        AgentClaim => "agent-claim",
        /// A shadow is created Idle, named after the Node that owns it.
        ReconcilerCreate => "reconciler-create",
        /// The spec does not move that way.
        ReconcilerTransition => "reconciler-transition",
        ReconcilerOwner => "reconciler-owner",
        /// Of a shadow that exists, the reconciler changes the spec only.
        ReconcilerMetadata => "reconciler-metadata",
        /// Whatever the reconciler writes into a status, in a dry run: so it sees that the webhook is asked.
        ReconcilerCheck => brupop_api::names::admission_check::WEBHOOK_RULE,
        /// Attempts begin from Idle. They keep their version and the boot that they began in.
        ReconcilerAttempt => "reconciler-attempt",
        /// A reboot is granted for an attempt, in the state that asks for it, and not while the agent claims it or the last one.
        ReconcilerGrant => "reconciler-grant",
        /// The webhook's own account writes no shadows.
        WebhookNothing => "webhook-nothing",
        /// A service account of this namespace that is none of ours.
        UnknownAccount => "unknown-account",
        /// Not a shadow, or another version of it.
        UnknownKind => "unknown-kind",
        /// A sub-resource or operation that nobody may use.
        UnknownRequest => "unknown-request",
        /// The object, or the review, cannot be read.
        Unreadable => "unreadable",
    }
}

impl Rule {
    /// A refusal by this rule. `allowed` is a sentence that a person can act on. Everybody who reaches the webhook's endpoint can
    /// put anything into a review, so what is quoted of it is made printable and cut.
    pub(super) fn refuse(self, field: impl AsRef<str>, allowed: impl AsRef<str>) -> Refusal {
        Refusal {
            rule: self,
            field: printable(field.as_ref(), FIELD_MAX).into_owned(),
            allowed: printable(allowed.as_ref(), ALLOWED_MAX).into_owned(),
        }
    }
}

/// The reason why a write is refused. The texts are printable, and of limited length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub rule: Rule,
    /// The field at fault, as `status.attempt`; empty if it is the request as a whole.
    pub field: String,
    pub allowed: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.rule.as_str())?;
        if !self.field.is_empty() {
            write!(f, " ({})", self.field)?;
        }
        write!(f, ": {}", self.allowed)
    }
}
