//! Reports of the state of certificates: log, events, the administrators' page.

pub(crate) mod report;
pub(crate) mod trust_snapshot;
