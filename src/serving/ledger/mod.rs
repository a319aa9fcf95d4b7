//! The boot ledger outside of this process: its file, and the ledgers of other servers.

pub(crate) mod file;
pub(crate) mod peers;
