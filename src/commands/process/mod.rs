//! Signals, tasks, terminals and the Lease: parts of every long-running process and of commands on a terminal.

pub(crate) mod leader_elected;
pub(crate) mod progress;
pub(crate) mod signals;
pub(crate) mod tasks;
pub(crate) mod terminal;
