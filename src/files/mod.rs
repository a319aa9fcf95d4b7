//! Files that other processes write too: bounded reads, atomic replacement, locks and watches.

pub(crate) mod bounded;
pub(crate) mod error;
pub(crate) mod lock;
pub(crate) mod owners;
pub(crate) mod replace;
pub(crate) mod shared_watch;
pub(crate) mod stamp;
pub(crate) mod watch;
