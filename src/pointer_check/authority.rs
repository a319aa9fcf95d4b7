//! An entry of `certificateAuthorities`, read as Ignition reads it: it gives up where something is
//! wrong, and the machine does not boot.

use std::io::Read as _;

use data_encoding::HEXLOWER_PERMISSIVE;
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use sha2::{Digest as _, Sha256, Sha512};

use crate::ignition::{SpecVersion, data_url};
use crate::pki::Certificate;

/// More than any bundle has, so that a small gzip text cannot fill the memory.
const MAX_PEM: u64 = 1 << 20;

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityFault {
    /// The source is no data URL.
    #[error("{0}")]
    DataUrl(data_url::Malformed),
    /// It is not what `compression` says.
    #[error("is not the gzip that its compression says")]
    NotGzip,
    /// It is large beyond reason.
    #[error("holds more than {MAX_PEM} bytes")]
    TooLarge,
    /// The hash in `verification` is another text's.
    #[error("does not have the hash that its verification says")]
    Hash,
    /// There is no PEM in it.
    #[error("holds no certificate in PEM")]
    NoPem,
    /// A block is cut short or no base64.
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

/// What an entry holds, unpacked and compared with its hash.
pub(super) fn contents(
    source: &str,
    compression: Option<&str>,
    hash: Option<&str>,
) -> Result<Vec<u8>, AuthorityFault> {
    let mut bytes = data_url::decode(source).map_err(AuthorityFault::DataUrl)?;
    if compression == Some("gzip") {
        let mut unpacked = Vec::new();
        let decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        let read = decoder.take(MAX_PEM + 1).read_to_end(&mut unpacked);
        read.map_err(|_| AuthorityFault::NotGzip)?;
        bytes = unpacked;
    }
    if bytes.len() as u64 > MAX_PEM {
        return Err(AuthorityFault::TooLarge);
    }
    match hash {
        Some(hash) if !has_hash(&bytes, hash) => Err(AuthorityFault::Hash),
        _ => Ok(bytes),
    }
}

/// Whether a text has this hash, `sha512-…` or `sha256-…`.
fn has_hash(bytes: &[u8], hash: &str) -> bool {
    let Some((function, sum)) = hash.split_once('-') else { return false };
    let Ok(sum) = HEXLOWER_PERMISSIVE.decode(sum.as_bytes()) else { return false };
    match function {
        "sha512" => Sha512::digest(bytes)[..] == sum[..],
        "sha256" => Sha256::digest(bytes)[..] == sum[..],
        _ => false,
    }
}

/// The certificates that Ignition takes from a text, and how many there are: the Ignition of spec 2
/// takes the first one only, and looks no further.
pub(super) fn certificates(
    pem: &[u8],
    spec: SpecVersion,
) -> Result<(Vec<Certificate>, usize), AuthorityFault> {
    let takes_first = spec == SpecVersion::V2_2;
    let mut certificates = Vec::new();
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let read = match block {
            Ok((SectionKind::Certificate, der)) => {
                Certificate::from_der(&der).ok_or(AuthorityFault::NoCertificate)
            }
            Ok(_) => Err(AuthorityFault::NoCertificate),
            Err(_) => Err(AuthorityFault::BrokenPem),
        };
        match read {
            Ok(certificate) => certificates.push(certificate),
            Err(_) if takes_first && !certificates.is_empty() => break,
            Err(fault) => return Err(fault),
        }
    }
    if certificates.is_empty() {
        return Err(AuthorityFault::NoPem);
    }
    if !takes_first && has_trailing_text(pem) {
        return Err(AuthorityFault::Trailing);
    }
    let present = certificates.len();
    certificates.truncate(if takes_first { 1 } else { present });
    Ok((certificates, present))
}

/// Whether there is more after the last block than the end of its line.
fn has_trailing_text(pem: &[u8]) -> bool {
    const END: &[u8] = b"-----END ";
    let Some(last) = pem.windows(END.len()).rposition(|window| window == END) else { return false };
    let line_end = pem[last..].iter().position(|byte| *byte == b'\n');
    line_end.is_some_and(|end| last + end + 1 < pem.len())
}
