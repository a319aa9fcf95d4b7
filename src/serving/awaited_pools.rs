//! Pools that machines ask for before a server has read all of them.
//!
//! Reading a large cluster takes seconds. A machine that asks meanwhile waits for its own pool only, which the source
//! reads ahead of the others.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use model::objects::is_object_name;
use tokio::sync::{Semaphore, mpsc, watch};

use super::pipeline::publish::ServedInputs;

/// Maximum wait of a machine. Then it gets 503, and asks again.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of machines that wait at a time; others get 503 at once.
const MAX_WAITING_MACHINES: usize = 256;

/// Requests for pools that are not read yet.
#[derive(Debug)]
pub struct AwaitedPools {
    requests: mpsc::Sender<String>,
    served: watch::Receiver<Option<Arc<ServedInputs>>>,
    waiting: Semaphore,
    /// Set once all pools were read: from then on nobody waits.
    all_read: OnceLock<()>,
}

impl AwaitedPools {
    /// Creates the requests, which end with the inputs in `served`, and their receiver.
    pub(crate) fn new(
        served: watch::Receiver<Option<Arc<ServedInputs>>>,
    ) -> (Self, mpsc::Receiver<String>) {
        let (requests, receiver) = mpsc::channel(MAX_WAITING_MACHINES);
        let waiting = Semaphore::new(MAX_WAITING_MACHINES);
        (Self { requests, served, waiting, all_read: OnceLock::new() }, receiver)
    }

    /// Waits until the pool is read, or all are, or for too long.
    pub(crate) async fn wait_for(&self, pool: &str) {
        if self.all_read.get().is_some()
            || !is_object_name(pool)
            || self.is_read(self.served.borrow().as_deref(), pool)
        {
            return;
        }
        // Neither is closed: they live as long as this value, and as the source.
        let Ok(_waiting) = self.waiting.try_acquire() else { return };
        if self.requests.send(pool.to_owned()).await.is_ok() {
            let mut served = self.served.clone();
            let is_read = served.wait_for(|served| self.is_read(served.as_deref(), pool));
            let _ = tokio::time::timeout(TIMEOUT, is_read).await;
        }
    }

    fn is_read(&self, served: Option<&ServedInputs>, pool: &str) -> bool {
        let Some(ServedInputs { inputs, .. }) = served else { return false };
        if !inputs.is_partial {
            self.all_read.get_or_init(|| ());
        }
        !inputs.is_partial || inputs.pools.contains_key(pool)
    }
}
