//! What there is to see of the certificates, for administrators.

use std::sync::{Arc, Mutex, PoisonError};

use crate::pki::{Certificate, CertificateState, Holder};

/// The chain that is served, and everybody who may have to trust it. Shared by the controller, and those
/// who tell.
#[derive(Debug, Clone, Default)]
pub struct Shown(Arc<Mutex<Trust>>);

/// Public halves only.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What is served, leaf first.
    pub chain: Vec<Certificate>,
    /// The pointer configs to which certificates matter.
    pub holders: Vec<Holder>,
}

impl Shown {
    pub(super) fn set(&self, state: &CertificateState) {
        let holders = state.pointers.iter().filter_map(|pointer| pointer.holder.clone()).collect();
        let trust = Trust { chain: state.chain(), holders };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    /// As it was seen last.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
