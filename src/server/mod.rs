//! Listeners, connections and HTTP.
//!
//! ```text
//! accept ── connection_limiter ── timeout_stream ── proxy_protocol ── handshake ── HTTP/1.1
//! listener.rs                                                      handshake.rs connection.rs
//!
//! HTTP/1.1 ─┬─ machines ── request_log ── machine_request ── Answers
//!           └─ administrators ── hosts ─┬─ shared_responses ── pages
//!                                       └─ events
//! ```
//!
//! A machine's request is judged, answered, recorded and responded to in one function, `machine_request::config`.
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
mod answer_body;
pub mod auth;
mod connection;
mod connection_limiter;
pub(crate) mod events;
mod handshake;
mod handshake_queue;
pub(crate) mod hosts;
mod limits;
pub(crate) mod listener;
mod machine_request;
pub mod machines;
mod node_failure;
mod outcome;
mod pool_name;
pub mod proxy_protocol;
pub(crate) mod readiness;
mod request_log;
mod send_buffer_limit;
mod shared_responses;
mod source_buckets;
pub mod state;
mod timeout_stream;

pub(crate) use crate::server::limits::Limits;
pub(crate) use crate::server::listener::{Listener, Serving};
pub(crate) use crate::server::proxy_protocol::Balancers;
