//! Listeners, connections and HTTP.
//!
//! ```text
//! accept ── connection_limiter ── timeout_stream ── proxy_protocol ── handshake ── HTTP/1.1 ── layers ── machines ── Answers
//! listener.rs                                                      handshake.rs connection.rs   │    machines.rs
//!                                                                                               ├─ auth.rs
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
pub(crate) mod administrators;
#[cfg(test)]
mod allocations;
mod answer;
pub mod auth;
mod connection;
mod connection_limiter;
pub(crate) mod events;
mod handshake;
pub(crate) mod hosts;
mod layers;
mod limits;
pub(crate) mod listener;
mod machine_request;
pub mod machines;
mod node_failure;
mod outcome;
mod pool_name;
pub mod proxy_protocol;
pub(crate) mod readiness;
mod renderings;
mod send_buffer_limit;
mod source_buckets;
pub mod state;
mod timeout_stream;
mod tracked_body;
mod turns;

pub(crate) use crate::server::limits::Limits;
pub(crate) use crate::server::listener::{Listener, Serving};
pub(crate) use crate::server::proxy_protocol::Balancers;
