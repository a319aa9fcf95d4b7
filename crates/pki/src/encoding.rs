//! Rewrites names in a certificate's DER (RFC 5280 section 4.1), because the library that issues certificates cannot
//! write all of them.

use rcgen::{KeyPair, SigningKey as _};
use x509_parser::asn1_rs::{Any, FromDer as _};
use yasna::models::TaggedDerValue;

use super::reason::IssueError;

/// Positions of issuer and subject among a certificate's fields, counted from 0, after the version that every version 3
/// certificate begins with.
const ISSUER: usize = 3;
const SUBJECT: usize = 5;

/// Replaces the names of a certificate with encoded ones, and signs it again with `key`.
pub(super) fn with_names(
    certificate: &[u8],
    issuer: &[u8],
    subject: &[u8],
    key: &KeyPair,
) -> Result<Vec<u8>, IssueError> {
    let [signed, algorithm, _signature] = &fields(certificate)?[..] else {
        return Err(IssueError::Unreadable);
    };
    let mut names = fields(signed)?;
    for (at, name) in [(ISSUER, issuer), (SUBJECT, subject)] {
        *names.get_mut(at).ok_or(IssueError::Unreadable)? = name;
    }
    let signed = sequence(&names);
    let signature = key.sign(&signed)?;
    let signature = yasna::construct_der(|writer| {
        writer.write_bitvec_bytes(&signature, signature.len() * 8);
    });
    Ok(sequence(&[&signed, algorithm, &signature]))
}

/// The fields of a sequence, each as it is encoded.
fn fields(der: &[u8]) -> Result<Vec<&[u8]>, IssueError> {
    let (_, whole) = Any::from_der(der).map_err(|_| IssueError::Unreadable)?;
    let mut rest = whole.data;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (after, _) = Any::from_der(rest).map_err(|_| IssueError::Unreadable)?;
        let (field, _) = rest.split_at(rest.len() - after.len());
        found.push(field);
        rest = after;
    }
    Ok(found)
}

fn sequence(fields: &[&[u8]]) -> Vec<u8> {
    let contents = fields.concat();
    yasna::construct_der(|writer| {
        writer.write_tagged_der(&TaggedDerValue::from_tag_and_bytes(
            yasna::tags::TAG_SEQUENCE,
            contents,
        ));
    })
}
