//! Stores of decisions in a state directory. A cluster's objects are written by the same plans.

pub(crate) mod approval_files;
pub(crate) mod machine_files;
pub(crate) mod newest;
pub(crate) mod pointer_files;
pub(crate) mod readable;
pub(crate) mod rotation_requests;
pub(crate) mod state_directory;
pub(crate) mod state_error;
pub(crate) mod token_files;
pub(crate) mod upkeep;
