//! Checks received messages against the standard.

use aws_lc_rs::digest;
use cmpv2::header::PkiHeader;
use cmpv2::parameter::PbmParameter;
use crmf::controls::CertId;
use crmf::pop::ProofOfPossession;
use crmf::request::CertReqMessages;
use der::asn1::{BitString, Int, Null, OctetString};
use der::{Decode as _, Encode as _, Tagged as _};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::CertReq;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::encoding::{Confirmation, Raw, error, later, oid, refusal, sequence, status};
use super::protection::{PASSWORD_MAC, password_mac, verify};
use super::quirk::Quirk;
use super::{NONCE, Open, SECRET, Seen, Shared, lock};

const OLD_CERTIFICATE: &str = "1.3.6.1.5.5.7.5.1.5";
const ALTERNATIVE_NAME: &str = "2.5.29.17";
const EXTENSION_REQUEST: &str = "1.2.840.113549.1.9.14";

/// Contents of a certificate request.
pub(super) struct Wanted {
    pub(super) subject: Name,
    pub(super) key: SubjectPublicKeyInfoOwned,
    pub(super) names: Option<Extension>,
}

impl Shared {
    /// The answer to a message.
    pub(super) fn message(&self, bytes: &[u8]) -> Vec<u8> {
        let raw = Raw::from_der(bytes).expect("a message");
        let header_bytes = raw.header.to_der().expect("DER");
        let header = PkiHeader::from_der(&header_bytes).expect("a header");
        let protected = sequence(&[&header_bytes, &raw.body.to_der().expect("DER")]);
        let algorithm = header.protection_alg.as_ref().expect("a protection");
        let by_password = algorithm.oid == PASSWORD_MAC;
        if !by_password {
            self.is_signed(&raw, &header, &protected);
        } else if !has_password(&raw, &header, &protected) {
            let failed = status(2, &["another password"], &[0b0100_0000]);
            return self.write(&header, 23, &error(&failed), true);
        }
        assert_eq!(header.sender_nonce.as_ref().map(|nonce| nonce.as_bytes().len()), Some(16));
        let id = header.trans_id.as_ref().expect("an id").as_bytes().to_vec();
        let kind = raw.body.tag().number().value();
        let mut all = lock(&self.open);
        if matches!(kind, 0 | 4 | 7) {
            let open = Open { kind, ..Open::default() };
            assert!(all.insert(id.clone(), open).is_none(), "an id of its own");
        } else {
            let nonce = header.recip_nonce.as_ref().map(OctetString::as_bytes);
            assert_eq!(nonce, Some(NONCE), "our nonce comes back");
        }
        let open = all.get_mut(&id).expect("the transaction goes on");
        match kind {
            0 | 4 | 7 => {
                lock(&self.seen).push(Seen::Request { kind, by_password });
                open.first_nonce =
                    header.sender_nonce.as_ref().expect("a nonce").as_bytes().to_vec();
                open.issued = self.issue(&self.wanted(kind, raw.body.value()));
                self.first(&header, open, by_password)
            }
            24 => self.confirmed(&header, raw.body.value(), open, by_password),
            25 => self.polled(&header, open, by_password),
            other => panic!("a message of kind {other}"),
        }
    }

    fn is_signed(&self, raw: &Raw<'_>, header: &PkiHeader<'_>, protected: &[u8]) {
        let signer = raw.extra.as_ref().and_then(|extra| extra.first()).expect("a certificate");
        let signer = &signer.tbs_certificate;
        verify(&signer.subject_public_key_info, protected, protection_of(raw));
        assert_eq!(header.sender, GeneralName::DirectoryName(signer.subject.clone()));
        let serial = signer.serial_number.as_bytes().to_vec();
        assert!(lock(&self.serials).contains(&serial), "a certificate of another client");
    }

