//! Errors of controllers.

use pki::IssueError;

use crate::client::reason;
use crate::write::{Malformed, ObjectName};

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The API server refused, or is unreachable.
    #[error("{object}: {}", api_reason(error))]
    Api { object: ObjectName, error: kube::Error },
    /// An object is malformed, and nothing is derived from it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("the system has no randomness for a new token")]
    NoRandomness,
    #[error(
        "{0} has replicas and renders the pools: nothing is written; remove --render-pools or that operator"
    )]
    RenderedBy(ObjectName),
    #[error("{object}: other clients changed it {tries} times in a row; run the command again")]
    Contended { object: ObjectName, tries: usize },
    /// The plan does not settle.
    #[error("not finished after many steps")]
    Endless,
    /// A task that runs forever has ended.
    #[error("a watch for the {subject} ended: {reason}")]
    Ended {
        subject: &'static str,
        /// Reason, as far as it is known.
        reason: String,
    },
}

impl ControlError {
    /// Returns `true` if the API server judged the write, and refuses it until its inputs change: not if it is
    /// unreachable, in trouble, or does not authenticate the client.
    pub fn is_for_good(&self) -> bool {
        let Self::Api { error: kube::Error::Api(status), .. } = self else { return false };
        (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 409 | 429)
    }
}

/// Converts an error of the API about `object`, for `map_err`.
pub fn api_error(object: &ObjectName) -> impl FnOnce(kube::Error) -> ControlError {
    move |error| ControlError::Api { object: object.clone(), error }
}

/// The API server's message, or the reason why it is unreachable.
pub fn api_reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => reason(error),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_the_api_server_has_judged_is_refused_for_good_and_what_failed_is_not() {
        let object = ObjectName::secret("a", "b");
        let of = |code| {
            let status = Status { code, ..Status::default() };
            api_error(&object)(kube::Error::Api(status.boxed())).is_for_good()
        };
        for code in [400, 403, 413, 422] {
            assert!(of(code), "{code}");
        }
        for code in [0, 200, 401, 408, 409, 429, 500, 502, 503, 504] {
            assert!(!of(code), "{code}");
        }
        assert!(!ControlError::Endless.is_for_good());
    }
}
