//! Why a controller could not bring things in order.

use pki::IssueError;

use crate::kubernetes::client::reason;
use crate::kubernetes::write::{Malformed, ObjectName};

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
    /// Another controller has the job.
    #[error(
        "{0} has replicas and renders the pools: nothing is written. Remove --render-pools or that operator"
    )]
    RenderedBy(ObjectName),
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

impl ControlError {
    /// Whether the API server has judged the write and refuses it for as long as nobody changes what it
    /// judges by: not where it was not reached, is in trouble, or does not know who asks.
    pub(crate) fn is_for_good(&self) -> bool {
        let Self::Api { error: kube::Error::Api(status), .. } = self else { return false };
        (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 409 | 429)
    }
}

/// For `map_err`: an answer of the API server about `object`.
pub(crate) fn api_error(object: &ObjectName) -> impl FnOnce(kube::Error) -> ControlError {
    move |error| ControlError::Api { object: object.clone(), error }
}

/// What the API server says, or why it was not reached.
pub(crate) fn api_reason(error: &kube::Error) -> String {
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
