//! Readiness of a server, for machines and for administrators.
//!
//! The ports for machines are public: readiness there names the faulty pool or object and its field, and no contents.
//! Administrators get all details on their listener.

use axum::response::Response;
use http::StatusCode;

use super::answer;

/// Readiness with reasons, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Reasons why the server is not ready.
    pub not_ready: Vec<String>,
    /// Other faults for administrators.
    pub degraded: Vec<String>,
}

impl Readiness {
    /// The answer with all lines: 200, or 503 if the server is not ready.
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
