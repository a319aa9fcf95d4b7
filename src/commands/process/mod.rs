//! Signals, tasks, terminals, the service manager and the Lease: parts of every long-running process and of commands on a terminal.

pub(crate) mod leader_elected;
pub(crate) mod progress;
pub(crate) mod service_manager;
pub(crate) mod signals;
pub(crate) mod tasks;
pub(crate) mod terminal;
