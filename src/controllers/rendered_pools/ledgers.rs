//! The boot ledgers of the servers: which MachineConfigs machines got.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

/// Asks the servers which MachineConfigs are in their boot ledgers, or says why not all of them answered.
pub type Ledgers = Box<dyn Fn() -> Answer + Send>;
/// An answer under way.
pub type Answer = Pin<Box<dyn Future<Output = Result<BTreeSet<String>, String>> + Send>>;

/// The same MachineConfigs are asked about so often.
const PAUSE: Duration = Duration::from_secs(600);

/// The ledgers, and what they were asked about last.
pub(super) struct Asked {
    ledgers: Option<Ledgers>,
    candidates: BTreeSet<String>,
    until: Instant,
}

impl Asked {
    pub(super) fn new(ledgers: Option<Ledgers>) -> Self {
        Self { ledgers, candidates: BTreeSet::new(), until: Instant::now() }
    }

    /// The MachineConfigs that machines got, where that has to be known: some of `candidates` are new, and are
    /// deleted if they are not among them.
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
