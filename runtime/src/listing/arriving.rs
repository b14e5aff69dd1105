//! The objects of an answer, one by one, and how many large ones may be in memory before they can be read.

use super::cutter::Cutter;
use super::{LARGE, LATE, TIMEOUT, invalid};
use futures::AsyncBufReadExt as _;
use futures::io::AsyncBufRead;
use kube::core::Status;
use kube::{Client, Error};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::pin::Pin;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// This many large objects arrive at once. They are kept until they are complete, and are of 9 MB at most if etcd's limits are
/// the usual ones; anybody with a namespace can make those, and change hundreds of them at the same time.
const LARGE_AT_ONCE: usize = 2;

/// Room for large objects that arrive. All readers of this process share it.
static ROOM: Semaphore = Semaphore::const_new(LARGE_AT_ONCE);

/// The objects of an answer that arrives. What is not read waits at the API server.
pub(super) struct Arriving<T> {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    pub(super) cutter: Cutter,
    room: Option<SemaphorePermit<'static>>,
    found: VecDeque<T>,
    pub(super) count: usize,
}

impl<T: DeserializeOwned> Arriving<T> {
    /// The objects that `cutter` cuts out of the answer to this request.
    ///
    /// # Errors
    /// The API server refuses, or cannot be reached.
    pub(super) async fn of(
        client: Client,
        request: http::Request<Vec<u8>>,
        cutter: Cutter,
    ) -> kube::Result<Self> {
        let body = Box::pin(client.request_stream(request).await?);
        Ok(Self {
            body,
            cutter,
            room: None,
            found: VecDeque::new(),
            count: 0,
        })
    }

    /// The next object; `None` at the end. One that is not whole then is none.
    ///
    /// # Errors
    /// The connection broke, or something came that is no such object.
    pub(super) async fn next(&mut self) -> kube::Result<Option<T>> {
        while self.found.is_empty() {
            let arrived = self.body.fill_buf();
            let bytes = match self.room {
                // Others wait for the room.
                Some(_) => timeout(TIMEOUT, arrived).await.map_err(|_| invalid(LATE))?,
                None => arrived.await,
            };
            let bytes = bytes.map_err(Error::ReadEvents)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let length = bytes.len();
            self.cutter.cut(bytes, |object| {
                self.count += 1;
                self.found.push_back(read(object)?);
                Ok(())
            })?;
            self.body.consume_unpin(length);
            if self.cutter.waiting() <= LARGE {
                self.room = None;
            } else if self.room.is_none() {
                // Nobody closes it, so this is no error.
                self.room = ROOM.acquire().await.ok();
            }
        }
        Ok(self.found.pop_front())
    }
}

/// This object, or the error that stands in its place.
fn read<T: DeserializeOwned>(object: &[u8]) -> kube::Result<T> {
    serde_json::from_slice(object).map_err(|error| match serde_json::from_slice::<Status>(object) {
        Ok(status) => Error::Api(status.boxed()),
        Err(_) => Error::SerdeError(error),
    })
}
