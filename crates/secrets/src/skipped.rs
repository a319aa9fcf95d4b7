//! Limits of the search, and the parts beyond them.

use std::fmt;

/// Maximum number of bytes searched in a file.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Maximum number of bytes searched in a line. No configuration has longer ones.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;
/// Maximum nesting of texts: a MachineConfig within a file, with its own files.
pub(super) const MAX_NESTED: usize = 4;
/// Maximum number of bytes unpacked within one text.
pub(super) const MAX_UNPACKED_BYTES: u64 = 16 << 20;

/// Parts that are not searched because of their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skipped {
    /// The rest of a large file.
    Bytes,
    /// The rest of a long line.
    Line,
    /// Texts that are nested too deeply.
    Nested,
    /// Compressed data that is too large.
    Packed,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => {
                write!(f, "only its first {} MiB were searched for secrets", MAX_BYTES >> 20)
            }
            Self::Line => {
                let most = MAX_LINE_BYTES >> 10;
                write!(f, "only the first {most} KiB of each line were searched for secrets")
            }
            Self::Nested => {
                write!(f, "only {MAX_NESTED} texts nested in each other were searched for secrets")
            }
            Self::Packed => {
                f.write_str("not searched for secrets where it unpacks to more than the limit")
            }
        }
    }
}
