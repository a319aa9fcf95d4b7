//! How much is searched, and what is passed over beyond it.

use std::fmt;

/// Of a larger file, so many bytes are searched.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// A line of more bytes is no configuration: of such a one, this much is looked at.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;
/// Texts within texts: a machine config within a file, with files of its own.
pub(super) const MAX_NESTED: usize = 4;
/// What may be unpacked within one text, in bytes.
pub(super) const MAX_UNPACKED_BYTES: u64 = 16 << 20;

/// What a search passes over, for its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PassedOver {
    /// The rest of a large file.
    Bytes,
    /// The rest of a long line.
    Line,
    /// Texts that are too far within others.
    Nested,
    /// What is compressed and too large.
    Packed,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => {
                write!(f, "searched for secrets in its first {} MiB alone", MAX_BYTES >> 20)
            }
            Self::Line => {
                let most = MAX_LINE_BYTES >> 10;
                write!(f, "searched for secrets in the first {most} KiB of each line alone")
            }
            Self::Nested => {
                write!(
                    f,
                    "searched for secrets no further than {MAX_NESTED} texts within each other"
                )
            }
            Self::Packed => {
                f.write_str("not searched for secrets where it unpacks to more than is looked at")
            }
        }
    }
}
