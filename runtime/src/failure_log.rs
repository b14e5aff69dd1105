//! When the log tells of a failure that goes on: one line when it begins, one for each further reason, one when it ends.

/// The most reasons of one failure that are logged, for others can make some of them up.
const MAX_REASONS: usize = 8;

/// The reasons of a failure that goes on, the last one at the end. Pure: the caller writes the lines.
#[derive(Clone, Debug, Default)]
pub struct FailureLog(Vec<String>);

impl FailureLog {
    /// Notes a failure for this reason. Returns whether to log it: not if that was done since the failure began, so that
    /// reasons that take turns are logged once each.
    pub fn is_new(&mut self, reason: &str) -> bool {
        let known = self
            .0
            .iter()
            .position(|known| known == reason)
            .map(|at| self.0.remove(at));
        let is_new = known.is_none() && self.0.len() < MAX_REASONS;
        self.0.truncate(MAX_REASONS - 1);
        self.0.push(known.unwrap_or_else(|| reason.to_owned()));
        is_new
    }

    /// Notes that nothing fails any more, so that the next failure is new. Returns whether something did.
    pub fn resolved(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }

    /// Returns why it fails, if it does.
    pub fn reason(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
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
        assert!(!log.is_new("gone"), "they take turns");
        assert_eq!(log.reason(), Some("gone"));
        assert!(log.resolved());
        assert!(!log.resolved(), "it had ended before");
        assert_eq!(log.reason(), None);
        assert!(log.is_new("gone"), "it came back");
    }

    #[test]
    fn endless_reasons_are_not_logged_endlessly() {
        let mut log = FailureLog::default();
        let new = (0..100)
            .filter(|number| log.is_new(&number.to_string()))
            .count();
        assert_eq!((new, log.reason()), (MAX_REASONS, Some("99")));
    }
}
