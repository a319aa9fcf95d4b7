//! Protection of messages.

use aws_lc_rs::{digest, hmac, signature};
use cmpv2::parameter::PbmParameter;
use der::asn1::{Any, ObjectIdentifier, OctetString};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::encoding::oid;
use super::quirk::Quirk;

pub(super) const PASSWORD_MAC: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113533.7.66.13");
const SHA1: &str = "1.3.14.3.2.26";
const SHA256: &str = "2.16.840.1.101.3.4.2.1";
const HMAC_SHA1: &str = "1.3.6.1.5.5.8.1.2";
const HMAC_SHA256: &str = "1.2.840.113549.2.9";
const ECDSA_SHA256: &str = "1.2.840.10045.4.3.2";

pub(super) fn pbm(quirk: Quirk) -> PbmParameter {
    let algorithm = |text| AlgorithmIdentifierOwned { oid: oid(text), parameters: None };
    let (owf, mac) = if quirk == Quirk::Sha1 { (SHA1, HMAC_SHA1) } else { (SHA256, HMAC_SHA256) };
    let iteration_count = match quirk {
        Quirk::FewRounds => 99,
        Quirk::ManyRounds => 100_001,
        _ => 500,
    };
    let salt = OctetString::new(*b"salt").expect("octets");
    PbmParameter { salt, owf: algorithm(owf), iteration_count, mac: algorithm(mac) }
}

pub(super) fn protection(quirk: Quirk, by_password: bool) -> AlgorithmIdentifierOwned {
    if !by_password {
        return AlgorithmIdentifierOwned { oid: oid(ECDSA_SHA256), parameters: None };
    }
    let parameters = Some(Any::encode_from(&pbm(quirk)).expect("DER"));
    AlgorithmIdentifierOwned { oid: PASSWORD_MAC, parameters }
}

pub(super) fn password_mac(secret: &str, parameters: &PbmParameter, message: &[u8]) -> Vec<u8> {
    let (hash, mac) = match parameters.mac.oid.to_string().as_str() {
        HMAC_SHA1 => (&digest::SHA1_FOR_LEGACY_USE_ONLY, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        HMAC_SHA256 => (&digest::SHA256, hmac::HMAC_SHA256),
        other => panic!("a MAC by {other}"),
    };
    let hash = if parameters.owf.oid == oid(SHA256) { &digest::SHA256 } else { hash };
    let mut key = [secret.as_bytes(), parameters.salt.as_bytes()].concat();
    for _ in 0..parameters.iteration_count {
        key = digest::digest(hash, &key).as_ref().to_vec();
    }
    hmac::sign(&hmac::Key::new(mac, &key), message).as_ref().to_vec()
}

/// All keys of these tests are on P-256.
pub(super) fn verify(key: &SubjectPublicKeyInfoOwned, message: &[u8], value: &[u8]) {
    let point = key.subject_public_key.as_bytes().expect("whole bytes");
    signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point)
        .verify(message, value)
        .expect("a good signature");
}
