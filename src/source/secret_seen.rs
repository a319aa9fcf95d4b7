//! What is seen of one secret, wherever it is.

use model::objects::Secret;

/// What is seen of a secret.
#[derive(Debug)]
pub enum SecretSeen {
    /// It is there.
    Present(Secret),
    /// There is none of this name.
    Absent,
    /// It cannot be watched; trying again goes on.
    Unwatched {
        /// What the API server, or the way to it, says.
        reason: String,
        /// True if this server has not the right.
        is_forbidden: bool,
    },
}
