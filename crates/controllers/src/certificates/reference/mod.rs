//! The reference's controller: its names, and tests beside it.

#[cfg(test)]
pub(crate) mod beside;
pub(crate) mod names;
