//! Keeps the registry CAs and registry credentials of a running node up to date with the cluster's.
//!
//! ```text
//!  ConfigMap or Secret ─> entries ─┐
//!                                  ├─> plan (pure) ─> list, renames, list
//!  files, list ─────────> present ─┘
//! ```
//!
//! - **Ownership.** A list names the directories that were created here. It is written before a directory is created
//!   and after it was removed, so that a process that dies leaves no unlisted directory. A directory that is not listed
//!   belongs to another party and is never changed; if its name is needed, it is reported. As the only exception, a
//!   directory with exactly the wanted files and no others is added to the list. This includes the directories that
//!   Ignition wrote at the first boot.
//! - **Atomic changes.** A directory is prepared under another name and renamed; a file is replaced by a rename, and
//!   never deleted first.
//! - **No symbolic link** is followed, neither in the path nor in the directory. A link that has replaced a created
//!   directory is replaced again, like any other change.
//! - **No work without a change**: stamps are compared, and files are read only if one of them is new, or after a long
//!   interval.
//! - **Registry credentials** are managed by the same reconciler, if a flag enables it: in one file for all registries,
//!   each entry has a separate owner. A list next to the file has the hashes of written entries.
//! - If the ConfigMap is missing, or an entry is undecodable, the present files are kept. An empty ConfigMap means that
//!   there are no CAs.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

mod credential_plan;
mod follow;
mod health;
mod layout;
mod list;
mod open_directory;
mod plan;
mod reconciler;
mod registry_ca_plan;
mod registry_cas;
mod registry_credentials;

pub use follow::{WatchedObject, follow, follow_credentials};
pub use health::Health;
pub use layout::Layout;
pub use reconciler::{Reconciler, Report};
pub use registry_cas::RegistryCas;
pub use registry_credentials::RegistryCredentials;
