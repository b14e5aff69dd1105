//! Threads for what must not wait for other work, or must not hold it up.

use std::io;
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A thread with a tokio runtime of its own. When this is dropped, the thread ends, and its tasks with it.
#[derive(Debug)]
pub struct OwnThread {
    handle: Handle,
    /// Dropped with this; that ends the thread.
    _end: oneshot::Sender<()>,
}

impl OwnThread {
    /// Starts it; the operating system shows the name.
    ///
    /// # Errors
    /// The operating system refused a thread, or what a runtime needs.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // That the sender is gone is all there is to learn.
                let _ = runtime.block_on(ended);
                // A name that is being looked up does not hold it.
                runtime.shutdown_background();
            })?;
        Ok(Self { handle, _end: end })
    }

    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(task)
    }

    /// Makes something that belongs to the thread's runtime: a listener, or a client, whose connections are tasks there.
    pub fn make<T>(&self, make: impl FnOnce() -> T) -> T {
        let _guard = self.handle.enter();
        make()
    }
}
