//! Protection of messages (RFC 4210 section 5.1.3): a MAC with a key derived from a password, or a signature.
//! Algorithms are those of RFC 9481 and, for old servers, SHA-1.

use aws_lc_rs::{digest, hmac};
use cmpv2::parameter::PbmParameter;
use der::asn1::{Any, Null, ObjectIdentifier, OctetString};
use der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512,
    ID_PASSWORD_BASED_MAC as PASSWORD_MAC, ID_RSASSA_PSS, ID_SHA_1 as SHA1, ID_SHA_256 as SHA256,
    ID_SHA_384 as SHA384, ID_SHA_512 as SHA512, SHA_256_WITH_RSA_ENCRYPTION,
    SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};
use der::oid::db::rfc6268::{
    ID_HMAC_WITH_SHA_256 as HMAC_SHA256, ID_HMAC_WITH_SHA_384 as HMAC_SHA384,
    ID_HMAC_WITH_SHA_512 as HMAC_SHA512,
};
use der::oid::db::rfc8410::ID_ED_25519;
use der::{Decode as _, Encode as _};
use pki::certificate::key_of;
use pki::{Certificate, untrusted};
use rcgen::{KeyPair, SigningKey as _};
use time::OffsetDateTime;
use x509_cert::ext::pkix::KeyUsage;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::error::{CmpError, ProtectionFault};
use super::message::Message;
use super::name::DirectoryName;

/// Other MACs (RFC 9481 section 6, RFC 9810 section 5.1.3.4): `id-PBMAC1`, `id-DHBasedMac`, `id-KemBasedMac`. Answers
/// with one of them are refused, and not taken for signed ones.
const OTHER_MACS: [ObjectIdentifier; 3] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.14"),
    ObjectIdentifier::new_unwrap("1.2.840.113533.7.66.30"),
    ObjectIdentifier::new_unwrap("1.2.840.113533.7.66.16"),
];
const HMAC_SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.8.1.2");
/// HMAC with SHA-1 under PKCS's object identifier.
const HMAC_WITH_SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.2.7");

/// Iterations of the hash over a password: the cost of a guess, and of each message.
const ITERATIONS: u64 = 10_000;
/// Accepted iterations of a server (RFC 4211 section 4.4 requires at least 100). The upper bound limits the CPU time
/// that a server can cause.
const ITERATIONS_TAKEN: core::ops::RangeInclusive<u64> = 100..=100_000;

/// A password that is known on both sides.
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// Wraps a password; its memory is cleared on drop.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl core::fmt::Debug for Password {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Secret that authenticates the client.
#[derive(Debug)]
pub enum Credential {
    /// A password and its reference.
    Password {
        /// The shared password.
        secret: Password,
        /// `senderKID`, empty where there is none.
        reference: Vec<u8>,
    },
    /// A certificate with its key.
    Certificate {
        /// The certificate first, then those that lead to a CA.
        chain: Vec<Certificate>,
        /// Private key of the first certificate.
        key: KeyPair,
    },
}

/// Reasons why a credential is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// The password is empty.
    #[error("the password is empty")]
    EmptyPassword,
    /// The PEM text has no certificate.
    #[error("has no certificate")]
    NoCertificate,
    /// The PEM text has no usable key.
    #[error("has no key")]
    NoKey,
    /// The key is not that of the first certificate.
    #[error("not the key of the first certificate")]
    OtherKey,
}

impl Credential {
    /// Reads a password from the contents of a file, without the newlines at its end.
    pub fn of_password(mut text: Vec<u8>, reference: &str) -> Result<Self, CredentialFault> {
        while text.ends_with(b"\n") || text.ends_with(b"\r") {
            text.pop();
        }
        if text.is_empty() {
            return Err(CredentialFault::EmptyPassword);
        }
        Ok(Self::Password { secret: Password::new(text), reference: reference.as_bytes().to_vec() })
    }

