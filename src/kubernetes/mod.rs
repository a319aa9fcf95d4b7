//! The Kubernetes API: clients, objects, watches, Leases, Events, and the state of this work.

pub(crate) mod apply;
pub mod client;
pub(crate) mod error;
pub(crate) mod events;
mod health;
pub mod leader;
pub(crate) mod lease;
pub(crate) mod watch;
pub(crate) mod write;

pub use apply::Applied;
pub use error::ControlError;
pub(crate) use error::api_error;
pub use health::Health;
pub use write::{Malformed, ObjectName};
