//! Files that others may write too: read within bounds, replaced whole, locked, watched.

pub(crate) mod bounded;
pub(crate) mod lock;
pub(crate) mod owners;
pub mod replace;
pub(crate) mod stamp;
pub(crate) mod watch;
