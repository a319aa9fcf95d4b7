//! Public state of the certificates, for the administrators' page.

use pki::{Certificate, CertificateState, Lockout, TrustHolder};
use tokio::sync::watch;

/// The served chain with all holders of trust, shared by the controller and its readers, and the number of its changes.
#[derive(Debug, Clone, Default)]
pub struct TrustSnapshot(watch::Sender<(u64, Trust)>);

/// Served chain, holders and faults, without private keys.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Served chain, leaf first.
    pub chain: Vec<Certificate>,
    /// Pointer configs that verify certificates.
    pub holders: Vec<TrustHolder>,
    pub faults: Vec<Lockout>,
}

impl Trust {
    pub fn of(state: &CertificateState) -> Self {
        let pointers = &state.pointers;
        Self {
            chain: state.chain(),
            holders: pointers.iter().flat_map(|pointer| pointer.holders.iter().cloned()).collect(),
            faults: pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned()).collect(),
        }
    }
}

impl TrustSnapshot {
    pub(in crate::certificates) fn set(&self, state: &CertificateState) {
        self.0.send_modify(|(changes, trust)| {
            *changes += 1;
            *trust = Trust::of(state);
        });
    }

    pub fn trust(&self) -> Trust {
        self.0.borrow().1.clone()
    }

    /// A counter of reads of the cluster.
    pub fn changes(&self) -> u64 {
        self.0.borrow().0
    }
}
