//! Waits, locks, parsers of flags, HTTP clients: the tools of all rooms.

pub(crate) mod backoff;
pub(crate) mod cmp_http;
pub(crate) mod flags;
pub(crate) mod hang;
pub(crate) mod http_client;
pub(crate) mod parallel;
pub(crate) mod pool_merges;
pub(crate) mod schedule;
pub(crate) mod sync;
