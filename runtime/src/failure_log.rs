//! When the log tells of a failure that goes on: one line when it begins, one whenever its reason changes, one when it ends.

/// The reason that was last logged, while the failure goes on. Pure: whoever asks writes the lines.
#[derive(Clone, Debug, Default)]
pub struct FailureLog(Option<String>);

impl FailureLog {
    /// Notes a failure for this reason. Returns whether to log it: not if that is the last that was logged.
    pub fn is_new(&mut self, reason: &str) -> bool {
        let is_new = self.reason() != Some(reason);
        if is_new {
            self.0 = Some(reason.to_owned());
        }
        is_new
    }

    /// Notes that nothing fails any more, so that the next failure is new. Returns whether something did.
    pub fn resolved(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Why it fails, if it does.
    pub fn reason(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_recurring_failure_is_new() {
        let mut log = FailureLog::default();
        assert!(log.is_new("gone"));
        assert!(!log.is_new("gone"));
        assert!(log.is_new("refused"), "another reason");
        assert_eq!(log.reason(), Some("refused"));
        assert!(log.is_new("gone"), "only the last reason counts");
        assert!(log.resolved());
        assert!(!log.resolved(), "it had ended before");
        assert_eq!(log.reason(), None);
        assert!(log.is_new("gone"), "it came back");
    }
}
