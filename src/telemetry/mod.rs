//! Logs, metrics and readiness.

pub mod conditions;
mod connections;
mod controllers;
mod logs;
mod metrics;
mod occurrences;
mod reporting;

pub use connections::ConnectionMetrics;
pub use controllers::ControllerMetrics;
pub use logs::{Logs, Verbosity, init as init_logs};
pub use metrics::{Metrics, PoolLabel};
pub use occurrences::Occurrences;
pub use reporting::Reporting;
