//! What every long-running process and every command on a terminal needs.

pub(crate) mod leader_elected;
pub(crate) mod progress;
pub(crate) mod signals;
pub(crate) mod tasks;
pub(crate) mod terminal;
