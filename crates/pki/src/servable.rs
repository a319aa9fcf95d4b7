//! Checks that a server can load a pair and machines can read its chain. The server uses it before it serves a pair;
//! others before they take, restore or approve one.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;

use super::certificate::Certificate;
use super::reason::Unusable;

/// The certificates of a PEM text, in their order, if all of them are readable: by the server, which refuses a text
/// with a broken block, and by machines.
pub fn read_chain(pem: &[u8]) -> Result<Vec<Certificate>, Unusable> {
    let mut chain = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem) {
        let der = der.map_err(|_| Unusable::Malformed)?;
        let place = chain.len() + 1;
        let read = Certificate::parse(&der);
        chain.push(read.map_err(|malformed| Unusable::Refused { place, malformed })?);
    }
    Ok(chain)
}

/// The certificates of a chain, with a leaf whose critical extensions machines know.
pub fn sent_chain(pem: &[u8]) -> Result<Vec<Certificate>, Unusable> {
    let chain = read_chain(pem)?;
    let leaf = chain.first().ok_or(Unusable::NoCertificate)?;
    match &leaf.extensions.unknown_critical {
        Some(identifier) => Err(Unusable::CriticalExtension(identifier.clone())),
        None => Ok(chain),
    }
}

/// The first key of a PEM text, as the server loads it.
pub fn load_key(pem: &[u8], provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, Unusable> {
    let key = PrivateKeyDer::from_pem_slice(pem).ok();
    let loaded = key.and_then(|key| provider.key_provider.load_private_key(key).ok());
    loaded.ok_or_else(|| {
        if holds_encrypted_key(pem) {
            Unusable::Encrypted
        } else if String::from_utf8_lossy(pem).contains("PRIVATE KEY-----") {
            Unusable::UnsupportedKey
        } else {
            Unusable::NoKey
        }
    })
}

/// Returns `true` if a loaded key belongs to an encoded public key with its algorithm. A key that does not report its
/// public half passes; the handshake fails later if it is wrong.
pub fn belongs(key: &dyn SigningKey, key_info: &[u8]) -> bool {
    key.public_key().is_none_or(|public| public.as_ref() == key_info)
}

/// The chain of a pair, the leaf first, if the server can serve it and machines can read it.
pub(super) fn served(certificates: &[u8], key: &[u8]) -> Result<Vec<Certificate>, Unusable> {
    let chain = sent_chain(certificates)?;
    let leaf = chain.first().ok_or(Unusable::NoCertificate)?;
    if leaf.signing_fault().is_none() {
        return Err(Unusable::Ca);
    }
    let key = load_key(key, &rustls::crypto::aws_lc_rs::default_provider())?;
    if !belongs(&*key, &leaf.key_info) {
        return Err(Unusable::ForeignKey);
    }
    Ok(chain)
}

/// Returns `true` if a PEM block is a key with a passphrase (RFC 5958's form, or RFC 1421's header).
pub(super) fn holds_encrypted_key(pem: &[u8]) -> bool {
    let blocks = pem::parse_many(pem).unwrap_or_default();
    blocks.iter().any(|block| {
        block.tag() == "ENCRYPTED PRIVATE KEY"
            || block.headers().iter().any(|(name, _)| name == "Proc-Type")
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, IsCa, KeyPair};

    use super::*;
    use crate::go_x509::Malformed;
    use crate::issuer::IssuedCaFault;
    use crate::state::{External, StoredPair};

    fn pair(change: impl FnOnce(&mut CertificateParams)) -> StoredPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap().pem();
        StoredPair {
            certificates: certificate.into(),
            key: key.serialize_pem().into(),
            ..StoredPair::default()
        }
    }

    fn with_extension(identifier: &[u64], value: &[u8], is_critical: bool) -> StoredPair {
        pair(|params| {
            let mut more = CustomExtension::from_oid_content(identifier, value.to_vec());
            more.set_criticality(is_critical);
            params.custom_extensions = vec![more];
        })
    }

    /// Pairs that Go refuses, and that other parsers accept.
    #[test]
    fn what_machines_cannot_read_is_no_pair_to_serve() {
        let names: &[u64] = &[2, 5, 29, 17];
        for (name, identifier, value) in [
            ("subjectAltName", names, &b"\x30\x06\x86\x04::::"[..]),
            ("subjectAltName", names, b"\x30\x07\x87\x05\x7f\0\0\x01\0"),
            ("subjectAltName", names, b"\x30\x04\x82\x02\xc3\xa9"),
            ("authorityKeyIdentifier", &[2, 5, 29, 35], b"\x30\x02\x80\x14"),
            ("cRLDistributionPoints", &[2, 5, 29, 31], b"\x30\x03\x04\x01\0"),
            ("authorityInfoAccess", &[1, 3, 6, 1, 5, 5, 7, 1, 1], b"\x30\x03\x04\x01\0"),
            ("keyUsage", &[2, 5, 29, 15], b"\x03\x02\x07\x01"),
            ("certificatePolicies", &[2, 5, 29, 32], b"\x30\x03\x06\x01\x2a"),
        ] {
            let refused = Unusable::Refused { place: 1, malformed: Malformed::Extension(name) };
            let pair = with_extension(identifier, value, false);
            assert_eq!(pair.served_chain(), Err(refused.clone()), "{name}");
            let external = External {
                name: "somebody".to_owned(),
                pair: Some(pair.clone()),
                trust: Vec::new(),
            };
            assert_eq!(external.fault(), Some(refused.clone()), "{name}");
            // Behind a readable leaf it is as bad: machines read the whole chain first.
            let good = with_extension(&[1, 2, 3], b"\x05\0", false);
            let chain = [&good.certificates[..], &pair.certificates].concat();
            let refused = Unusable::Refused { place: 2, malformed: Malformed::Extension(name) };
            assert_eq!(read_chain(&chain), Err(refused), "{name}");
            assert!(good.served_chain().is_ok());
        }
    }

    #[test]
    fn only_critical_extensions_that_every_machine_knows_are_served() {
        for (identifier, value, is_good) in [
            (&[2, 5, 29, 32], &b"\x30\x05\x30\x03\x06\x01\x2a"[..], true),
            (&[2, 5, 29, 36], b"\x30\x03\x81\x01\0", false),
            (&[2, 5, 29, 54], b"\x02\x01\0", false),
        ] {
            let pair = with_extension(identifier, value, true);
            assert_eq!(pair.served_chain().is_ok(), is_good, "{identifier:?}");
            assert!(with_extension(identifier, value, false).served_chain().is_ok());
        }
    }

    #[test]
    fn a_key_is_the_one_that_the_server_loads() {
        let (good, other) = (pair(|_| {}), pair(|_| {}));
        let with_key = |key: &[u8]| StoredPair { key: key.to_vec(), ..good.clone() }.served_chain();
        assert!(with_key(&good.key).is_ok());
        assert_eq!(with_key(&other.key), Err(Unusable::ForeignKey));
        // The server takes the first key.
        let both = [&other.key[..], &good.key].concat();
        assert_eq!(with_key(&both), Err(Unusable::ForeignKey));
        assert_eq!(with_key(b""), Err(Unusable::NoKey));
        let broken = b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n";
        assert_eq!(with_key(broken), Err(Unusable::UnsupportedKey));
        let ca = pair(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        assert_eq!(ca.served_chain(), Err(Unusable::Ca));
        let cut = &good.certificates[..good.certificates.len() - 30];
        let cut = StoredPair { certificates: cut.to_vec(), ..good.clone() };
        assert!(cut.served_chain().is_err());
    }

    #[test]
    fn an_issuers_answer_that_machines_cannot_read_is_not_taken() {
        use crate::state::{Answer, Request};
        let bad = with_extension(&[2, 5, 29, 17], b"\x30\x06\x86\x04::::", false);
        let good = pair(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        let since = time::OffsetDateTime::UNIX_EPOCH;
        for (chain, roots) in [(&bad, &good), (&good, &bad)] {
            let (chain, roots) = (chain.certificates.clone(), roots.certificates.clone());
            let answer = Answer::Issued { chain, roots };
            let request = Request { key: good.key.clone(), since, before: 0, answer };
            let refused = request.granted(since).unwrap().err();
            assert!(
                matches!(refused, Some(IssuedCaFault::Unusable(Unusable::Refused { .. }))),
                "{refused:?}"
            );
        }
    }
}
