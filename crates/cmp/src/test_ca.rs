//! A CA for tests that answers correctly.

use cmpv2::header::{PkiHeader, Pvno};
use der::asn1::{Any, OctetString};
use der::{Decode as _, Encode as _, Tag, TagNumber};
use pki::issue::{Signer, Validity, issue_ca, issue_serving};
use pki::{Certificate, Host, KeyAlgorithm, VALIDITY};
use rcgen::KeyPair;
use time::OffsetDateTime;
use time::macros::datetime;
use x509_cert::ext::pkix::name::GeneralName;

use super::message::{self, CertRep, CertResponse, CertifiedKeyPair, Kind, Message, StatusInfo};
use super::name::DirectoryName;
use super::protection::{Credential, Password};
use super::transaction::Settings;

pub(super) const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

pub(super) struct Ca {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
}

impl Ca {
    pub(super) fn new() -> Self {
        Self::with(KeyAlgorithm::P256)
    }

    pub(super) fn with(algorithm: KeyAlgorithm) -> Self {
        let key = algorithm.generate().unwrap();
        Self { certificate: issue_ca(&key, VALIDITY, NOW).unwrap(), key }
    }

    pub(super) fn name(&self) -> DirectoryName {
        DirectoryName::from_der(&self.certificate.subject_name).unwrap()
    }

    pub(super) fn issue(&self, key: &KeyPair) -> Certificate {
        let signer = Signer { certificate: &self.certificate, key: &self.key };
        let validity = Validity { begin: NOW, end: NOW + VALIDITY };
        let hosts: [Host; 1] = ["a.example.com".parse().unwrap()];
        issue_serving(key, &hosts, signer, validity).unwrap()
    }

    /// Credential of the CA, or of a client that it has certified.
    pub(super) fn credential(&self, key: KeyPair) -> Credential {
        Credential::Certificate { chain: vec![self.issue(&key)], key }
    }

    /// Answers a message, protected by `by`.
    pub(super) fn answer(
        &self,
        to: &[u8],
        kind: Kind,
        contents: &[u8],
        by: &Credential,
    ) -> Vec<u8> {
        let to = Message::read(to).unwrap();
        let algorithm = by.algorithm([7; 16], false).unwrap();
        let header = PkiHeader {
            pvno: Pvno::Cmp2000,
            sender: GeneralName::DirectoryName(self.name().0),
            recipient: to.header.sender.clone(),
            message_time: None,
            protection_alg: Some(algorithm.clone()),
            sender_kid: None,
            recip_kid: None,
            trans_id: to.header.trans_id.clone(),
            sender_nonce: OctetString::new([9; 16]).ok(),
            recip_nonce: to.header.sender_nonce.clone(),
            free_text: None,
            general_info: None,
        };
        let body = message::body(kind, contents).unwrap();
        let protected = message::protected_part(&header, &body).unwrap();
        let protection = by.protect(&protected, &algorithm).unwrap();
        message::protected_message(&protected, Some(&protection), by.certificates()).unwrap()
    }

    pub(super) fn certificates(&self, certificate: &Certificate) -> Vec<u8> {
        let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::N0 };
        let certificate = Any::new(tag, certificate.der()).unwrap();
        let status = StatusInfo { status: 0, text: None, failures: None };
        let certified =
            Some(CertifiedKeyPair { certificate, private_key: None, publication: None });
        let responses = vec![CertResponse { request_id: 0, status, certified, info: None }];
        let cas = Some(vec![Any::from_der(self.certificate.der()).unwrap()]);
        CertRep { cas, responses }.to_der().unwrap()
    }
}

pub(super) fn password() -> Credential {
    Credential::Password { secret: Password::new(b"a".to_vec()), reference: b"b".to_vec() }
}

pub(super) fn settings(credential: Credential, ca: &Ca) -> Settings {
    Settings {
        credential,
        recipient: None,
        expected_sender: None,
        trusted: vec![ca.certificate.clone()],
        allow_sha1: false,
        implicit_confirm: false,
    }
}
