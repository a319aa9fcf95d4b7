//! Signals, tasks, terminals, the service manager and the Lease: parts of every long-running process and of commands on a
//! terminal, which also ask servers from one thread.

use std::io;

use tokio::runtime::Builder;

pub(crate) mod leader_elected;
pub(crate) mod progress;
pub(crate) mod service_manager;
pub(crate) mod signals;
pub(crate) mod tasks;
pub(crate) mod terminal;

/// Runs a command's task on the calling thread. A name lookup in progress is abandoned at the end.
pub(crate) fn block_on<T>(task: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(task);
    runtime.shutdown_background();
    Ok(result)
}
