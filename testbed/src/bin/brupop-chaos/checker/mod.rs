//! Checks from outside that the promises hold: from etcd's revisions, the API server's audit log, the hosts'
//! own account of their boots, and the logs of our processes. It uses no code that decides anything, and
//! reads objects as plain JSON.

use std::fmt;
use std::time::Duration;

pub(crate) mod audit;
mod changes;
pub(crate) mod hosts;
pub(crate) mod json;
pub(crate) mod objects;
pub(crate) mod processes;
pub(crate) mod rest;
pub(crate) mod rules;
pub(crate) mod writes;

/// A leader that has not seen a change yet may still go by what was before: until its watch tells, or it has lost its Lease.
const GRACE: Duration = Duration::from_secs(20);

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the rule.
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// The violations, each once.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violations: Vec<Violation>,
}

impl Found {
    /// Whether this rule was violated.
    pub(crate) fn violates(&self, rule: &str) -> bool {
        self.violations
            .iter()
            .any(|violation| violation.rule == rule)
    }

    pub(crate) fn add(&mut self, violations: impl IntoIterator<Item = Violation>) {
        for violation in violations {
            if !self.violations.contains(&violation) {
                println!("!! {violation}");
                self.violations.push(violation);
            }
        }
    }
}
