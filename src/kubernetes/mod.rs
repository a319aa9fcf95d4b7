//! The Kubernetes API: clients, single objects, Leases, Events, and how working with it goes.

pub(crate) mod apply;
pub mod client;
pub(crate) mod error;
pub(crate) mod events;
mod health;
pub mod leader;
pub(crate) mod lease;
pub(crate) mod write;

pub use apply::Applied;
pub use error::ControlError;
pub use health::Health;
pub use write::{Malformed, ObjectName};
