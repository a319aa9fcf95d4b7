//! The listeners and what they answer.
//!
//! ```text
//! accept ── limit ── timeout_stream ── TLS ── HTTP/1.1 ── routes ── Answers
//!   listener.rs      timeout_stream.rs  tls.rs   connection.rs  routes.rs
//! ```
//!
//! Status codes are a contract with Ignition: it asks again after a network error and after every
//! 5xx, and gives up for good on anything else. What may heal by itself is 5xx.

pub mod connection;
pub mod listener;
pub mod metrics_endpoint;
pub mod routes;
pub mod timeout_stream;
pub mod tls;
pub mod tls_policy;

pub use listener::{Listener, Serving};
pub use timeout_stream::Limits;
