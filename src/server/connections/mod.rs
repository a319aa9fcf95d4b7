//! Connections, from the listener to HTTP: limited in number and time before anything is parsed.
//!
//! ```text
//! accept ── connection_limiter ── timeout_stream ── proxy_protocol ── handshake ── HTTP/1.1
//! listener.rs                                                      handshake.rs connection.rs
//! ```

mod activity;
pub(super) mod connection;
pub(super) mod connection_limiter;
mod handshake;
mod handshake_queue;
pub(super) mod limits;
pub(crate) mod listener;
pub mod proxy_protocol;
pub(super) mod send_buffer_limit;
mod timeout_stream;
