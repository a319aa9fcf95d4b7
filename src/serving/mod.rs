//! Turns inputs, records of tokens and keys into answers.

mod access_faults;
pub mod answers;
pub(crate) mod approval_keeper;
pub(crate) mod approvals;
pub(crate) mod cluster_tokens;
mod cluster_use;
pub(crate) mod latest;
pub(crate) mod ledger_file;
pub mod live_reads;
pub(crate) mod machine_keeper;
pub(crate) mod machine_tokens;
pub mod named_machines;
pub(crate) mod overlays;
pub(crate) mod pair_secret;
pub(crate) mod peers;
pub(crate) mod pipeline;
pub(crate) mod pointer_writer;
pub(crate) mod publish;
pub(crate) mod serving_pair;
pub(crate) mod tls;
pub(crate) mod tls_policy;
pub(crate) mod token_cache;
pub(crate) mod token_issuer;
pub(crate) mod token_keeper;
mod token_set;
