//! Registry credentials of new machines: parses them from Secrets, and merges those of a pool. The module does no I/O.
//!
//! ```text
//!  machine config's /var/lib/kubelet/config.json ─┐
//!  Secret for all pools ──────────────────────────┼─> one entry a registry, the lowest line's wins
//!  Secret of the pool's own ──────────────────────┘
//! ```
//!
//! - **The most specific source wins.** A rendered MachineConfig has a copy of the Secret from the time of rendering,
//!   so the Secret overrides it: replaced credentials would keep a machine from its first image. The pool's Secret
//!   overrides that for all pools.
//! - **Registries are independent.** An unusable entry does not affect the others, and its last good value stays: a
//!   machine without it would be stuck at its first pull, and Ignition does not fetch again.
//! - **Credentials are never shown.** Messages and `Debug` have registries and positions in a text, no contents of a
//!   Secret.

mod credentials;
mod file;
mod secrets;

pub use self::secrets::{POOL_ANNOTATION, RegistryCredentials, Unresolved, read};
pub use credentials::{Credential, Credentials, Entries, MalformedCredentials, Refused, Registry};
pub use file::{CredentialFile, Unmergeable, merged_file};

/// File in which kubelet, the container runtime and the first boot's image pull look for credentials.
pub const PATH: &str = "/var/lib/kubelet/config.json";
/// Default Secret, which an installer fills, as `NAMESPACE/NAME`.
pub const DEFAULT_SECRET: &str = "openshift-config/pull-secret";
