//! Background tasks of a process.

use anyhow::anyhow;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Tasks that run forever. They are aborted when the value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Tasks(JoinSet<&'static str>);

impl Tasks {
    /// Starts a task; `what` begins a sentence like "… ended unexpectedly". Must be called within a runtime.
    pub(crate) fn spawn(
        &mut self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.spawn(async move {
            task.await;
            what
        });
    }

    /// Waits until a task has ended, which is an error.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Ok(what)) => anyhow!("{what} ended unexpectedly"),
            Some(Err(error)) => anyhow!("a task ended unexpectedly: {error}"),
            None => std::future::pending().await,
        }
    }
}

/// Leaves a runtime's tasks to the end of the process. To wait for them would delay it; to shut the runtime down would make
/// a task that has just read files panic at its next timer, and the process end by that.
pub(crate) fn leave_to_exit(runtime: Runtime) {
    std::mem::forget(runtime);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_is_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("one that goes on", std::future::pending());
        tasks.spawn("the task that follows the inputs", std::future::ready(()));
        let error = tasks.ended().await.to_string();
        assert_eq!(error, "the task that follows the inputs ended unexpectedly");
    }
}
