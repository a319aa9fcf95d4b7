//! Messages, as RFC 4210 section 5 and appendix F encode them.
//!
//! A message is protected as it was sent, byte for byte (section 5.1.3), so header and body are kept as they
//! came. Certificates likewise: a signature is over one encoding, and what is written again may be another.

use cmpv2::header::PkiHeader;
use der::asn1::{Any, AnyRef, BitString, Int, OctetString};
use der::{Decode as _, Encode as _, Sequence, Tag, TagNumber, Tagged as _};
use pki::Certificate;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// The kind of a message: the tag number of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Kind {
    /// Initialization request: a first certificate.
    Ir = 0,
    /// Answer to [`Kind::Ir`].
    Ip = 1,
    /// The answer to a PKCS #10 request.
    Cp = 3,
    /// PKCS #10 request.
    P10cr = 4,
    /// Key update request: a renewal.
    Kur = 7,
    /// Answer to [`Kind::Kur`].
    Kup = 8,
    /// Acknowledges a confirmation.
    PkiConf = 19,
    /// Reports an error.
    Error = 23,
    /// Accepts or rejects a certificate.
    CertConf = 24,
    /// Asks for the state of a request that waits.
    PollReq = 25,
    /// Answer to a poll while the request waits.
    PollRep = 26,
}

/// `PKIStatusInfo` (section 5.2.3).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct StatusInfo {
    pub status: u8,
    pub text: Option<Vec<String>>,
    /// Reasons, one bit each.
    pub failures: Option<BitString>,
}

impl StatusInfo {
    /// Rejects a certificate that differs from the request.
    pub fn bad_template(reason: String) -> der::Result<Self> {
        /// `badCertTemplate`, bit 19.
        const BAD_TEMPLATE: [u8; 3] = [0, 0, 0b0001_0000];
        let failures = Some(BitString::from_bytes(&BAD_TEMPLATE)?);
        Ok(Self { status: 2, text: Some(vec![reason]), failures })
    }
}

/// `ErrorMsgContent` (section 5.3.21).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct ErrorContent {
    pub status: StatusInfo,
    /// A number that means something to the server.
    pub code: Option<Int>,
    pub details: Option<Vec<String>>,
}

/// `CertRepMessage` (section 5.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct CertRep {
    /// Certificates of CAs.
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub cas: Option<Vec<Any>>,
    pub responses: Vec<CertResponse>,
}

/// `CertResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct CertResponse {
    pub request_id: i64,
    pub status: StatusInfo,
    pub certified: Option<CertifiedKeyPair>,
    /// Additional information, which is ignored.
    pub info: Option<OctetString>,
}

/// `CertifiedKeyPair`.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct CertifiedKeyPair {
    /// `CertOrEncCert`: the certificate within tag 0, or an encrypted one within tag 1.
    pub certificate: Any,
    /// A key that the CA made, encrypted.
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub private_key: Option<Any>,
    /// Publication information, which is ignored.
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub publication: Option<Any>,
}

/// `CertStatus` (section 5.3.18, and RFC 9480 section 2.10).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(super) struct CertStatus {
    pub(super) hash: OctetString,
    pub(super) request_id: i64,
    /// Reason for a rejection; `None` accepts the certificate.
    pub(super) status: Option<StatusInfo>,
    /// Algorithm of the hash, if the certificate's signature does not determine it.
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub(super) algorithm: Option<AlgorithmIdentifierOwned>,
}

/// One of `PollReqContent` (section 5.3.22).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(super) struct PollReq {
    pub(super) request_id: i64,
}

/// One of `PollRepContent`.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct PollRep {
    pub request_id: i64,
    /// Seconds until the next poll.
    pub check_after: i64,
    pub reason: Option<Vec<String>>,
}

/// A message's body, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Certificates, or why there are none.
    Certificates(Kind, CertRep),
    Confirmed,
    /// Requests that still wait.
    Later(Vec<PollRep>),
    Error(ErrorContent),
    Other,
}

/// `PKIMessage` (section 5.1), with header and body as they are encoded.
#[derive(Sequence)]
struct EncodedMessage<'a> {
    header: AnyRef<'a>,
    body: AnyRef<'a>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    protection: Option<BitString>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    extra_certificates: Option<Vec<Any>>,
}

/// `ProtectedPart` (section 5.1.3).
#[derive(Debug, Clone, Copy, Sequence)]
struct ProtectedPart<'a> {
    header: AnyRef<'a>,
    body: AnyRef<'a>,
}

