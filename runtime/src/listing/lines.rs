//! The changes that a watch brings, one in each line.

use std::marker::PhantomData;

use futures::AsyncBufReadExt as _;
use kube::Error;
use kube::core::Status;
use serde::de::DeserializeOwned;

use super::body::{Body, Room, empty};
use super::{AnswerError, LONGEST, TIMEOUT, timeout};

/// The lines of an answer, each of them JSON of a `T`.
pub(super) struct Lines<T> {
    body: Body,
    line: Vec<u8>,
    room: Room,
    read: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    pub(super) fn of(body: Body) -> Self {
        Self { body, line: vec![], room: Room::default(), read: PhantomData }
    }

    /// The next line, or what is wrong with it; `None` at the end. One that is not whole then is none. If this is dropped
    /// before it is there, the next call goes on.
    pub(super) async fn next(&mut self) -> Option<kube::Result<T>> {
        loop {
            // What waits for room was consumed before.
            self.room.keep(self.line.len()).await;
            let arrived = self.body.fill_buf();
            let bytes = if self.room.is_kept() {
                // Others wait for the room.
                match timeout(TIMEOUT, arrived).await {
                    Ok(bytes) => bytes,
                    Err(_) => return Some(Err(AnswerError::Late.into())),
                }
            } else {
                arrived.await
            };
            let bytes = match bytes {
                Ok([]) => return None,
                Ok(bytes) => bytes,
                Err(error) => return Some(Err(Error::ReadEvents(error))),
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(bytes.len(), |end| end + 1);
            if self.line.len() + length > LONGEST {
                return Some(Err(AnswerError::TooLong.into()));
            }
            self.line.extend_from_slice(&bytes[..length]);
            self.body.consume_unpin(length);
            if end.is_some() {
                let read = (!self.line.trim_ascii().is_empty()).then(|| read(&self.line));
                empty(&mut self.line);
                self.room.keep(0).await;
                if let Some(read) = read {
                    return Some(read);
                }
            }
        }
    }
}

/// The change in this line, or the error that stands in its place.
fn read<T: DeserializeOwned>(line: &[u8]) -> kube::Result<T> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => Error::Api(status.boxed()),
        Err(_) => Error::SerdeError(error),
    })
}