    fn confirmed(
        &self,
        header: &PkiHeader<'_>,
        contents: &[u8],
        open: &Open,
        by_password: bool,
    ) -> Vec<u8> {
        let confirmations: Vec<Confirmation> = Vec::from_der(contents).expect("confirmations");
        let [confirmed] = &confirmations[..] else { panic!("one certificate was asked for") };
        let hash = digest::digest(&digest::SHA256, &open.issued);
        assert_eq!(confirmed.hash.as_bytes(), hash.as_ref());
        // OpenSSL sends a status of acceptance; no status means acceptance too.
        let rejection = confirmed.status.as_ref().filter(|status| status.number != 0);
        lock(&self.seen).push(match rejection {
            Some(status) => Seen::Rejected(status.text.clone().unwrap_or_default().concat()),
            None => Seen::Confirmed,
        });
        if self.quirk() == Quirk::NeverConfirms {
            return self.write(header, 26, &later(), by_password);
        }
        self.write(header, 19, &Null.to_der().expect("DER"), by_password)
    }

    fn polled(&self, header: &PkiHeader<'_>, open: &mut Open, by_password: bool) -> Vec<u8> {
        lock(&self.seen).push(Seen::Poll);
        if self.quirk() == Quirk::Loses {
            return self.write(header, 23, &error(&refusal()), by_password);
        }
        open.polls += 1;
        let most = match self.quirk() {
            Quirk::Waits(most) | Quirk::WaitsByError(most) => most,
            Quirk::WaitsAgain => return self.first(header, open, by_password),
            _ => 1,
        };
        if open.polls <= most {
            return self.write(header, 26, &later(), by_password);
        }
        self.certificates(header, open, by_password)
    }

    fn wanted(&self, kind: u8, contents: &[u8]) -> Wanted {
        if kind == 4 {
            return wanted_by_csr(contents);
        }
        let requests = CertReqMessages::from_der(contents).expect("a request");
        let [request] = &requests[..] else { panic!("one certificate is asked for") };
        let template = request.cert_req.cert_template.clone();
        let key = template.subject_public_key_info.expect("a key");
        let Some(ProofOfPossession::Signature(proof)) = &request.popo else {
            panic!("no proof that the key is at hand")
        };
        let signed = request.cert_req.to_der().expect("DER");
        verify(&key, &signed, proof.signature.as_bytes().expect("whole bytes"));
        assert_eq!(request.cert_req.cert_req_id, Int::new(&[0]).expect("0"));
        if kind == 7 {
            let controls = request.cert_req.controls.as_ref().expect("controls");
            let old = controls.iter().find(|control| control.oid == oid(OLD_CERTIFICATE));
            let old: CertId = old.expect("an old one").value.decode_as().expect("an id");
            let serial = old.serial_number.as_bytes().to_vec();
            assert!(lock(&self.serials).contains(&serial), "what is renewed is ours");
        }
        let names = names_of(template.extensions.unwrap_or_default());
        Wanted { subject: template.subject.expect("a subject"), key, names }
    }
}

fn has_password(raw: &Raw<'_>, header: &PkiHeader<'_>, protected: &[u8]) -> bool {
    let algorithm = header.protection_alg.as_ref().expect("a protection");
    let parameters = algorithm.parameters.as_ref().expect("parameters");
    let parameters: PbmParameter = parameters.decode_as().expect("parameters");
    password_mac(SECRET, &parameters, protected) == protection_of(raw)
}

fn protection_of<'a>(raw: &'a Raw<'_>) -> &'a [u8] {
    raw.protection.as_ref().and_then(BitString::as_bytes).expect("whole bytes")
}

fn wanted_by_csr(contents: &[u8]) -> Wanted {
    let csr = CertReq::from_der(contents).expect("a PKCS #10 request");
    let attributes = csr.info.attributes.iter();
    let mut requested = attributes.filter(|it| it.oid == oid(EXTENSION_REQUEST));
    let extensions = requested.next().and_then(|it| it.values.get(0).cloned());
    let extensions: Vec<Extension> =
        extensions.map(|it| it.decode_as().expect("extensions")).unwrap_or_default();
    Wanted { subject: csr.info.subject, key: csr.info.public_key, names: names_of(extensions) }
}

fn names_of(extensions: Vec<Extension>) -> Option<Extension> {
    extensions.into_iter().find(|it| it.extn_id == oid(ALTERNATIVE_NAME))
}
