//! Why a controller could not bring things in order.

use super::write::{Malformed, ObjectName};
use crate::kube_client::reason;
use crate::pki::IssueError;

/// Why something is not in order.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The API server refused, or was not reached.
    #[error("{object}: {}", api_reason(error))]
    Api {
        /// The object that was read or written.
        object: ObjectName,
        /// What came back.
        error: kube::Error,
    },
    /// An object is not as it has to be, so that nothing may be made of it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A certificate cannot be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A token cannot be made.
    #[error("the system has no randomness for a new token")]
    NoRandomness,
    /// Others were faster each time.
    #[error("{object}: others changed it {tries} times in a row; run the command again")]
    Contended {
        /// The object that was to be changed.
        object: ObjectName,
        /// How often it was tried.
        tries: usize,
    },
    /// The plan finds no end.
    #[error("still not in order after many steps")]
    Endless,
    /// A task that runs for ever has ended.
    #[error("a watch for the {keeps} ended: {reason}")]
    Ended {
        /// What the task was needed for.
        keeps: &'static str,
        /// Why it ended, as far as is known.
        reason: String,
    },
}

/// For `map_err`: an answer of the API server about `object`.
pub(super) fn api_error(object: &ObjectName) -> impl FnOnce(kube::Error) -> ControlError {
    move |error| ControlError::Api { object: object.clone(), error }
}

/// What the API server says, or why it was not reached.
pub(super) fn api_reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => reason(error),
    }
}
