//! The checks of Go's certificate parser (`crypto/x509.ParseCertificate`).
//!
//! Machines boot by Ignition, a Go program. A client in Go parses every certificate of a chain before it verifies any,
//! so one certificate that its parser refuses locks out all machines. The rules are those of RFC 5280 section 4 as Go
//! reads them, each the strictest of the releases 1.19 and 1.26: Debian builds Ignition with the first. Names of Go's
//! functions are in parentheses, for comparison when a release changes.
//!
//! `tests/it/go_parser` compares the checks with Go by mutated certificates: every certificate that Go refuses is
//! refused. The reverse does not hold for certificates that no CA issues: keys on P-224, keys that are not of whole
//! octets, times without seconds or with an offset, zones of IPv6 addresses in URIs, colons in a constraint of URIs,
//! and a version that overflows.

mod der;
mod extensions;
mod malformed;
mod names;
mod public_key;
mod time;

pub use malformed::Malformed;
pub(super) use public_key::rsa_key;

use der::{INTEGER, Reader, SEQUENCE, SET, constructed, context};

pub(super) fn check(der: &[u8]) -> Result<(), Malformed> {
    let mut input = Reader(der);
    let mut certificate = input.read(SEQUENCE).ok_or(Malformed::Encoding)?;
    if !input.is_empty() {
        return Err(Malformed::Encoding);
    }
    let mut signed = certificate.read(SEQUENCE).ok_or(Malformed::Encoding)?;
    let version = version(&mut signed).ok_or(Malformed::Field("version"))?;
    let serial = signed.integer(INTEGER).ok_or(Malformed::Field("serial number"))?;
    if serial[0] & 0x80 != 0 {
        return Err(Malformed::NegativeSerial);
    }
    let algorithm = Malformed::Field("signature algorithm");
    let mut inner = signed.read(SEQUENCE).ok_or(algorithm.clone())?;
    let outer = certificate.read(SEQUENCE).ok_or(algorithm.clone())?;
    if inner.0 != outer.0 {
        return Err(Malformed::Algorithms);
    }
    inner.object_identifier().ok_or(algorithm.clone())?;
    if !inner.is_empty() {
        inner.any().ok_or(algorithm)?;
    }
    name(&mut signed).ok_or(Malformed::Field("issuer"))?;
    let validity = signed.read(SEQUENCE).and_then(time::validity);
    validity.ok_or(Malformed::Field("validity"))?;
    name(&mut signed).ok_or(Malformed::Field("subject"))?;
    let public_key = signed.read(SEQUENCE).and_then(public_key::check);
    public_key.ok_or(Malformed::Field("public key"))?;
    if version >= 2 {
        for tag in [context(1), context(2)] {
            signed.optional(tag).ok_or(Malformed::Field("unique identifier"))?;
        }
    }
    if version == 3 && signed.is_next(constructed(3)) {
        let list = signed.read(constructed(3)).ok_or(Malformed::Field("list of extensions"))?;
        extensions::check(list)?;
    }
    certificate.bit_string().map(drop).ok_or(Malformed::Field("signature"))
}

/// The version number, from 1.
fn version(signed: &mut Reader<'_>) -> Option<i64> {
    if !signed.is_next(constructed(0)) {
        return Some(1);
    }
    let mut explicit = signed.read(constructed(0))?;
    let version = explicit.integer_64(INTEGER).filter(|_| explicit.is_empty())?;
    (0..=2).contains(&version).then(|| version + 1)
}

/// Checks a name of issuer or subject (`parseName`, RFC 5280 section 4.1.2.4).
fn name(signed: &mut Reader<'_>) -> Option<()> {
    let attribute = |attributes: &mut Reader<'_>| {
        let mut attribute = attributes.read(SEQUENCE)?;
        attribute.object_identifier()?;
        let value = attribute.any()?;
        is_string(value.tag, value.contents).then_some(())
    };
    signed.each(SEQUENCE, |name| name.each(SET, attribute))
}

/// Returns `true` if a string has only characters of its type (`parseASN1String`).
fn is_string(tag: u8, value: &[u8]) -> bool {
    match tag {
        // UTF8String
        12 => str::from_utf8(value).is_ok(),
        // NumericString
        18 => value.iter().all(|c| c.is_ascii_digit() || *c == b' '),
        // PrintableString; Go has the asterisk and the ampersand in it.
        19 => value.iter().all(|c| c.is_ascii_alphanumeric() || b"'()+,-./ :=?*&".contains(c)),
        // T61String
        20 => true,
        // IA5String
        22 => value.is_ascii(),
        // BMPString, without surrogates and noncharacters.
        30 => {
            let (units, rest) = value.as_chunks::<2>();
            let is_character = |unit: &[u8; 2]| !matches!(u16::from_be_bytes(*unit), 0xd800..=0xdfff | 0xfdd0..=0xfdef | 0xfffe..);
            rest.is_empty() && units.iter().all(is_character)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_past_the_third_is_refused_up_to_the_largest_number() {
        let read = |number: &[u8]| {
            let length = u8::try_from(number.len()).unwrap();
            let der = [&[0xa0, length + 2, 2, length], number].concat();
            version(&mut Reader(&der))
        };
        assert_eq!(
            [&[0], &[1], &[2], &[3], &[0xff]].map(|it| read(it)),
            [Some(1), Some(2), Some(3), None, None]
        );
        assert_eq!(read(&i64::MAX.to_be_bytes()), None);
        assert_eq!(read(&i64::MIN.to_be_bytes()), None);
    }
}
