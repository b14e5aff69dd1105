//! The rules by name, and what a refusal says.

use brupop_api::printable::printable;

/// Longest sentence of a refusal, in bytes. It has room for two names of objects and some words.
const ALLOWED_MAX: usize = 1024;
/// Longest name of a field in a refusal, in bytes.
const FIELD_MAX: usize = 64;

/// A rule that allows or refuses. Its name is stable: it stands in messages, metrics and audit annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Allows: an agent reports on its own node.
    AgentReport,
    /// Allows: the reconciler creates, steers or deletes a shadow.
    ReconcilerSteer,
    /// Allows: the caller is no service account of this namespace.
    Outsider,
    /// The token does not name one node and one pod.
    AgentIdentity,
    /// An agent may update `/status` and nothing else.
    AgentStatusOnly,
    /// The shadow is another node's.
    AgentOwnNode,
    /// The shadow is not owned by the very Node of the token.
    AgentNodeUid,
    /// The field is not the agent's.
    AgentOwnFields,
    /// The attempt is not the one that was asked for, or goes backwards.
    AgentAttempt,
    /// The step is not on the way to what the spec asks for.
    AgentTransition,
    /// The reboot was not granted for this boot.
    AgentClaim,
    /// Too many field managers.
    AgentManagedFields,
    /// A field is longer, or a number higher, than the schema allows.
    AgentLimits,
    /// A shadow is created Idle, named after the Node that owns it.
    ReconcilerCreate,
    /// The spec does not move that way.
    ReconcilerTransition,
    /// Owners do not change.
    ReconcilerOwner,
    /// Of a shadow that exists, the reconciler changes the spec only.
    ReconcilerMetadata,
    /// Whatever the reconciler writes into a status, in a dry run: so it sees that the webhook is asked.
    ReconcilerCheck,
    /// Attempts begin from Idle. They keep their version and the boot that they began in.
    ReconcilerAttempt,
    /// A reboot is granted for an attempt, in the state that asks for it, and not while the agent claims it or the last one.
    ReconcilerGrant,
    /// The webhook's own account writes no shadows.
    WebhookNothing,
    /// A service account of this namespace that is none of ours.
    UnknownAccount,
    /// Not a shadow, or another version of it.
    UnknownKind,
    /// A sub-resource or operation that nobody may use.
    UnknownRequest,
    /// The object, or the review, cannot be read.
    Unreadable,
}

impl Rule {
    /// Its name in messages, metrics and audit annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentReport => "agent-report",
            Self::ReconcilerSteer => "reconciler-steer",
            Self::Outsider => "outsider",
            Self::AgentIdentity => "agent-identity",
            Self::AgentStatusOnly => "agent-status-only",
            Self::AgentOwnNode => "agent-own-node",
            Self::AgentNodeUid => "agent-node-uid",
            Self::AgentOwnFields => "agent-own-fields",
            Self::AgentAttempt => "agent-attempt",
            Self::AgentTransition => "agent-transition",
            Self::AgentClaim => "agent-claim",
            Self::AgentManagedFields => "agent-managed-fields",
            Self::AgentLimits => "agent-limits",
            Self::ReconcilerCreate => "reconciler-create",
            Self::ReconcilerTransition => "reconciler-transition",
            Self::ReconcilerOwner => "reconciler-owner",
            Self::ReconcilerMetadata => "reconciler-metadata",
            Self::ReconcilerCheck => brupop_api::names::admission_check::WEBHOOK_RULE,
            Self::ReconcilerAttempt => "reconciler-attempt",
            Self::ReconcilerGrant => "reconciler-grant",
            Self::WebhookNothing => "webhook-nothing",
            Self::UnknownAccount => "unknown-account",
            Self::UnknownKind => "unknown-kind",
            Self::UnknownRequest => "unknown-request",
            Self::Unreadable => "unreadable",
        }
    }

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

/// Why a write is refused. The texts are printable, and of limited length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// The field at fault, as `status.attempt`; empty if it is the request as a whole.
    pub field: String,
    /// What would be allowed.
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
