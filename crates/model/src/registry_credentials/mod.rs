//! Logins to image registries that new machines get: what a secret says, and which logins a pool's
//! machines have. Nothing here does I/O.
//!
//! ```text
//!  machine config's /var/lib/kubelet/config.json ─┐
//!  Secret for all pools ──────────────────────────┼─> one login a registry, the lowest line's wins
//!  Secret of the pool's own ──────────────────────┘
//! ```
//!
//! - **The later word wins.** A rendered machine config has a copy of the secret from when it was
//!   rendered, so the secret goes before it: a login that was replaced meanwhile would keep a
//!   machine from its first image. What is meant for one pool goes before what is meant for all.
//! - **One registry at a time.** A login that cannot be used takes nothing from the others, and what
//!   was good last stays: a machine without it would be stuck behind its first pull, and
//!   Ignition does not come back with a better config.
//! - **Nobody is told a login.** Registries are named, and positions in a text; what is in a secret
//!   is in no message and in no `Debug`.

mod credentials;
mod file;
mod secrets;

pub use credentials::{Credential, Credentials, Entries, MalformedCredentials, Refused, Registry};
pub use file::{CredentialFile, Unmergeable, merged_file};
pub use secrets::{POOL_ANNOTATION, RegistryCredentials, Unresolved, read};

/// Where kubelet, the container runtime and the first boot's image pull look for logins.
pub const PATH: &str = "/var/lib/kubelet/config.json";
/// The secret that an installer fills, by its namespace and name.
pub const DEFAULT_SECRET: &str = "openshift-config/pull-secret";