    /// Reads a certificate, followed by those that lead to its CA, and its key, in PEM.
    pub fn of_certificate(certificates: &[u8], key: &[u8]) -> Result<Self, CredentialFault> {
        let chain = Certificate::read_all(certificates);
        let own = chain.first().ok_or(CredentialFault::NoCertificate)?;
        let key = key_of(key).ok_or(CredentialFault::NoKey)?;
        if !own.matches(&key) {
            return Err(CredentialFault::OtherKey);
        }
        Ok(Self::Certificate { chain, key })
    }

    /// `senderKID`, by which the server finds the password or the certificate.
    pub(super) fn identifier(&self) -> Option<Vec<u8>> {
        let identifier = match self {
            Self::Password { reference, .. } => &reference[..],
            Self::Certificate { chain, .. } => chain.first()?.key_identifier(),
        };
        (!identifier.is_empty()).then(|| identifier.to_vec())
    }

    pub(super) fn subject(&self) -> Option<DirectoryName> {
        DirectoryName::from_der(&self.certificates().first()?.subject_name)
    }

    pub(super) fn issuer(&self) -> Option<DirectoryName> {
        DirectoryName::from_der(&self.certificates().first()?.issuer_name)
    }

    /// Certificates that are sent with a message.
    pub(super) fn certificates(&self) -> &[Certificate] {
        match self {
            Self::Password { .. } => &[],
            Self::Certificate { chain, .. } => chain,
        }
    }

    /// The protection's algorithm; a password is hashed with this salt.
    pub(super) fn algorithm(
        &self,
        salt: [u8; 16],
        by_sha1: bool,
    ) -> Result<AlgorithmIdentifierOwned, CmpError> {
        match self {
            Self::Password { .. } => Ok(password_algorithm(salt, by_sha1)?),
            Self::Certificate { key, .. } => signature_algorithm(key),
        }
    }

    /// The protection of `message` by `algorithm`, which is one of [`Credential::algorithm`].
    pub(super) fn protect(
        &self,
        message: &[u8],
        algorithm: &AlgorithmIdentifierOwned,
    ) -> Result<Vec<u8>, CmpError> {
        match self {
            Self::Password { secret, .. } => {
                let mac = PasswordMac::read(algorithm, true);
                let mac = mac.map_err(|fault| CmpError::Signing(fault.to_string()))?;
                Ok(hmac::sign(&mac.key(secret), message).as_ref().to_vec())
            }
            Self::Certificate { key, .. } => sign(key, message),
        }
    }
}

fn password_algorithm(salt: [u8; 16], by_sha1: bool) -> der::Result<AlgorithmIdentifierOwned> {
    let (owf, mac) = if by_sha1 { (SHA1, HMAC_SHA1) } else { (SHA256, HMAC_SHA256) };
    let algorithm = |oid| AlgorithmIdentifierOwned { oid, parameters: None };
    let parameters = PbmParameter {
        salt: OctetString::new(salt)?,
        owf: algorithm(owf),
        iteration_count: ITERATIONS,
        mac: algorithm(mac),
    };
    let parameters = Some(Any::encode_from(&parameters)?);
    Ok(AlgorithmIdentifierOwned { oid: PASSWORD_MAC, parameters })
}

/// Signature algorithm of a key (RFC 5758, RFC 8017, RFC 8410).
pub(super) fn signature_algorithm(key: &KeyPair) -> Result<AlgorithmIdentifierOwned, CmpError> {
    let known = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, ECDSA_WITH_SHA_256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ECDSA_WITH_SHA_384),
        (&rcgen::PKCS_ECDSA_P521_SHA512, ECDSA_WITH_SHA_512),
        (&rcgen::PKCS_RSA_SHA256, SHA_256_WITH_RSA_ENCRYPTION),
        (&rcgen::PKCS_ED25519, ID_ED_25519),
    ];
    let found = known.into_iter().find(|(algorithm, _)| key.algorithm() == *algorithm);
    let unknown = || CmpError::Signing("the kind of key is not supported".to_owned());
    let (algorithm, oid) = found.ok_or_else(unknown)?;
    let is_rsa = algorithm == &rcgen::PKCS_RSA_SHA256;
    Ok(AlgorithmIdentifierOwned { oid, parameters: is_rsa.then(|| Null.into()) })
}

