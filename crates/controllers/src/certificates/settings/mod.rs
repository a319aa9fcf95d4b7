//! Settings of the cluster that certificates follow.

pub(crate) mod infrastructure;
pub(crate) mod key_algorithms;
