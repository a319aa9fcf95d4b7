//! Keeps the registries' certificate authorities of a running node in step with the cluster's.
//!
//! ```text
//!  merged config map ─> entries ─┐
//!                                ├─> decide (pure) ─> folder: renames
//!  folder, list ────> present ───┘
//! ```
//!
//! - **Whose folder it is.** What was made here is on a list, which is written before anything is
//!   made and after it was removed, so that a process that dies at any point leaves nothing of its
//!   own that is not on the list. A folder that is not on it is somebody else's and is never
//!   touched; one that would be needed is reported. There is one exception, and it changes
//!   nothing in the folder: one that holds exactly what would be put there, and nothing else, is
//!   taken onto the list. That is how what Ignition wrote at the first boot comes to be kept.
//! - **Old or new, never neither.** A folder is put together beside its place and moved there
//!   whole; a file is replaced by a rename, and never deleted first.
//! - **No symbolic link** is followed, neither on the way to the folder nor in it. One that has
//!   taken the place of what was made here is replaced like any other drift.
//! - **Nothing is done when nothing has changed**: stamps are compared, and files are read only
//!   where a stamp is new, or long after.
//! - **Registry logins** are kept in the same way, where a flag asks for it: one file for all
//!   registries, in which each login is somebody's own. What was written here is on a list beside
//!   it, by its hash.
//! - A config map that is not there says nothing, and what is there is kept; so is a registry
//!   whose entry is spoilt. An empty map says that there are no authorities.

mod credential_keeper;
mod credential_list;
mod credential_plan;
mod decide;
mod follow;
mod follow_credentials;
mod health;
mod layout;
mod list;
mod open_directory;
mod reconciler;

pub use credential_keeper::{CredentialKeeper, CredentialReport};
pub use credential_plan::{
    CredentialAction, CredentialPlan, Entry, Written, decide_credential, plan_credentials,
};
pub use decide::{Action, File, Present, decide};
pub use follow::follow;
pub use follow_credentials::follow_credentials;
pub use health::Health;
pub use layout::Layout;
pub use reconciler::{Reconciler, Report};
