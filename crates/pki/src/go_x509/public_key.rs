//! Public keys as Go takes them (`parsePublicKey`).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1,
    EcdsaVerificationAlgorithm, ParsedPublicKey,
};

use super::der::{INTEGER, Reader, SEQUENCE};

const RSA: &[u32] = &[1, 2, 840, 113_549, 1, 1, 1];
const DSA: &[u32] = &[1, 2, 840, 10_040, 4, 1];
const ECDSA: &[u32] = &[1, 2, 840, 10_045, 2, 1];
const ED25519: &[u32] = &[1, 3, 101, 112];

/// Curves of TLS, with the length of a coordinate in octets. Go also parses P-224, with which no TLS server can serve.
const CURVES: [(&[u32], &EcdsaVerificationAlgorithm, usize); 3] = [
    (&[1, 2, 840, 10_045, 3, 1, 7], &ECDSA_P256_SHA256_ASN1, 32),
    (&[1, 3, 132, 0, 34], &ECDSA_P384_SHA384_ASN1, 48),
    (&[1, 3, 132, 0, 35], &ECDSA_P521_SHA512_ASN1, 66),
];

/// ASN.1 NULL, the parameters of an RSA key.
const NULL: [u8; 2] = [5, 0];

/// Checks a subject's public key: the contents of its information (RFC 5280 section 4.1.2.7). Keys of kinds that Go
/// does not know are accepted unread.
pub(super) fn check(mut info: Reader<'_>) -> Option<()> {
    let mut algorithm = info.read(SEQUENCE)?;
    let kind = algorithm.object_identifier()?;
    // Go ignores elements after the parameters.
    let parameters = if algorithm.is_empty() { &[][..] } else { algorithm.any()?.whole };
    let (unused, key) = info.bit_string()?;
    // Go shifts the bits of a key that is not of whole octets. No such key exists (RFC 3279 section 2.3, RFC 8410
    // section 4).
    let is_whole = unused == 0;
    let is_good = match &kind[..] {
        RSA => is_whole && parameters == NULL && is_rsa(Reader(key)).is_some(),
        ECDSA => is_whole && is_ecdsa(Reader(parameters), key).is_some(),
        ED25519 => is_whole && parameters.is_empty() && key.len() == 32,
        DSA => is_whole && is_dsa(Reader(parameters), Reader(key)).is_some(),
        _ => true,
    };
    is_good.then_some(())
}

/// Modulus and exponent of an encoded public key with its algorithm; `None` if it is no RSA key.
pub(in super::super) fn rsa_key(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut info = Reader(info).read(SEQUENCE)?;
    let kind = info.read(SEQUENCE)?.object_identifier()?;
    let (_, key) = info.bit_string().filter(|_| kind == RSA)?;
    let mut key = Reader(key).read(SEQUENCE)?;
    Some((key.positive()?, key.positive()?))
}

fn is_rsa(mut key: Reader<'_>) -> Option<()> {
    let mut key = key.read(SEQUENCE)?;
    key.positive()?;
    key.integer_64(INTEGER).filter(|exponent| *exponent > 0)?;
    Some(())
}

/// Checks that a point is uncompressed and on its curve.
fn is_ecdsa(mut parameters: Reader<'_>, point: &[u8]) -> Option<()> {
    let curve = parameters.object_identifier()?;
    let (_, algorithm, length) = CURVES.iter().find(|(known, ..)| *known == curve)?;
    if point.len() != 1 + 2 * length || point[0] != 4 {
        return None;
    }
    ParsedPublicKey::new(*algorithm, point).ok().map(drop)
}

fn is_dsa(mut parameters: Reader<'_>, mut key: Reader<'_>) -> Option<()> {
    key.positive()?;
    let mut parameters = parameters.read(SEQUENCE)?;
    for _ in 0..3 {
        parameters.positive()?;
    }
    Some(())
}
