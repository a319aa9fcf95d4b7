//! Uses of a certificate's key, by the words of Kubernetes and cert-manager.
//!
//! RFC 5280 has two lists: key usage (section 4.2.1.3) and extended key usage (section 4.2.1.12).

use core::str::FromStr;

use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
use x509_parser::asn1_rs::{FromDer as _, Oid, ParseResult};
use x509_parser::extensions::KeyUsage;

/// A use of a key, by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage(&'static str);

/// A word for an unknown use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a known key usage")]
pub struct UnknownUsage(String);

/// Key usage, in the order of its bits.
const KEY: [(&str, KeyUsagePurpose); 9] = [
    ("digital signature", KeyUsagePurpose::DigitalSignature),
    ("content commitment", KeyUsagePurpose::ContentCommitment),
    ("key encipherment", KeyUsagePurpose::KeyEncipherment),
    ("data encipherment", KeyUsagePurpose::DataEncipherment),
    ("key agreement", KeyUsagePurpose::KeyAgreement),
    ("cert sign", KeyUsagePurpose::KeyCertSign),
    ("crl sign", KeyUsagePurpose::CrlSign),
    ("encipher only", KeyUsagePurpose::EncipherOnly),
    ("decipher only", KeyUsagePurpose::DecipherOnly),
];

/// Extended key usage, with its object identifiers.
const EXTENDED: [(&str, &[u64]); 12] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

const SAME: [(&str, &str); 2] = [("signing", "digital signature"), ("s/mime", "email protection")];

impl Usage {
    /// Signing data other than certificates.
    pub const DIGITAL_SIGNATURE: Self = Self("digital signature");
    /// Encrypting keys with it.
    pub const KEY_ENCIPHERMENT: Self = Self("key encipherment");
    /// Signing certificates (keyCertSign).
    pub const CERT_SIGN: Self = Self("cert sign");
    /// Signing certificate revocation lists.
    pub const CRL_SIGN: Self = Self("crl sign");
    /// Authenticating a TLS server.
    pub const SERVER_AUTH: Self = Self("server auth");
    /// Authenticating a TLS client.
    pub const CLIENT_AUTH: Self = Self("client auth");

    /// Returns `true` if it is an extended key usage.
    pub fn is_extended(self) -> bool {
        EXTENDED.iter().any(|(word, _)| *word == self.0)
    }

    pub(super) fn key_usage(self) -> Option<KeyUsagePurpose> {
        let mut known = KEY.iter();
        known.find(|(word, _)| *word == self.0).map(|(_, purpose)| *purpose)
    }

    pub(super) fn extended_key_usage(self) -> Option<ExtendedKeyUsagePurpose> {
        let (_, identifier) = EXTENDED.iter().find(|(word, _)| *word == self.0)?;
        Some(ExtendedKeyUsagePurpose::Other(identifier.to_vec()))
    }

    /// Uses in a key usage extension.
    pub(super) fn of_key_usage(usage: &KeyUsage) -> impl Iterator<Item = Self> {
        let flags = usage.flags;
        let bits = KEY.iter().enumerate().filter(move |(bit, _)| flags >> bit & 1 == 1);
        bits.map(|(_, (word, _))| Self(word))
    }

    /// Uses in the value of an extended key usage extension, or the object identifier of an unknown one.
    pub(super) fn of_extended(value: &[u8]) -> Result<Vec<Self>, String> {
        let listed: ParseResult<'_, Vec<Oid<'_>>> = Vec::from_der(value);
        let (_, listed) = listed.map_err(|_| "that cannot be read".to_owned())?;
        let usage = |identifier: &Oid<'_>| {
            let is_it = |known: &[u64]| Oid::from(known).is_ok_and(|known| known == *identifier);
            let known = EXTENDED.iter().find(|(_, known)| is_it(known));
            known.map(|(word, _)| Self(word)).ok_or_else(|| identifier.to_id_string())
        };
        listed.iter().map(usage).collect()
    }
}

impl FromStr for Usage {
    type Err = UnknownUsage;

    fn from_str(text: &str) -> Result<Self, UnknownUsage> {
        let same = SAME.iter().find(|(word, _)| *word == text).map_or(text, |(_, same)| same);
        let key = KEY.iter().map(|(word, _)| *word);
        let mut known = key.chain(EXTENDED.iter().map(|(word, _)| *word));
        known.find(|word| *word == same).map(Self).ok_or_else(|| UnknownUsage(text.to_owned()))
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one_list_s_and_some_words_mean_the_same() {
        let words = KEY.iter().map(|(word, _)| *word).chain(EXTENDED.iter().map(|(word, _)| *word));
        for word in words {
            let usage: Usage = word.parse().unwrap();
            assert_eq!(usage.is_extended(), usage.key_usage().is_none(), "{word}");
            assert_eq!(usage.is_extended(), usage.extended_key_usage().is_some(), "{word}");
            assert_eq!(usage.to_string(), word);
        }
        assert_eq!("signing".parse(), Ok(Usage::DIGITAL_SIGNATURE));
        assert_eq!("s/mime".parse::<Usage>().unwrap().to_string(), "email protection");
        assert!("Server Auth".parse::<Usage>().is_err());
    }
}
