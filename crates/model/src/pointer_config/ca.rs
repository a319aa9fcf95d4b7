//! An entry of `certificateAuthorities`, read as Ignition reads it: it gives up where something is
//! wrong, and the machine does not boot.

use std::io::Read as _;

use data_encoding::HEXLOWER_PERMISSIVE;
use ignition::{SpecVersion, data_url};
use pki::Certificate;
use sha2::{Digest as _, Sha256, Sha512};

use super::pem::{BEGIN, Block, block};

/// More than any bundle has, so that a small gzip text cannot fill the memory.
pub(super) const MAX_CONTENTS: u64 = 1 << 20;

/// What is wrong with a data URL, or with what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsFault {
    /// The source is no data URL.
    #[error("{0}")]
    DataUrl(data_url::Malformed),
    /// It is not what `compression` says.
    #[error("is not the gzip that its compression says")]
    NotGzip,
    /// It is large beyond reason.
    #[error("holds more than {MAX_CONTENTS} bytes")]
    TooLarge,
    /// The hash in `verification` is another text's.
    #[error("does not have the hash that its verification says")]
    Hash,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaFault {
    /// It cannot be taken out of its source.
    #[error(transparent)]
    Contents(#[from] ContentsFault),
    /// There is no PEM in it.
    #[error("holds no certificate in PEM")]
    NoPem,
    /// A block is cut short or no base64, or does not stand on lines of its own.
    #[error("holds PEM that is broken")]
    BrokenPem,
    /// A block of something else, such as a key.
    #[error("holds PEM of something other than a certificate")]
    NoCertificate,
    /// Ignition reads on until the end, and takes nothing else for a block.
    #[error(
        "has something after its last certificate, if only an empty line, which Ignition takes for a broken one"
    )]
    Trailing,
}

/// What is compared with a hash. Ignition reads the digits of a config's in lower case, those of a CA's or a file's in
/// any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashOf {
    Config,
    Other,
}

/// What a data URL holds, unpacked and compared with its hash.
pub(super) fn contents(
    source: &str,
    compression: Option<&str>,
    hash: Option<&str>,
    hash_of: HashOf,
) -> Result<Vec<u8>, ContentsFault> {
    let bytes = data_url::decode(source).map_err(ContentsFault::DataUrl)?;
    let bytes = unpacked(bytes, compression)?;
    match hash {
        Some(hash) if !has_hash(&bytes, hash, hash_of) => Err(ContentsFault::Hash),
        _ => Ok(bytes),
    }
}

/// What bytes are that are said to have this compression; Ignition knows gzip alone.
pub(super) fn unpacked(
    bytes: Vec<u8>,
    compression: Option<&str>,
) -> Result<Vec<u8>, ContentsFault> {
    let bytes = if compression == Some("gzip") {
        let mut unpacked = Vec::new();
        let decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        let read = decoder.take(MAX_CONTENTS + 1).read_to_end(&mut unpacked);
        read.map_err(|_| ContentsFault::NotGzip)?;
        unpacked
    } else {
        bytes
    };
    if bytes.len() as u64 > MAX_CONTENTS { Err(ContentsFault::TooLarge) } else { Ok(bytes) }
}

/// Whether a text has this hash, `sha512-…` or `sha256-…`.
fn has_hash(bytes: &[u8], hash: &str, hash_of: HashOf) -> bool {
    let Some((function, digits)) = hash.split_once('-') else { return false };
    let Ok(sum) = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()) else { return false };
    let is_lower = || !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    let is_same = match function {
        "sha512" => Sha512::digest(bytes)[..] == sum[..],
        "sha256" => Sha256::digest(bytes)[..] == sum[..],
        _ => false,
    };
    is_same && (hash_of == HashOf::Other || is_lower())
}

/// The certificates that Ignition takes from a text, and how many there are: the Ignition of spec 2
/// takes the first one only, and looks no further. What a block is called does not matter to it.
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
    // Of an empty text Ignition takes no certificate, and goes on; the one of spec 2 gives up.
    if certificates.is_empty() && takes_first {
        return Err(CaFault::NoPem);
    }
    let present = certificates.len();
    certificates.truncate(if takes_first { 1 } else { present });
    Ok((certificates, present))
}
