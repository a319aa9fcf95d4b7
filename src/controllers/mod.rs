//! The duties beside serving, on a cluster: observe, plan, apply, observe again.
//!
//! ```text
//!  watches ─wake─> observe ─> a value ─> plan ─> writes ─> apply ─┐
//!                     ^                 (pure)             (I/O)  │
//!                     └───────────────────────────────────────────┘
//! ```
//!
//! [`certificates`] keeps the certificates and the user data that trusts them, [`tokens`] the tokens
//! that user data carries, [`registry_ca`] the merged config map of the registries' CAs, [`rendered_pools`] what the MachineConfigs
//! of pools come to, [`issuer`] signs for others; all run in the same loop, `runtime`. Watches only
//! wake it; what is decided on is read anew each time, and every write has the version that was
//! read as its precondition. Whoever else writes the same objects comes first, and is seen by the
//! next look: nobody's change is lost, and the process may end after any write. What cannot be
//! understood is an error with the object's name, and nothing is written.

pub mod certificates;
pub mod issuer;
mod known;
mod refusals;
pub mod registry_ca;
pub mod rendered_pools;
mod runtime;
pub mod tokens;

use crate::kubernetes::{Applied, ControlError, ObjectName};

/// How often a command tries to change an object that others change at the same time. Each try that
/// fails is one of theirs that succeeded.
const MAX_TRIES: usize = 64;

/// Has `once` look at an object and change it, until nobody else has changed it in between.
///
/// # Errors
/// Those of `once`, or that others came first each time.
pub(crate) async fn until_applied<E: From<ControlError>>(
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

/// The namespace of the certificates, and of the active controller's Lease.
pub use model::objects::OPERATOR_NAMESPACE as NAMESPACE;
