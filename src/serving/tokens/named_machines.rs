//! Parts of serving that judge single machines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::access::approval::{ApprovedObject, BoundApprovals};
use model::access::machine::NamedMachine;
use model::access::{Refusal, ShownToken};
use model::objects::FirstBootMachines;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::cluster::ClusterTokens;
use super::directory::DirectoryTokens;
use crate::serving::approvals::MachineApprovals;
use crate::serving::overlays::Overlays;

/// Maximum number of threads that write to the disk. Those of a disk that hangs do not return, and all else needs threads too.
const MAX_WRITING: usize = 64;
/// Maximum wait for one of them: a request that waits holds memory.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Permits to write. The threads are those of the process.
static WRITING: Semaphore = Semaphore::const_new(MAX_WRITING);

/// Parts that requests and pages share with the pipeline. Where machines have no names there are approvals only.
#[derive(Debug, Clone, Default)]
pub struct NamedMachines {
    pub(crate) tokens: Option<MachineTokens>,
    pub(crate) overlays: Option<Arc<Overlays>>,
    pub(crate) approvals: Arc<MachineApprovals>,
}

/// Tokens of machines with their use, by where it is stored.
#[derive(Clone)]
pub(crate) enum MachineTokens {
    /// In a state directory.
    Directory(Arc<DirectoryTokens>),
    /// In the objects of a cluster.
    Cluster(Arc<ClusterTokens>),
}

impl std::fmt::Debug for MachineTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineTokens").finish_non_exhaustive()
    }
}

impl MachineTokens {
    /// Checks that a machine's token is open.
    pub(crate) async fn check(&self, shown: &ShownToken) -> Result<(), Refusal> {
        match self {
            Self::Directory(tokens) if tokens.is_open(shown) => Ok(()),
            Self::Directory(tokens) => {
                let (tokens, shown) = (Arc::clone(tokens), shown.clone());
                blocking(async move { tokens.check(&shown).await }).await
            }
            Self::Cluster(tokens) => tokens.check(shown).await,
        }
    }

    /// Records that an answer begins for `address`, before it returns the time since the start of the process.
    pub(crate) async fn begin(
        &self,
        shown: &ShownToken,
        address: IpAddr,
    ) -> Result<Duration, Refusal> {
        match self {
            Self::Directory(tokens) => {
                let (tokens, shown) = (Arc::clone(tokens), shown.clone());
                blocking(async move { tokens.begin(&shown, address).await }).await
            }
            Self::Cluster(tokens) => tokens.begin(shown, address).await,
        }
    }

    /// Records that an answer that began at `began` was delivered in full.
    pub(crate) fn mark_delivered(&self, shown: &ShownToken, began: Duration) {
        match self {
            Self::Directory(tokens) => tokens.mark_delivered(shown, began),
            Self::Cluster(tokens) => tokens.mark_delivered(shown, began),
        }
    }

    /// The object of a machine that is approved by its name.
    pub(crate) fn approved_object(
        &self,
        name: &str,
        machines: &FirstBootMachines,
    ) -> ApprovedObject {
        match self {
            Self::Directory(tokens) => tokens.approved_object(name, machines),
            Self::Cluster(tokens) => tokens.approved_object(name, machines),
        }
    }

    /// Approvals with what they are for, as another process has recorded them.
    pub(crate) fn recorded_approvals(&self) -> BoundApprovals {
        match self {
            Self::Directory(_) => BoundApprovals::new(),
            Self::Cluster(tokens) => tokens.recorded_approvals(),
        }
    }

    /// The machines by name, for people.
    pub(crate) fn list(&self) -> Vec<NamedMachine> {
        match self {
            Self::Directory(tokens) => tokens.list(),
            Self::Cluster(tokens) => tokens.list(),
        }
    }
}

/// Does what writes to the disk in a thread that may block.
///
/// # Errors
/// That of the work, or all threads that may write are busy.
async fn blocking<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    // The semaphore is never closed.
    let Ok(Ok(permit)) = timeout(MAX_WAIT, WRITING.acquire()).await else {
        return Err(Refusal::NotStored);
    };
    // It goes on if the client disconnects, and so its permit is for the work.
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        Handle::current().block_on(work)
    });
    // The task is not cancelled, and a panic ends the process.
    work.await.unwrap_or(Err(Refusal::NotStored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_keeps_some_threads_and_no_request_for_long() {
        let hangs = Arc::new(Semaphore::new(0));
        let written = || {
            let hangs = Arc::clone(&hangs);
            blocking(async move { hangs.acquire_owned().await.map_err(|_| Refusal::NotStored) })
        };
        let writing: Vec<_> = (0..MAX_WRITING).map(|_| tokio::spawn(written())).collect();
        while WRITING.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // No clock goes on by itself beside threads that block.
        let (refused, ()) =
            tokio::join!(blocking(async { Ok(()) }), tokio::time::advance(2 * MAX_WAIT));
        assert_eq!(refused, Err(Refusal::NotStored));
        hangs.add_permits(MAX_WRITING);
        for written in writing {
            drop(written.await.unwrap().unwrap());
        }
        assert_eq!(blocking(async { Ok(()) }).await, Ok(()));
    }
}