pub(super) fn sign(key: &KeyPair, message: &[u8]) -> Result<Vec<u8>, CmpError> {
    key.sign(message).map_err(|error| CmpError::Signing(error.to_string()))
}

/// Derives a MAC key from a password (RFC 4210 section 5.1.3.1).
struct PasswordMac {
    parameters: PbmParameter,
    hash: &'static digest::Algorithm,
    mac: hmac::Algorithm,
}

impl PasswordMac {
    fn read(
        algorithm: &AlgorithmIdentifierOwned,
        allow_sha1: bool,
    ) -> Result<Self, ProtectionFault> {
        let unknown = |oid: ObjectIdentifier| ProtectionFault::Unknown(oid.to_string());
        let parameters = algorithm.parameters.as_ref().and_then(|it| it.decode_as().ok());
        let parameters: PbmParameter = parameters.ok_or_else(|| unknown(algorithm.oid))?;
        let (hash, mac) = (parameters.owf.oid, parameters.mac.oid);
        if !allow_sha1 && (hash == SHA1 || mac == HMAC_SHA1 || mac == HMAC_WITH_SHA1) {
            return Err(ProtectionFault::Sha1);
        }
        if !ITERATIONS_TAKEN.contains(&parameters.iteration_count) {
            return Err(ProtectionFault::Iterations(parameters.iteration_count));
        }
        let hash = hash_of(hash).ok_or_else(|| unknown(hash))?;
        let mac = match mac {
            HMAC_SHA1 | HMAC_WITH_SHA1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            HMAC_SHA256 => hmac::HMAC_SHA256,
            HMAC_SHA384 => hmac::HMAC_SHA384,
            HMAC_SHA512 => hmac::HMAC_SHA512,
            other => return Err(unknown(other)),
        };
        Ok(Self { parameters, hash, mac })
    }

    fn key(&self, password: &Password) -> hmac::Key {
        let mut salted = Zeroizing::new(password.0.to_vec());
        salted.extend_from_slice(self.parameters.salt.as_bytes());
        let mut key = digest::digest(self.hash, &salted);
        for _ in 1..self.parameters.iteration_count {
            key = digest::digest(self.hash, key.as_ref());
        }
        hmac::Key::new(self.mac, key.as_ref())
    }
}

fn hash_of(oid: ObjectIdentifier) -> Option<&'static digest::Algorithm> {
    Some(match oid {
        SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        SHA256 => &digest::SHA256,
        SHA384 => &digest::SHA384,
        SHA512 => &digest::SHA512,
        _ => return None,
    })
}

/// Protection that is accepted of an answer.
pub(super) struct ExpectedProtection<'a> {
    pub(super) credential: &'a Credential,
    /// Sender of the answer, if one is required.
    pub(super) sender: Option<&'a DirectoryName>,
    pub(super) trusted: &'a [Certificate],
    pub(super) allow_sha1: bool,
}

