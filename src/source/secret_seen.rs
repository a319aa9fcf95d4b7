//! State of a Secret, independent of its source.

use model::objects::Secret;

#[derive(Debug)]
pub enum SecretSeen {
    /// The present contents.
    Present(Secret),
    /// The Secret does not exist.
    Absent,
    /// The Secret cannot be watched; retries continue.
    Unwatched {
        /// Error of the API server or of the connection.
        reason: String,
        /// True if this server lacks the permission.
        is_forbidden: bool,
    },
}

impl SecretSeen {
    pub(crate) fn is_unwatched(&self) -> bool {
        matches!(self, Self::Unwatched { .. })
    }
}
