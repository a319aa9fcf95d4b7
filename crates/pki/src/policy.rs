//! Validity and key algorithm of issued certificates.

use time::Duration;

use super::keys::KeyAlgorithm;

/// Default validity: ten years of 365 days.
pub const VALIDITY: Duration = Duration::days(10 * 365);
/// Default age at renewal: eight years of 365 days.
pub const RENEWAL: Duration = Duration::days(8 * 365);
/// Settings for issued certificates.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Validity of a certificate.
    pub validity: Duration,
    /// Age at which a certificate is renewed.
    pub renewal: Duration,
    /// Algorithm of generated keys.
    pub algorithm: KeyAlgorithm,
}

impl Default for Policy {
    fn default() -> Self {
        Self { validity: VALIDITY, renewal: RENEWAL, algorithm: KeyAlgorithm::default() }
    }
}