/// Checks a message's sender and protection against `expected`.
pub(super) fn verify(
    message: &Message<'_>,
    expected: &ExpectedProtection<'_>,
    now: OffsetDateTime,
) -> Result<(), ProtectionFault> {
    let (Some(algorithm), Some(protection)) = (&message.header.protection_alg, &message.protection)
    else {
        return Err(ProtectionFault::Missing);
    };
    let unknown = || ProtectionFault::Unknown(algorithm.oid.to_string());
    let bytes = message.protected().map_err(|_| unknown())?;
    let protection = protection.as_bytes().unwrap_or_default();
    let sender = match &message.header.sender {
        GeneralName::DirectoryName(name) => Some(DirectoryName(name.clone())),
        _ => None,
    };
    if algorithm.oid == PASSWORD_MAC {
        let Credential::Password { secret, .. } = expected.credential else {
            return Err(ProtectionFault::NoPassword);
        };
        // The password is secret: a message without a sender's name comes from the server too.
        let is_nameless = sender.as_ref().is_some_and(DirectoryName::is_empty);
        if let Some(name) = expected.sender
            && !is_nameless
        {
            is_from(sender.as_ref(), name)?;
        }
        let mac = PasswordMac::read(algorithm, expected.allow_sha1)?;
        return hmac::verify(&mac.key(secret), &bytes, protection)
            .map_err(|_| ProtectionFault::WrongMac);
    }
    if OTHER_MACS.contains(&algorithm.oid) {
        return Err(unknown());
    }
    if expected.trusted.is_empty() {
        return Err(ProtectionFault::NobodyTrusted);
    }
    let Some(name) = expected.sender else {
        return Err(ProtectionFault::NobodyExpected(reported(sender.as_ref())));
    };
    is_from(sender.as_ref(), name)?;
    let algorithm = algorithm.to_der().map_err(|_| unknown())?;
    let algorithm = Any::from_der(&algorithm).map_err(|_| unknown())?;
    let known = message.extra_certificates.iter().chain(expected.trusted);
    let mut named = known.filter(|certificate| {
        let subject = DirectoryName::from_der(&certificate.subject_name);
        subject.is_some_and(|subject| subject.is_same_as(name))
    });
    let signer = named
        .find(|certificate| certificate.has_signed(&bytes, algorithm.value(), protection))
        .ok_or_else(|| ProtectionFault::WrongSignature(name.to_string()))?;
    if !may_sign(signer) {
        return Err(ProtectionFault::KeyUsage(name.to_string()));
    }
    let chain: Vec<_> =
        core::iter::once(signer).chain(&message.extra_certificates).cloned().collect();
    untrusted(&chain, expected.trusted, now)
        .map_or(Ok(()), |it| Err(ProtectionFault::Untrusted(it)))
}

fn is_from(found: Option<&DirectoryName>, expected: &DirectoryName) -> Result<(), ProtectionFault> {
    if found.is_some_and(|found| found.is_same_as(expected)) {
        return Ok(());
    }
    Err(ProtectionFault::WrongSender { found: reported(found), expected: expected.clone() })
}

fn reported(name: Option<&DirectoryName>) -> String {
    match name {
        Some(name) if name.is_empty() => "nobody".to_owned(),
        Some(name) => name.to_string(),
        None => "a sender without a directory name".to_owned(),
    }
}

/// Returns `true` if a certificate allows signatures other than those of certificates: also if it has no key usage (RFC
/// 9483 section 3.2).
fn may_sign(certificate: &Certificate) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate.der());
    let usage = parsed.ok().map(|parsed| parsed.tbs_certificate.get::<KeyUsage>());
    match usage {
        Some(Ok(Some((_, usage)))) => usage.digital_signature(),
        Some(Ok(None)) => true,
        _ => false,
    }
}

/// Hash for the confirmation of a certificate, by its signature algorithm (RFC 4210 section 5.3.18). `None` if the
/// algorithm is unknown, weak, or names no hash.
pub(super) fn confirmation_hash(certificate: &Certificate) -> Option<Vec<u8>> {
    let parsed = x509_cert::Certificate::from_der(certificate.der()).ok()?;
    let hash = match parsed.signature_algorithm.oid {
        ECDSA_WITH_SHA_256 | SHA_256_WITH_RSA_ENCRYPTION => SHA256,
        ECDSA_WITH_SHA_384 | SHA_384_WITH_RSA_ENCRYPTION => SHA384,
        ECDSA_WITH_SHA_512 | SHA_512_WITH_RSA_ENCRYPTION => SHA512,
        ID_RSASSA_PSS => {
            let parameters = parsed.signature_algorithm.parameters?;
            parameters.decode_as::<PssParameters>().ok()?.hash?.oid
        }
        _ => return None,
    };
    let hash = hash_of(hash).filter(|hash| **hash != digest::SHA1_FOR_LEGACY_USE_ONLY)?;
    Some(digest::digest(hash, certificate.der()).as_ref().to_vec())
}

/// `RSASSA-PSS-params` (RFC 8017 appendix A.2.3).
#[derive(der::Sequence)]
struct PssParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    hash: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    mask: Option<Any>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    salt: Option<Any>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    trailer: Option<Any>,
}

#[cfg(test)]
mod tests;
