//! Logs and metrics.

mod connections;
mod logs;
mod metrics;
mod occurrences;

pub use connections::ConnectionMetrics;
pub use logs::{Logs, Verbosity, init as init_logs};
pub use metrics::{Metrics, PoolLabel};
pub use occurrences::Occurrences;
