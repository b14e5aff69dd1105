//! Errors as one line for people.

use std::error::Error;

use brupop_api::item::Unreadable;

/// An error and its causes as one line. If the cause is JSON that cannot be read, the line says where, and quotes
/// nothing: serde's own words contain the value, which may be a secret.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |cause| (*cause).source());
    if let Some(json) = causes().find_map(|cause| cause.downcast_ref::<serde_json::Error>()) {
        return format!("the answer cannot be read: {}", Unreadable::from(json));
    }
    let mut line = String::new();
    for cause in causes() {
        let text = cause.to_string();
        // Many errors already end with the words of their cause.
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher;
    use serde_json::json;

    #[test]
    fn a_cause_is_told_once() {
        let refused = std::io::Error::other("connection refused");
        let error = watcher::Error::WatchFailed(kube::Error::Service(Box::new(refused)));
        let line = error_chain(&error);
        assert_eq!(line.matches("connection refused").count(), 1, "{line}");
    }

    #[test]
    fn an_unreadable_answer_is_not_quoted() {
        let bad = serde_json::from_value::<u8>(json!("hunter2")).unwrap_err();
        assert!(bad.to_string().contains("hunter2"));
        let line = error_chain(&watcher::Error::InitialListFailed(kube::Error::SerdeError(bad)));
        assert!(line.starts_with("the answer cannot be read") && !line.contains("hunter2"), "{line}");
    }
}
