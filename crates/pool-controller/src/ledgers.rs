//! Boot ledgers of the servers, for the MachineConfigs that machines got.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

/// Asks the servers for the MachineConfigs in their boot ledgers. The error is the reason that one did not answer.
pub type Ledgers = Box<dyn Fn() -> BoxFuture<'static, Result<BTreeSet<String>, String>> + Send>;

/// Time between two requests for the same MachineConfigs.
const PAUSE: Duration = Duration::from_secs(600);

/// Ledgers, with the last request.
pub(super) struct LedgerQuery {
    ledgers: Option<Ledgers>,
    candidates: BTreeSet<String>,
    until: Instant,
}

impl LedgerQuery {
    pub(super) fn new(ledgers: Option<Ledgers>) -> Self {
        Self { ledgers, candidates: BTreeSet::new(), until: Instant::now() }
    }

    /// MachineConfigs that machines got. `None` if `candidates` for deletion are the same as shortly before.
    pub(super) async fn served(
        &mut self,
        candidates: &[&str],
    ) -> Option<Result<BTreeSet<String>, String>> {
        let ledgers = self.ledgers.as_ref().filter(|_| !candidates.is_empty())?;
        let are_known = candidates.iter().all(|name| self.candidates.contains(*name));
        if are_known && Instant::now() < self.until {
            return None;
        }
        let served = ledgers().await;
        self.candidates = candidates.iter().map(|name| (*name).to_owned()).collect();
        self.until = Instant::now() + PAUSE;
        Some(served)
    }
}
