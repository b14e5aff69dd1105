//! What arrives of an answer, and how much of it may be in memory before it can be read.

use std::pin::Pin;

use futures::io::AsyncBufRead;
use kube::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

/// An object that has more bytes is large.
const LARGE: usize = 64 << 10;
/// So many large objects arrive at once. They are kept until they are complete, and are of 9 MB at most if etcd's limits are
/// the usual ones; anybody with a namespace can make those, and change hundreds of them at the same time.
const LARGE_AT_ONCE: usize = 2;

/// All readers of this process share it.
static ROOM: Semaphore = Semaphore::const_new(LARGE_AT_ONCE);

/// The body of an answer. What is not read waits at the API server.
pub(super) type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// The body of the answer to this request.
///
/// # Errors
/// The API server refuses, or cannot be reached.
pub(super) async fn body(client: Client, request: http::Request<Vec<u8>>) -> kube::Result<Body> {
    Ok(Box::pin(client.request_stream(request).await?))
}

/// Room for a large object that arrives.
#[derive(Debug, Default)]
pub(super) struct Room(Option<SemaphorePermit<'static>>);

impl Room {
    /// So many bytes wait until their object is complete. Ends once there is room for more of a large one.
    pub(super) async fn keep(&mut self, waiting: usize) {
        if waiting <= LARGE {
            self.0 = None;
        } else if self.0.is_none() {
            // Nobody closes it, so this is no error.
            self.0 = ROOM.acquire().await.ok();
        }
    }

    /// Is a large object arriving?
    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

/// Empties the buffer; of a large one nothing stays in memory.
pub(super) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(LARGE);
}
