//! Logs, metrics and readiness.

pub mod conditions;
mod connections;
mod controllers;
mod log_rate_limiter;
mod logs;
mod metrics;
mod reporting;

pub use connections::ConnectionMetrics;
pub use controllers::ControllerMetrics;
pub(crate) use controllers::log_attention;
pub use log_rate_limiter::LogRateLimiter;
pub use logs::{Logs, Verbosity, init as init_logs};
pub use metrics::{Metrics, PoolLabel};
pub use reporting::Reporting;
