//! The Kubernetes API: clients, objects, watches, Leases, Events, and the state of this work.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

pub mod apply;
pub mod client;
pub mod error;
pub mod events;
mod health;
pub mod leader;
pub(crate) mod lease;
pub mod seen;
pub mod watch;
pub mod write;

pub use apply::Applied;
pub use error::ControlError;
pub use error::api_error;
pub use health::Health;
pub use write::{Malformed, ObjectName};
