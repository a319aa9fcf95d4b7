//! Splits DER into its fields, and rewrites names in a certificate's (RFC 5280 section 4.1), because the library that
//! issues certificates cannot write all of them.

use rcgen::{KeyPair, SigningKey as _};
use x509_parser::asn1_rs::{Any, FromDer as _};

use super::reason::IssueError;

/// Positions of issuer and subject among a certificate's fields, counted from 0, after the version that every version 3
/// certificate begins with.
const ISSUER: usize = 3;
const SUBJECT: usize = 5;

/// Replaces the issuer's name of a certificate with an encoded one, the subject's likewise if there is one, and signs
/// the certificate again with `key`.
pub(super) fn with_names(
    certificate: &[u8],
    issuer: &[u8],
    subject: Option<&[u8]>,
    key: &KeyPair,
) -> Result<Vec<u8>, IssueError> {
    let parts = fields(certificate).unwrap_or_default();
    let [signed, algorithm, _signature] = parts[..] else { return Err(IssueError::Unreadable) };
    let mut signed = fields(signed).ok_or(IssueError::Unreadable)?;
    for (at, name) in [(ISSUER, Some(issuer)), (SUBJECT, subject)] {
        let present = signed.get_mut(at).ok_or(IssueError::Unreadable)?;
        *present = name.unwrap_or(*present);
    }
    let signed = sequence(&signed);
    let signature = key.sign(&signed)?;
    let signature = yasna::construct_der(|writer| {
        writer.write_bitvec_bytes(&signature, signature.len() * 8);
    });
    Ok(sequence(&[&signed, algorithm, &signature]))
}

/// The fields of a sequence, each as it is encoded; `None` if one is malformed.
fn fields(der: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut rest, mut found) = (contents(der)?, Vec::new());
    while !rest.is_empty() {
        found.push(next_field(&mut rest)?);
    }
    Some(found)
}

/// The first fields of a sequence, each as it is encoded; `None` if one is missing or malformed. What follows is not read.
pub(super) fn first_fields<const N: usize>(der: &[u8]) -> Option<[&[u8]; N]> {
    let (mut rest, mut found) = (contents(der)?, [&[][..]; N]);
    for field in &mut found {
        *field = next_field(&mut rest)?;
    }
    Some(found)
}

/// Takes an encoded field from the beginning of `rest`.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (after, _) = Any::from_der(rest).ok()?;
    let (field, after) = rest.split_at(rest.len() - after.len());
    *rest = after;
    Some(field)
}

pub(super) fn contents(der: &[u8]) -> Option<&[u8]> {
    Some(Any::from_der(der).ok()?.1.data)
}

fn sequence(fields: &[&[u8]]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| fields.iter().for_each(|it| writer.next().write_der(it)));
    })
}
