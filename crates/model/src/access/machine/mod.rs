//! Tokens of single machines: each opens the config of one pool for one machine, for a limited time.
//!
//! ```text
//!            an answer begins        it is delivered in full  the window passes
//!  armed ──────────────────> begun ───────────────────> taken ───────────────> spent
//!    ^                        │  the longest delivery passes                      │
//!    │                        └──────────────────────────────────────────────────>│
//!    └───────────────────────────── armed again by an administrator ──────────────┘
//! ```
//!
//! [`KnownMachines`] recognises a token; [`Usage`] decides if it is still open. A change of the usage is stored before
//! the answer that it is about goes out, so that a process that dies leaves no token that was used and is open for ever:
//! an answer that an earlier process began counts as taken.
//!
//! A token is judged in every mode of access, because it says who asks.

mod arming;
mod cluster_token;
mod directory_token;
mod identity;
mod in_use;
mod known;
mod named;
mod status;
mod usage;

pub use arming::{RearmRequests, TokenStep};
pub use cluster_token::{ClusterToken, UnsavedUse};
pub use directory_token::DirectoryToken;
pub use identity::{BoundApproval, Identity};
pub use in_use::TokenInUse;
pub use known::{KnownMachine, KnownMachines};
pub use named::{NamedMachine, TokenState};
pub use status::{MachineState, MachineStatus, RecordedUse};
pub(super) use usage::TOLERANCE;
pub use usage::{ClockReading, MAX_ADDRESSES, Stage, Usage, UsageChange, Use, Window};
