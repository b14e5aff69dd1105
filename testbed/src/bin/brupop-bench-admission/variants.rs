//! What is compared, and how much of it at a time.

use std::time::Duration;

/// Longest wait for anything to come up.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Patches in flight in the second part, each of another agent.
pub const PARALLEL: usize = 32;
/// What the other webhook is called.
pub const DO_NOTHING: &str = "do-nothing";

/// What stands between an agent's patch and etcd, beside authentication, RBAC and schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing.
    Bare,
    /// The policies in the API server.
    Policies,
    /// A webhook that does nothing.
    DoNothing,
    /// Our webhook.
    Webhook,
    /// Our webhook and the policies, as shipped.
    Both,
}

/// Which of the two webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// The one that does nothing.
    DoNothing,
    /// Ours.
    Ours,
}

impl Variant {
    pub const ALL: [Self; 5] = [Self::Bare, Self::Policies, Self::DoNothing, Self::Webhook, Self::Both];

    pub fn namespace(self) -> &'static str {
        match self {
            Self::Bare => "bench-bare",
            Self::Policies => "bench-policies",
            Self::DoNothing => "bench-do-nothing",
            Self::Webhook => "bench-webhook",
            Self::Both => "bench-both",
        }
    }

    /// The webhook that is asked, and whether policies are.
    pub fn gates(self) -> (Option<Hook>, bool) {
        match self {
            Self::Bare => (None, false),
            Self::Policies => (None, true),
            Self::DoNothing => (Some(Hook::DoNothing), false),
            Self::Webhook => (Some(Hook::Ours), false),
            Self::Both => (Some(Hook::Ours), true),
        }
    }
}

impl Hook {
    pub fn label(self) -> &'static str {
        match self {
            Self::DoNothing => DO_NOTHING,
            Self::Ours => "ours",
        }
    }
}
