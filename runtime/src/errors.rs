//! Errors in words that are fit for a log line: with their causes, and without the bodies of responses.

use brupop_api::item::Unreadable;
use brupop_api::printable::printable;
use kube::core::Status;
use std::borrow::Cow;
use std::error::Error;

/// The reason that kube's client makes up for an error response that holds no Status. The message is the body then.
const MADE_UP: &str = "Failed to parse error data";
/// Most bytes of a sentence.
pub const SENTENCE_MAX: usize = 2048;
/// Most errors of a chain that are named.
const CAUSES_MAX: usize = 16;

/// The error and its causes in one sentence, each said once, printable and at most [`SENTENCE_MAX`] bytes.
///
/// It quotes neither the body of a response nor a value in one, because other people's objects hold secrets. What serde and
/// kube's client quote is replaced by what kind of error it is, also where an error repeats the words of its cause.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut chain = vec![error];
    let mut last = error;
    while let Some(cause) = last.source().filter(|_| chain.len() < CAUSES_MAX) {
        chain.push(cause);
        last = cause;
    }
    let mut parts: Vec<Cause> = Vec::new();
    for error in chain.into_iter().rev() {
        parts.push(Cause::of(error, parts.last()));
    }
    let mut sentence = String::new();
    for Cause { words, .. } in parts.iter().rev() {
        if sentence.is_empty() {
            sentence.clone_from(words);
        } else if !sentence.contains(words.as_str()) {
            sentence = format!("{sentence}: {words}");
        }
    }
    printable(&sentence, SENTENCE_MAX).into_owned()
}

/// Returns what the API server says in a Status, printable and at most [`SENTENCE_MAX`] bytes. If the answer was none, and so
/// its message is the whole body, another sentence. An object that a message quotes, as when the API server cannot take back
/// what it has stored, is left out.
pub fn status_message(status: &Status) -> Cow<'_, str> {
    if status.reason == MADE_UP {
        return Cow::Owned(format!(
            "the answer has code {} and is not a Status",
            status.code
        ));
    }
    let message = &status.message;
    // As text, and within a text that is quoted.
    let object = ["{\"", "{\\\""]
        .iter()
        .filter_map(|begins| message.find(begins))
        .min();
    match object.map(|at| (at, message.rfind('}').unwrap_or(message.len()).max(at))) {
        Some((from, to)) => {
            let rest = format!("{}{{…{}", &message[..from], &message[to..]);
            Cow::Owned(printable(&rest, SENTENCE_MAX).into_owned())
        }
        None => printable(message, SENTENCE_MAX),
    }
}

/// The message of one error of a chain.
struct Cause {
    words: String,
    /// Its own words, and what takes their place.
    instead: Vec<(String, String)>,
}

impl Cause {
    fn of(error: &(dyn Error + 'static), cause: Option<&Self>) -> Self {
        let own = error.to_string();
        if let Some(error) = error.downcast_ref::<serde_json::Error>() {
            let words = Unreadable::from(error).to_string();
            return Self {
                instead: vec![(own, words.clone())],
                words,
            };
        }
        let boxed = error.downcast_ref::<Box<Status>>().map(AsRef::as_ref);
        if let Some(status) = boxed.or_else(|| error.downcast_ref()) {
            let words = status_message(status).into_owned();
            // kube's error says it twice: in words, and as Rust writes a struct.
            let code = status.code.to_string();
            return Self {
                instead: vec![(format!("{status:?}"), code), (own, words.clone())],
                words,
            };
        }
        let instead = cause.iter().flat_map(|cause| &cause.instead);
        let words = instead.fold(own.clone(), |words, (theirs, instead)| {
            words.replace(theirs, instead)
        });
        Self {
            instead: vec![(own, words.clone())],
            words,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
