//! Parts of CMP messages that the message crates lack, or encode differently from the standard.

use der::asn1::{Any, AnyRef, BitString, ObjectIdentifier, OctetString};
use der::{Encode as _, Sequence, Tag, TagNumber};
use x509_cert::Certificate;

/// A message, parsed.
#[derive(Sequence)]
pub(super) struct Raw<'a> {
    pub(super) header: AnyRef<'a>,
    pub(super) body: AnyRef<'a>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub(super) protection: Option<BitString>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub(super) extra: Option<Vec<Certificate>>,
}

#[derive(Sequence)]
pub(super) struct Status {
    pub(super) number: u8,
    pub(super) text: Option<Vec<String>>,
    pub(super) failures: Option<BitString>,
}

#[derive(Sequence)]
pub(super) struct Confirmation {
    pub(super) hash: OctetString,
    pub(super) request: i64,
    pub(super) status: Option<Status>,
}

#[derive(Sequence)]
pub(super) struct Answered {
    pub(super) request: i64,
    pub(super) status: Status,
    pub(super) certified: Option<Any>,
}

#[derive(Sequence)]
pub(super) struct Answer {
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    pub(super) cas: Option<Vec<Any>>,
    pub(super) answers: Vec<Answered>,
}

#[derive(Sequence)]
pub(super) struct Later {
    pub(super) request: i64,
    pub(super) after: u8,
    pub(super) reason: Option<Vec<String>>,
}

pub(super) fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new(text).expect("an object identifier")
}

pub(super) fn tagged(number: u8, contents: &[u8]) -> Vec<u8> {
    let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::new(number) };
    Any::new(tag, contents).and_then(|any| any.to_der()).expect("DER")
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    Any::new(Tag::Sequence, parts.concat()).and_then(|any| any.to_der()).expect("DER")
}

pub(super) fn status(number: u8, text: &[&str], failures: &[u8]) -> Status {
    let text: Vec<_> = text.iter().map(|text| (*text).to_owned()).collect();
    Status {
        number,
        text: Some(text).filter(|text| !text.is_empty()),
        failures: (!failures.is_empty()).then(|| BitString::from_bytes(failures).expect("bits")),
    }
}

pub(super) fn refusal() -> Status {
    // badRequest and notAuthorized.
    status(2, &["no machine of that name"], &[0b0010_0000, 0, 1])
}

pub(super) fn error(status: &Status) -> Vec<u8> {
    sequence(&[&status.to_der().expect("DER")])
}

pub(super) fn later() -> Vec<u8> {
    let reason = Some(vec!["somebody has to approve it".to_owned()]);
    vec![Later { request: 0, after: 0, reason }].to_der().expect("DER")
}

/// The kind that answers a request's.
pub(super) fn answer_to(kind: u8) -> u8 {
    if kind == 4 { 3 } else { kind + 1 }
}
