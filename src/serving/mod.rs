//! Turns inputs, records of tokens and keys into answers.

pub mod answers;
pub(crate) mod approvals;
pub mod awaited_pools;
pub(crate) mod certificates;
pub(crate) mod ledger;
pub mod live_reads;
pub(crate) mod overlays;
pub(crate) mod pipeline;
pub(crate) mod single_flight;
pub(crate) mod tls;
pub mod tokens;
