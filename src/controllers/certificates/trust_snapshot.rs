//! What there is to see of the certificates, for administrators.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pki::{Certificate, CertificateState, Holder, Lockout};

/// The chain that is served, and everybody who may have to trust it. Shared by the controller, and those
/// who tell.
#[derive(Debug, Clone, Default)]
pub struct TrustSnapshot(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    trust: Trust,
    changes: u64,
}

/// Public halves only.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What is served, leaf first.
    pub chain: Vec<Certificate>,
    /// The pointer configs to which certificates matter.
    pub holders: Vec<Holder>,
    /// What is wrong with pointer configs in themselves.
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

    /// As it was seen last.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.seen().trust.clone()
    }

    /// A number that grows each time that the cluster is looked at.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.seen().changes
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
