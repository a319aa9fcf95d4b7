//! Tokens: those of pools and of single machines, while they are managed and used.

pub(crate) mod cache;
pub(crate) mod cluster;
pub(crate) mod directory;
pub(crate) mod issuer;
pub(crate) mod machine;
pub(crate) mod machine_reconciler;
pub mod named_machines;
#[cfg(test)]
mod orders;
pub(crate) mod reconciler;
pub(crate) mod unsaved_uses;
