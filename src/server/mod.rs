//! Listeners, connections and HTTP.
//!
//! ```text
//! accept ── connection_limiter ── timeout_stream ── proxy_protocol ── turn_stream ── TLS ── HTTP/1.1 ── layers ── auth ── machines ── Answers
//! listener.rs                                                        connection.rs            layers.rs auth.rs machines.rs
//!                                                                                hosts.rs ─┬─ renderings.rs ── administrators
//!                                                                                          └─ events.rs
//! ```
//!
//! Left of HTTP, before anything is parsed, connections are limited in number and time; right of it, axum handles
//! requests and answers.
//!
//! Status codes are a contract with Ignition: it retries after a network error and after every 5xx, and gives up for
//! good on anything else. Temporary causes are 5xx.

mod activity;
pub mod administrators;
#[cfg(test)]
mod allocations;
mod answer;
pub mod auth;
pub mod connection;
pub mod connection_limiter;
pub mod events;
pub mod hosts;
mod layers;
mod limits;
pub mod listener;
mod machine_request;
pub mod machines;
mod node_failure;
mod outcome;
mod pool_name;
pub mod proxy_protocol;
pub mod readiness;
mod renderings;
mod send_buffer_limit;
mod source_buckets;
mod timeout_stream;
mod tracked_body;
mod turn_stream;
mod turns;

pub use crate::server::limits::{ConnectionLimits, Limits};
pub use crate::server::listener::{Listener, Serving};
pub use crate::server::proxy_protocol::Balancers;
