//! Whether a server is ready, and what it says to whom.
//!
//! Whoever asks on a port for machines may be a stranger: it is told which pool or object is not as
//! it should be, in which field, and nothing that is in one. The rest is for administrators, whose listener has it.

use axum::response::Response;
use http::StatusCode;

use super::answer;

/// What is told, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// What keeps it from being ready.
    pub not_ready: Vec<String>,
    /// What an administrator should know all the same.
    pub degraded: Vec<String>,
}

impl Readiness {
    /// 200, or 503 where something keeps it from being ready, with all lines.
    #[must_use]
    pub fn response(mut self) -> Response {
        let is_ready = self.not_ready.is_empty();
        self.not_ready.append(&mut self.degraded);
        let text: String = self.not_ready.into_iter().map(|line| line + "\n").collect();
        if is_ready {
            return answer::text(StatusCode::OK, text);
        }
        answer::soon(text)
    }
}
