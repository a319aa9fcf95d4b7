//! The loop of reconcilers, waits, locks, parsers of flags, an HTTP client: the tools of all rooms.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

pub mod backoff;
pub mod flags;
pub mod hang;
pub mod http_client;
pub mod parallel;
pub mod pool_merges;
pub mod reconcile;
pub mod schedule;
pub mod sync;
