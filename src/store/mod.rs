//! Where decisions are written: files now, a cluster's objects by the same plans.

pub mod newest;
pub mod pointer_files;
pub mod readable;
pub mod state_directory;
pub mod state_error;
pub mod token_files;
pub mod unreadable;
