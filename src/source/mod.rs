//! Where inputs come from: a directory of manifests, or a cluster.
//!
//! A source reads, and publishes one immutable [`Inputs`](crate::inputs::Inputs) for each change. It is the only part
//! that does I/O for what is served; all that follows is a function of the value it published.

pub mod cluster;
pub mod directory;
mod files;
pub mod manifest;
pub mod watch;
