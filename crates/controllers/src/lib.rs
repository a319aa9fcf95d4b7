//! Controllers of a cluster: observe, plan, apply, observe again.
//!
//! ```text
//!  watches ─wake─> observe ─> a value ─> plan ─> writes ─> apply ─┐
//!                     ^                 (pure)             (I/O)  │
//!                     └───────────────────────────────────────────┘
//! ```
//!
//! [`certificates`] manages certificates and the CAs in user data, [`tokens`] the tokens in user data, [`machines`] the
//! tokens and user data of machines with names, [`registry_ca`] the merged ConfigMap of registry CAs, the crate
//! `pool-controller` the configurations of pools, and the crate `issuer` signs certificate requests; all run in the loop
//! of `runtime`.
//! Watches only wake it. Each look reads all inputs again, and every write has the version that was read as its
//! precondition. So no change of another client is lost, and the process can end after any write. A malformed object is
//! an error with its name, and nothing is written.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

pub mod certificates;
pub mod machines;
pub mod metadata_cache;
pub mod object_conditions;
pub mod registry_ca;
pub mod retries;
pub mod runtime;
pub mod tokens;

pub use self::runtime::run_controller;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kubernetes::apply::read;
use kubernetes::{Applied, ControlError, ObjectName};

/// Maximum number of attempts of a command to change a contended object. Each failed attempt means that another client
/// succeeded.
const MAX_TRIES: usize = 64;

/// Calls `once`, which reads an object and changes it, until there is no conflict.
///
/// # Errors
/// An error of `once`, or a conflict at every attempt.
pub async fn until_applied<E: From<ControlError>>(
    object: ObjectName,
    mut once: impl AsyncFnMut() -> Result<Applied, E>,
) -> Result<(), E> {
    for _ in 0..MAX_TRIES {
        if once().await? == Applied::Done {
            return Ok(());
        }
    }
    Err(ControlError::Contended { object, tries: MAX_TRIES }.into())
}

/// Reads a Secret in the namespace of the certificates.
pub async fn read_secret(client: &Client, name: &str) -> Result<Option<Secret>, ControlError> {
    read(client, &ObjectName::secret(NAMESPACE, name)).await
}

/// Namespace of the certificates, and of the leader's Lease.
pub use model::objects::OPERATOR_NAMESPACE as NAMESPACE;
