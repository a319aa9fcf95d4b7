//! Encodes requests for certificates (RFC 4210 section 5.3.1 to 5.3.5, with the templates of RFC 4211).

use crmf::controls::CertId;
use crmf::pop::{PopoSigningKey, ProofOfPossession};
use crmf::request::{CertReqMessages, CertReqMsg, CertRequest, CertTemplate};
use der::asn1::{Any, BitString, Ia5String, Int, OctetString};
use der::oid::AssociatedOid as _;
use der::oid::db::rfc5912::ID_REG_CTRL_OLD_CERT_ID;
use der::{Decode as _, Encode as _};
use pki::{BadRequest, Certificate, Host, SigningRequest};
use rcgen::{KeyPair, PublicKeyData as _};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::error::CmpError;
use super::message::{Kind, body};
use super::name::DirectoryName;
use super::protection::{sign, signature_algorithm};

/// A request for a certificate.
#[derive(Clone, Copy)]
pub enum Request<'a> {
    /// A first certificate for a key (ir).
    First {
        /// Subject of the certificate.
        subject: &'a DirectoryName,
        /// Alternative names of the certificate.
        hosts: &'a [Host],
        /// Key pair of the certificate.
        key: &'a KeyPair,
    },
    /// A PKCS #10 request in DER, from another key's holder (p10cr).
    Signing(&'a [u8]),
    /// The same as an older certificate, for another key (kur).
    Renewal {
        /// Certificate to renew, whose key signs the message.
        old: &'a Certificate,
        /// Key pair of the new certificate.
        key: &'a KeyPair,
    },
}

/// Names and key of an encoded request, with the kind of its answer.
#[derive(Debug)]
pub(super) struct EncodedRequest {
    pub(super) answer: Kind,
    pub(super) subject: DirectoryName,
    /// Public key of the certificate with its algorithm, in DER.
    pub(super) key: Vec<u8>,
}

impl Request<'_> {
    /// Encodes the body of the message, and returns it after what the answer is compared with.
    pub(super) fn encode(self) -> Result<(EncodedRequest, Vec<u8>), CmpError> {
        Ok(match self {
            Self::First { subject, hosts, key } => {
                let names = alternative_names(hosts)?;
                let body = with_template(Kind::Ir, &subject.0, names, None, key)?;
                let (answer, key) = (Kind::Ip, key.subject_public_key_info());
                (EncodedRequest { answer, subject: subject.clone(), key }, body)
            }
            Self::Signing(csr) => {
                let SigningRequest { subject_name, key_info: key, .. } =
                    SigningRequest::from_der(csr).map_err(CmpError::Csr)?;
                let subject = DirectoryName::from_der(&subject_name);
                let subject = subject.ok_or(CmpError::Csr(BadRequest::Malformed))?;
                (EncodedRequest { answer: Kind::Cp, subject, key }, body(Kind::P10cr, csr)?)
            }
            Self::Renewal { old, key } => {
                let parsed = x509_cert::Certificate::from_der(old.der())?.tbs_certificate;
                let extensions = parsed.extensions.unwrap_or_default();
                let names = extensions.into_iter().find(|it| it.extn_id == SubjectAltName::OID);
                let issuer = GeneralName::DirectoryName(parsed.issuer);
                let control = CertId { issuer, serial_number: parsed.serial_number };
                let value = Any::encode_from(&control)?;
                let control = AttributeTypeAndValue { oid: ID_REG_CTRL_OLD_CERT_ID, value };
                let body = with_template(Kind::Kur, &parsed.subject, names, Some(control), key)?;
                let (subject, key) = (DirectoryName(parsed.subject), key.subject_public_key_info());
                (EncodedRequest { answer: Kind::Kup, subject, key }, body)
            }
        })
    }
}

fn alternative_names(hosts: &[Host]) -> der::Result<Option<Extension>> {
    if hosts.is_empty() {
        return Ok(None);
    }
    let name = |host: &Host| {
        Ok(match host {
            Host::Name(name) => GeneralName::DnsName(Ia5String::new(name)?),
            Host::Address(address) => GeneralName::from(*address),
        })
    };
    let names = hosts.iter().map(name).collect::<der::Result<_>>()?;
    let value = OctetString::new(SubjectAltName(names).to_der()?)?;
    Ok(Some(Extension { extn_id: SubjectAltName::OID, critical: false, extn_value: value }))
}

/// Encodes a request by template, with proof of possession of the key: a signature over the template (RFC 4211 section
/// 4.1).
fn with_template(
    kind: Kind,
    subject: &Name,
    names: Option<Extension>,
    control: Option<AttributeTypeAndValue>,
    key: &KeyPair,
) -> Result<Vec<u8>, CmpError> {
    let public_key = SubjectPublicKeyInfoOwned::from_der(&key.subject_public_key_info())?;
    let cert_template = CertTemplate {
        version: None,
        serial_number: None,
        signature: None,
        issuer: None,
        validity: None,
        subject: Some(subject.clone()),
        subject_public_key_info: Some(public_key),
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: names.map(|names| vec![names]),
    };
    let controls = control.map(|control| vec![control]);
    let cert_req = CertRequest { cert_req_id: Int::new(&[0])?, cert_template, controls };
    let signature = BitString::from_bytes(&sign(key, &cert_req.to_der()?)?)?;
    let proof = PopoSigningKey { poposk_input: None, alg_id: signature_algorithm(key)?, signature };
    let popo = Some(ProofOfPossession::Signature(Box::new(proof)));
    let messages: CertReqMessages = vec![CertReqMsg { cert_req, popo, reg_info: None }];
    Ok(body(kind, &messages.to_der()?)?)
}

#[cfg(test)]
mod tests {
    use pki::KeyAlgorithm;
    use rcgen::{CertificateParams, DnType};

    use super::*;

    #[test]
    fn a_request_is_accepted_with_every_kind_of_key_that_signs_it() {
        let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a");
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let keys = KeyAlgorithm::ALL.map(|(_, algorithm)| algorithm.generate().unwrap());
        for key in keys.iter().chain([&ed25519]) {
            let csr = params.serialize_request(key).unwrap();
            let (request, _) = Request::Signing(csr.der()).encode().unwrap();
            assert_eq!(request.key, key.subject_public_key_info(), "{:?}", key.algorithm());
            assert_eq!((request.answer, request.subject), (Kind::Cp, "CN=a".parse().unwrap()));
            let mut broken = csr.der().to_vec();
            *broken.last_mut().unwrap() ^= 1;
            let error = Request::Signing(&broken).encode().err().unwrap();
            assert!(matches!(error, CmpError::Csr(BadRequest::Signature)), "{error}");
        }
        let error = Request::Signing(b"?").encode().err().unwrap();
        assert!(matches!(error, CmpError::Csr(BadRequest::Malformed)), "{error}");
    }
}
