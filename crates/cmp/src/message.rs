//! Messages, as RFC 4210 section 5 and appendix F encode them.
//!
//! A message is protected as it was sent, byte for byte (section 5.1.3), so header and body are kept as they
//! came. Certificates likewise: a signature is over one encoding, and what is written again may be another.

use cmpv2::header::PkiHeader;
use der::asn1::{Any, BitString, Int, OctetString};
use der::{Decode, Encode, Header, Reader, Sequence, SliceReader, Tag, TagNumber, Tagged as _};
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
    /// The number of a `PKIStatus`.
    pub status: u8,
    /// Text for a person.
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
    /// Status of the failure.
    pub status: StatusInfo,
    /// A number that means something to the server.
    pub code: Option<Int>,
    /// Text for a person.
    pub details: Option<Vec<String>>,
}

/// `CertRepMessage` (section 5.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct CertRep {
    /// Certificates of CAs.
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub cas: Option<Vec<Any>>,
    /// One answer for each requested certificate.
    pub responses: Vec<CertResponse>,
}

/// `CertResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct CertResponse {
    /// ID of the request that it answers.
    pub request_id: i64,
    /// Result of the request.
    pub status: StatusInfo,
    /// The certificate, if there is one.
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
pub struct CertStatus {
    /// A hash of the certificate.
    pub hash: OctetString,
    /// ID of the request.
    pub request_id: i64,
    /// Reason for a rejection; `None` accepts the certificate.
    pub status: Option<StatusInfo>,
    /// Algorithm of the hash, if the certificate's signature does not determine it.
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub algorithm: Option<AlgorithmIdentifierOwned>,
}

/// One of `PollReqContent` (section 5.3.22).
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct PollReq {
    /// ID of the request that waits.
    pub request_id: i64,
}

/// One of `PollRepContent`.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub struct PollRep {
    /// ID of the request that waits.
    pub request_id: i64,
    /// Seconds until the next poll.
    pub check_after: i64,
    /// Text for a person.
    pub reason: Option<Vec<String>>,
}

/// A message's body, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Certificates, or why there are none.
    Certificates(Kind, CertRep),
    /// Acknowledgement of a confirmation.
    Confirmed,
    /// Requests that still wait.
    Later(Vec<PollRep>),
    /// An error message.
    Error(ErrorContent),
    /// Something else, by the number of its body's tag.
    Other(u8),
}

/// A received message.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// Decoded header.
    pub header: PkiHeader<'a>,
    header_bytes: &'a [u8],
    body: &'a [u8],
    /// The signature or the MAC.
    pub protection: Option<BitString>,
    /// Certificates for the verification of the protection.
    pub extra_certificates: Vec<Certificate>,
}

impl<'a> Message<'a> {
    /// Decodes the outer structure. [`Message::answer`] decodes the body.
    pub fn read(bytes: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(bytes)?;
        let message = reader.sequence(|reader| {
            let header_bytes = reader.tlv_bytes()?;
            let body = reader.tlv_bytes()?;
            let protection = reader.context_specific(TagNumber::N0, der::TagMode::Explicit)?;
            let extra: Option<Vec<Any>> =
                reader.context_specific(TagNumber::N1, der::TagMode::Explicit)?;
            let extra_certificates = certificates(extra.as_deref().unwrap_or_default())?;
            let header = PkiHeader::from_der(header_bytes)?;
            Ok(Self { header, header_bytes, body, protection, extra_certificates })
        })?;
        reader.finish(message)
    }

    /// The bytes that the protection is over.
    pub fn protected(&self) -> der::Result<Vec<u8>> {
        sequence(&[self.header_bytes, self.body])
    }

    /// The body's DER encoding.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Decodes the body.
    pub fn answer(&self) -> der::Result<Answer> {
        let mut reader = SliceReader::new(self.body)?;
        let header = Header::decode(&mut reader)?;
        let Tag::ContextSpecific { constructed: true, number } = header.tag else {
            return Err(header.tag.unexpected_error(None));
        };
        let contents = reader.read_slice(header.length)?;
        reader.finish(())?;
        let number = number.value();
        let kind = Kind::from_repr(number);
        Ok(match kind {
            Some(kind @ (Kind::Ip | Kind::Cp | Kind::Kup)) => {
                Answer::Certificates(kind, CertRep::from_der(contents)?)
            }
            Some(Kind::PkiConf) => Answer::Confirmed,
            Some(Kind::PollRep) => Answer::Later(Vec::from_der(contents)?),
            Some(Kind::Error) => Answer::Error(ErrorContent::from_der(contents)?),
            _ => Answer::Other(number),
        })
    }
}

impl CertRep {
    /// Certificates of CAs in the answer.
    pub fn cas(&self) -> der::Result<Vec<Certificate>> {
        certificates(self.cas.as_deref().unwrap_or_default())
    }
}

impl CertifiedKeyPair {
    /// The certificate, `None` if it is encrypted.
    pub fn certificate(&self) -> der::Result<Option<Certificate>> {
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
pub fn body(kind: Kind, contents: &[u8]) -> der::Result<Vec<u8>> {
    let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::new(kind as u8) };
    Any::new(tag, contents)?.to_der()
}

/// Encodes the bytes that the protection covers (`ProtectedPart`).
pub fn protected(header: &PkiHeader<'_>, body: &[u8]) -> der::Result<Vec<u8>> {
    sequence(&[&header.to_der()?, body])
}

/// A whole message: `protected` with its protection and certificates.
pub fn whole(
    protected: &[u8],
    protection: Option<&[u8]>,
    extra_certificates: &[Certificate],
) -> der::Result<Vec<u8>> {
    let protected = Any::from_der(protected)?;
    let mut parts = protected.value().to_vec();
    let mut part = |number: u8, contents: &[u8]| {
        let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::new(number) };
        Any::new(tag, contents)?.encode_to_vec(&mut parts)
    };
    if let Some(protection) = protection {
        part(0, &BitString::from_bytes(protection)?.to_der()?)?;
    }
    if !extra_certificates.is_empty() {
        let all: Vec<_> = extra_certificates.iter().map(Certificate::der).collect();
        part(1, &sequence(&all)?)?;
    }
    sequence(&[&parts])
}

/// Encodes a sequence of parts that are encoded already.
pub(super) fn sequence(parts: &[&[u8]]) -> der::Result<Vec<u8>> {
    Any::new(Tag::Sequence, parts.concat())?.to_der()
}