/// A received message.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// Decoded header.
    pub header: PkiHeader<'a>,
    encoded: ProtectedPart<'a>,
    /// The signature or the MAC.
    pub protection: Option<BitString>,
    /// Certificates for the verification of the protection.
    pub extra_certificates: Vec<Certificate>,
}

impl<'a> Message<'a> {
    /// Decodes the outer structure. [`Message::answer`] decodes the body.
    pub fn read(bytes: &'a [u8]) -> der::Result<Self> {
        let EncodedMessage { header, body, protection, extra_certificates } =
            EncodedMessage::from_der(bytes)?;
        Ok(Self {
            header: header.decode_as()?,
            encoded: ProtectedPart { header, body },
            protection,
            extra_certificates: certificates(extra_certificates.as_deref().unwrap_or_default())?,
        })
    }

    /// The bytes that the protection is over.
    pub fn protected(&self) -> der::Result<Vec<u8>> {
        self.encoded.to_der()
    }

    /// The body's DER encoding.
    pub fn body(&self) -> der::Result<Vec<u8>> {
        self.encoded.body.to_der()
    }

    /// The number of the body's tag, which is that of a [`Kind`] if the body is known.
    pub(super) fn number(&self) -> u8 {
        self.encoded.body.tag().number().value()
    }

    /// Decodes the body.
    pub fn answer(&self) -> der::Result<Answer> {
        let (tag, contents) = (self.encoded.body.tag(), self.encoded.body.value());
        if !matches!(tag, Tag::ContextSpecific { constructed: true, .. }) {
            return Err(tag.unexpected_error(None));
        }
        Ok(match Kind::from_repr(self.number()) {
            Some(kind @ (Kind::Ip | Kind::Cp | Kind::Kup)) => {
                Answer::Certificates(kind, CertRep::from_der(contents)?)
            }
            Some(Kind::PkiConf) => Answer::Confirmed,
            Some(Kind::PollRep) => Answer::Later(Vec::from_der(contents)?),
            Some(Kind::Error) => Answer::Error(ErrorContent::from_der(contents)?),
            _ => Answer::Other,
        })
    }
}

impl CertRep {
    /// Certificates of CAs in the answer.
    pub(super) fn cas(&self) -> der::Result<Vec<Certificate>> {
        certificates(self.cas.as_deref().unwrap_or_default())
    }
}

impl CertifiedKeyPair {
    /// The certificate, `None` if it is encrypted.
    pub(super) fn certificate(&self) -> der::Result<Option<Certificate>> {
        let tag = self.certificate.tag();
        let is_plain =
            matches!(tag, Tag::ContextSpecific { number, .. } if number == TagNumber::N0);
        if !is_plain {
            return Ok(None);
        }
        let read = Certificate::from_der(self.certificate.value());
        read.map(Some).ok_or_else(|| Tag::Sequence.value_error())
    }
}

fn certificates(found: &[Any]) -> der::Result<Vec<Certificate>> {
    let read = |any: &Any| {
        let der = any.to_der()?;
        Certificate::from_der(&der).ok_or_else(|| Tag::Sequence.value_error())
    };
    found.iter().map(read).collect()
}

/// Encodes a body: `contents` in the tag of its kind.
pub(super) fn body(kind: Kind, contents: &[u8]) -> der::Result<Vec<u8>> {
    let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::new(kind as u8) };
    Any::new(tag, contents)?.to_der()
}

/// Encodes the bytes that the protection covers (`ProtectedPart`).
pub fn protected_part(header: &PkiHeader<'_>, body: &[u8]) -> der::Result<Vec<u8>> {
    let header = header.to_der()?;
    ProtectedPart { header: AnyRef::try_from(&header[..])?, body: AnyRef::try_from(body)? }.to_der()
}

/// A whole message: `protected` with its protection and certificates.
pub fn protected_message(
    protected: &[u8],
    protection: Option<&[u8]>,
    extra_certificates: &[Certificate],
) -> der::Result<Vec<u8>> {
    let ProtectedPart { header, body } = ProtectedPart::from_der(protected)?;
    let protection = protection.map(BitString::from_bytes).transpose()?;
    let certificates = extra_certificates.iter().map(|it| Any::from_der(it.der()));
    let certificates: Vec<_> = certificates.collect::<der::Result<_>>()?;
    let extra_certificates = (!certificates.is_empty()).then_some(certificates);
    EncodedMessage { header, body, protection, extra_certificates }.to_der()
}
