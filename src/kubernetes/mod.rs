//! The Kubernetes API: clients, objects, watches, Leases, Events, and the state of this work.

pub(crate) mod apply;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod events;
mod health;
pub(crate) mod leader;
pub(crate) mod lease;
pub(crate) mod seen;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use apply::Applied;
pub(crate) use error::ControlError;
pub(crate) use error::api_error;
pub(crate) use health::Health;
pub(crate) use write::{Malformed, ObjectName};
