//! Which failures the log tells of: a failure gets one line when it begins, one whenever its reason changes, and one when it
//! has ended.

use std::collections::BTreeMap;

/// The last reason that was logged for each subject that fails. Pure: whoever asks writes the lines.
#[derive(Clone, Debug)]
pub struct FailureLog<S>(BTreeMap<S, String>);

impl<S> Default for FailureLog<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Ord> FailureLog<S> {
    /// Notes that the subject fails for this reason. Returns whether to log it: not if that is the last that was logged.
    pub fn is_new(&mut self, subject: S, reason: &str) -> bool {
        if self.reason(&subject) == Some(reason) {
            return false;
        }
        self.0.insert(subject, reason.to_owned());
        true
    }

    /// Notes that the subject does not fail any more, so that its next failure is new. Returns whether it did.
    pub fn resolved(&mut self, subject: &S) -> bool {
        self.0.remove(subject).is_some()
    }

    /// Why the subject fails, if it does.
    pub fn reason(&self, subject: &S) -> Option<&str> {
        self.0.get(subject).map(String::as_str)
    }

    /// Forgets all subjects but these.
    pub fn retain(&mut self, mut keep: impl FnMut(&S) -> bool) {
        self.0.retain(|subject, _| keep(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_new_when_it_begins_changes_or_comes_back() {
        let mut log = FailureLog::default();
        assert!(log.is_new("watch", "gone"));
        assert!(!log.is_new("watch", "gone"));
        assert!(log.is_new("list", "gone"), "another subject");
        assert!(log.is_new("watch", "refused"), "another reason");
        assert_eq!(log.reason(&"watch"), Some("refused"));
        assert!(log.is_new("watch", "gone"), "only the last reason counts");
        assert!(log.resolved(&"watch"));
        assert!(!log.resolved(&"watch"), "it had ended before");
        assert_eq!(log.reason(&"watch"), None);
        assert!(log.is_new("watch", "gone"), "it came back");
    }

    #[test]
    fn what_is_not_retained_is_forgotten() {
        let mut log = FailureLog::default();
        assert!(log.is_new("node a", "unreadable") && log.is_new("node b", "unreadable"));
        log.retain(|subject| *subject == "node a");
        assert!(!log.is_new("node a", "unreadable"));
        assert!(log.is_new("node b", "unreadable"));
    }
}
