//! Readiness of a server, for machines and for administrators.
//!
//! The ports for machines are public: readiness there names the faulty pool or object and its field, and no contents.
//! Administrators get all details on their listener.

use axum::response::Response;
use http::StatusCode;
use telemetry::conditions::Status;

use super::answer;
use crate::serving::answers::{Answers, Refusal};

/// Readiness with reasons, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Readiness {
    /// Reasons why the server is not ready.
    pub(crate) not_ready: Vec<String>,
    /// Other faults for administrators.
    pub(crate) degraded: Vec<String>,
}

impl Readiness {
    /// Readiness of a process without answers, with all reasons.
    pub(crate) fn of_status(status: &Status) -> Self {
        let Status { out_of_service, not_ready, degraded } = status;
        let not_ready = [out_of_service.lines(), not_ready.lines()].concat();
        Self { not_ready, degraded: degraded.lines() }
    }

    /// Readiness of a server, with all reasons.
    pub(crate) fn of_server(status: &Status, answers: &Answers) -> Self {
        let Self { mut not_ready, mut degraded } = Self::of_status(status);
        not_ready.extend(answers.unready());
        degraded.extend(answers.exposed());
        degraded.extend(answers.warnings());
        Self { not_ready, degraded }
    }

    /// The same for unauthenticated clients.
    pub(crate) fn for_unauthenticated(status: &Status, answers: &Answers) -> Self {
        let Status { out_of_service, not_ready, degraded } = status;
        let things =
            [out_of_service.things(), not_ready.things(), answers.unready_for_unauthenticated()];
        Self { not_ready: things.concat(), degraded: degraded.things() }
    }

    /// Readiness for balancers and kubelet: ready if the server can serve machines. A pool that does not render does not
    /// take the server out of service for the others.
    pub(crate) fn in_service(status: &Status, answers: &Answers) -> Self {
        let mut not_ready = status.out_of_service.things();
        if !answers.have_inputs() {
            not_ready.push(Refusal::NotRead.to_string());
        }
        Self { not_ready, degraded: Vec::new() }
    }

    /// The answer with all lines: 200, or 503 if the server is not ready.
    pub(crate) fn response(mut self) -> Response {
        let is_ready = self.not_ready.is_empty();
        self.not_ready.append(&mut self.degraded);
        let text: String = self.not_ready.into_iter().map(|line| line + "\n").collect();
        if is_ready {
            return answer::text(StatusCode::OK, text);
        }
        answer::retry_later(text)
    }
}
