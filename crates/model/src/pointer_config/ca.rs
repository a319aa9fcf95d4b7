//! Entries of `certificateAuthorities`, read as Ignition does: an error in one ends Ignition, and the machine does not
//! boot.

use std::io::Read as _;

use ignition::{SpecVersion, data_url, has_hash};
use pki::Certificate;
use serde_json::Value;

use super::pem::{BEGIN, Block, block};

/// Maximum size of unpacked contents, larger than any bundle, so that small gzip data cannot fill the memory.
pub(super) const MAX_CONTENTS: u64 = 1 << 20;

/// Faults of a data URL, or of its contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsFault {
    /// The source is no valid data URL.
    #[error("{0}")]
    DataUrl(data_url::Malformed),
    /// The data is not compressed as `compression` specifies.
    #[error("is not gzip, which its compression says")]
    NotGzip,
    /// The contents are too large.
    #[error("has more than {MAX_CONTENTS} bytes")]
    TooLarge,
    /// The hash in `verification` does not match.
    #[error("does not have the hash of its verification")]
    Hash,
}

/// Faults of an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaFault {
    /// The contents cannot be decoded.
    #[error(transparent)]
    Contents(#[from] ContentsFault),
    /// The contents have no PEM block.
    #[error("has no certificate in PEM")]
    NoPem,
    /// A PEM block is cut short, has invalid base64, or shares its lines with other text.
    #[error("has broken PEM")]
    BrokenPem,
    /// A PEM block is no certificate, but a key, say.
    #[error("has PEM of something other than a certificate")]
    NoCertificate,
    /// Text follows the last block. Ignition reads to the end, and expects another block.
    #[error(
        "has text or an empty line after its last certificate, which Ignition reads as a broken certificate"
    )]
    Trailing,
}

/// The contents of a data URL, unpacked and compared with the hash of their resource.
pub(super) fn contents(source: &str, resource: &Value) -> Result<Vec<u8>, ContentsFault> {
    let bytes = data_url::decode(source).map_err(ContentsFault::DataUrl)?;
    let bytes = unpacked(bytes, resource["compression"].as_str())?;
    match resource["verification"]["hash"].as_str() {
        Some(hash) if !has_hash(&bytes, hash) => Err(ContentsFault::Hash),
        _ => Ok(bytes),
    }
}

/// Unpacks contents with this compression; Ignition supports only gzip.
pub(super) fn unpacked(
    bytes: Vec<u8>,
    compression: Option<&str>,
) -> Result<Vec<u8>, ContentsFault> {
    let mut unpacked = bytes;
    if compression == Some("gzip") {
        let packed = std::mem::take(&mut unpacked);
        let decoder = flate2::read::MultiGzDecoder::new(&packed[..]);
        let read = decoder.take(MAX_CONTENTS + 1).read_to_end(&mut unpacked);
        read.map_err(|_| ContentsFault::NotGzip)?;
    }
    if unpacked.len() as u64 > MAX_CONTENTS { Err(ContentsFault::TooLarge) } else { Ok(unpacked) }
}

/// The certificates that Ignition takes from a text, and the number of blocks: the Ignition of spec 2 takes only the
/// first block. Labels of blocks do not matter to it.
pub(super) fn certificates(
    pem: &[u8],
    spec: SpecVersion,
) -> Result<(Vec<Certificate>, usize), CaFault> {
    let takes_first = spec == SpecVersion::V2_2;
    let mut certificates = Vec::new();
    let mut rest = pem;
    while !rest.is_empty() {
        let read = match block(rest) {
            Some(Block { contents, rest: after, .. }) => {
                rest = after;
                Certificate::from_der(&contents).ok_or(CaFault::NoCertificate)
            }
            None if rest.windows(BEGIN.len()).any(|window| window == BEGIN) => {
                Err(CaFault::BrokenPem)
            }
            None if certificates.is_empty() => Err(CaFault::NoPem),
            None => Err(CaFault::Trailing),
        };
        match read {
            Ok(certificate) => certificates.push(certificate),
            Err(_) if takes_first && !certificates.is_empty() => break,
            Err(fault) => return Err(fault),
        }
    }
    // An empty text is valid in Ignition, except in spec 2.
    if certificates.is_empty() && takes_first {
        return Err(CaFault::NoPem);
    }
    let present = certificates.len();
    certificates.truncate(if takes_first { 1 } else { present });
    Ok((certificates, present))
}
