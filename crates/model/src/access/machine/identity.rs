//! Identity of a machine's object: what an approval is for.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::serde::rfc3339;

/// One first boot of one object with one content: a hash of the object's UID where it has one, of its `spec`, and of its
/// token in one arming. It is compared, and otherwise means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity(String);

impl Identity {
    /// The identity that these values make.
    pub(in crate::access) fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(HEXLOWER.encode(&hash.finalize()))
    }
}

/// An approval for processes that see it later: its time, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundApproval {
    /// Time at which it was given.
    #[serde(with = "rfc3339")]
    pub at: OffsetDateTime,
    /// The object that it was first seen with.
    pub identity: Identity,
}
