//! How certificates are made.

use time::Duration;

use super::KeyAlgorithm;

/// Certificates are valid ten years of 365 days.
pub const VALIDITY: Duration = Duration::days(10 * 365);
/// They are renewed after eight such years.
pub const RENEWAL: Duration = Duration::days(8 * 365);
/// How certificates are made, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long a certificate is valid.
    pub validity: Duration,
    /// How long it is used before it is renewed.
    pub renewal: Duration,
    /// What kind of keys are made.
    pub algorithm: KeyAlgorithm,
}

impl Default for Policy {
    fn default() -> Self {
        Self { validity: VALIDITY, renewal: RENEWAL, algorithm: KeyAlgorithm::default() }
    }
}
