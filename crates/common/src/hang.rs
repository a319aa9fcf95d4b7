//! Work on files that may hang, as on a mount whose server is away.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Maximum wait for work that something else can take the place of.
pub const MAX_HANG: Duration = Duration::from_secs(2);

/// Does `work` on a thread. If it takes longer than [`MAX_HANG`], `instead` takes its place, unless that is `None`. The
/// thread goes on until its work is done.
pub fn unless_hung<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    instead: impl FnOnce() -> Option<T>,
) -> T {
    let (at_work, done) = channel::<()>();
    let worker = std::thread::spawn(move || {
        let result = work();
        drop(at_work);
        result
    });
    let is_hung = done.recv_timeout(MAX_HANG) == Err(RecvTimeoutError::Timeout);
    if is_hung && let Some(other) = instead() {
        return other;
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic))
}
