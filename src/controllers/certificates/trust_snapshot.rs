//! Public state of the certificates, for the administrators' page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pki::{Certificate, CertificateState, Lockout, TrustHolder};

/// The served chain with all holders of trust, shared by the controller and its readers.
#[derive(Debug, Clone, Default)]
pub struct TrustSnapshot(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    trust: Trust,
    changes: u64,
}

/// Served chain, holders and faults, without private keys.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Served chain, leaf first.
    pub chain: Vec<Certificate>,
    /// Pointer configs that verify certificates.
    pub holders: Vec<TrustHolder>,
    /// Faults of pointer configs.
    pub faults: Vec<Lockout>,
}

impl TrustSnapshot {
    pub(super) fn set(&self, state: &CertificateState) {
        let holders = state.pointers.iter().flat_map(|pointer| pointer.holders.clone()).collect();
        let faults =
            state.pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned()).collect();
        let trust = Trust { chain: state.chain(), holders, faults };
        let mut seen = self.seen();
        seen.changes += 1;
        seen.trust = trust;
    }

    /// A copy of the last state.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.seen().trust.clone()
    }

    /// A counter of reads of the cluster.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.seen().changes
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
