//! Logs and metrics.

mod logs;
mod metrics;

pub use logs::{Logs, Verbosity, init as init_logs};
pub use metrics::{HandshakeFailure, Metrics, PoolLabel};

/// An error with its causes in one line; many libraries' say what happened only there.
#[must_use]
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let detail = error.to_string();
        if !text.contains(&detail) {
            text = format!("{text}: {detail}");
        }
        cause = error.source();
    }
    text.replace(['\n', '\r'], " ")
}
