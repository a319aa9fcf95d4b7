//! Stores of decisions in a state directory. A cluster's objects are written by the same plans.

pub mod approval_files;
pub mod machine_files;
pub mod newest;
pub mod pointer_files;
pub mod readable;
pub mod state_directory;
pub mod state_error;
pub mod token_files;
pub mod unreadable;
