//! Files that other processes write too: bounded reads, atomic replacement, locks and watches.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

pub mod bounded;
pub mod error;
pub mod lock;
pub mod owners;
pub mod replace;
pub mod shared_watch;
pub mod stamp;
pub mod watch;
