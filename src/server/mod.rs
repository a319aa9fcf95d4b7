//! Listeners, connections and HTTP.
//!
//! ```text
//! connections ── HTTP/1.1
//!
//! HTTP/1.1 ─┬─ machines ── request_log ── machine_request ── Answers
//!           └─ administrators ── hosts ─┬─ shared_responses ── pages
//!                                       └─ events
//! ```
//!
//! A machine's request is judged, answered, recorded and responded to in one function, `machine_request::config`.
//!
//! `connections` limits them in number and time, before anything of HTTP is parsed; axum handles requests and answers.
//!
//! Status codes are a contract with Ignition: it retries after a network error and after every 5xx, and gives up for
//! good on anything else. Temporary causes are 5xx.

pub(crate) mod administrators;
#[cfg(test)]
mod allocations;
mod answer;
mod answer_body;
pub mod auth;
pub mod connections;
mod machine_request;
pub mod machines;
mod node_failure;
mod outcome;
mod pool_name;
pub(crate) mod readiness;
mod request_log;
mod source_buckets;
pub mod state;

pub(crate) use crate::server::connections::limits::Limits;
pub(crate) use crate::server::connections::listener::{Listener, Serving};
pub(crate) use crate::server::connections::proxy_protocol::Balancers;
