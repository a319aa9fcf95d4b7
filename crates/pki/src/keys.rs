//! Generation of keys: the only place of this crate that uses randomness.
#![expect(clippy::disallowed_methods, reason = "what a key is made of")]

use rcgen::{KeyPair, RsaKeySize};

use super::reason::IssueError;

/// Algorithm and size of generated keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// ECDSA on P-256: small and fast, and every Ignition verifies it.
    #[default]
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
}

impl KeyAlgorithm {
    /// All algorithms, with the names that a flag takes.
    pub const ALL: [(&'static str, Self); 6] = [
        ("p256", Self::P256),
        ("p384", Self::P384),
        ("p521", Self::P521),
        ("rsa2048", Self::Rsa2048),
        ("rsa3072", Self::Rsa3072),
        ("rsa4096", Self::Rsa4096),
    ];

    /// Generates a key from the system's randomness.
    pub fn generate(self) -> Result<KeyPair, IssueError> {
        let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        Ok(match self {
            Self::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::P521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
            Self::Rsa2048 => rsa(RsaKeySize::_2048),
            Self::Rsa3072 => rsa(RsaKeySize::_3072),
            Self::Rsa4096 => rsa(RsaKeySize::_4096),
        }?)
    }
}
