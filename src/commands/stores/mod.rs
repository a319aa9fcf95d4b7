//! Stores of certificates, pointer configs and tokens for commands: a state directory, or a cluster.

pub(crate) mod certificate_texts;
pub(crate) mod cluster;
pub(crate) mod directory;
pub(crate) mod distrust;
pub(crate) mod exposure;
pub(crate) mod location;
pub(crate) mod state_store;
