//! Signatures that take long, apart from the threads that accept and answer.
//!
//! One by an RSA key takes a millisecond or some, in which the runtime's thread would do nothing else; one
//! by an elliptic curve takes less than it would cost to hand the thread's work over.

use std::sync::Arc;

use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use tokio::runtime::{Handle, RuntimeFlavor};

/// The same key, which signs beside the runtime's threads where that takes long.
pub(super) fn beside_workers(key: Arc<dyn SigningKey>) -> Arc<dyn SigningKey> {
    if key.algorithm() == SignatureAlgorithm::RSA { Arc::new(Slow(key)) } else { key }
}

#[derive(Debug)]
struct Slow<T>(T);

impl SigningKey for Slow<Arc<dyn SigningKey>> {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Slow(self.0.choose_scheme(offered)?)))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for Slow<Box<dyn Signer>> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let is_worker = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if is_worker {
            tokio::task::block_in_place(|| self.0.sign(message))
        } else {
            self.0.sign(message)
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}
