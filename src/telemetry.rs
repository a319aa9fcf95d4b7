//! Logs and metrics.

mod logs;
mod metrics;

pub use logs::{Logs, Verbosity, init as init_logs};
pub use metrics::{HandshakeFailure, Metrics, PoolLabel};
