//! The serving certificate: read, checked, and made into a TLS configuration.
//!
//! A pair is replaced as a whole: certificate and key are read, checked to match, and then swapped; new connections use
//! them, open ones keep the previous pair.

pub(crate) mod pair_secret;
pub(crate) mod policy;
pub(crate) mod serving_pair;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::bounded;
use pki::{Unusable, belongs, load_key, sent_chain};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use self::policy::TlsPolicy;

/// A certificate chain with its key.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    certified: Arc<CertifiedKey>,
    /// Expiry of the serving certificate. CAs after it can expire earlier, which does not affect machines that trust
    /// another one.
    pub expires: OffsetDateTime,
    /// File and reason, if no machine boots with the pair although it can be served.
    unfit: Option<(PathBuf, String)>,
}

/// Reasons why a pair cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{}: the key does not belong to the certificate in {}", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
    /// The build is for FIPS 140-3, and its TLS configuration is not fully approved.
    #[error("TLS: not approved by FIPS 140-3, which this server was built for")]
    NotFips,
    /// The TLS library refuses the policy with this pair.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl PairError {
    /// Returns `true` if a file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl Pair {
    /// Reads and checks a pair: PEM, the key in any of its forms (PKCS#1, SEC1, PKCS#8).
    pub(crate) fn read(cert: &Path, key: &Path, policy: &TlsPolicy) -> Result<Self, PairError> {
        let read = |path: &Path| {
            bounded::read(path)
                .map_err(|error| PairError::Unreadable { path: path.to_owned(), error })
        };
        let cert_pem = Zeroizing::new(read(cert)?);
        // One file for both may be replaced between two reads.
        let key_pem = if key == cert { cert_pem.clone() } else { Zeroizing::new(read(key)?) };
        Self::parse((cert, &cert_pem), (key, &key_pem), policy)
    }

    /// Parses a pair, with paths for errors.
    pub(crate) fn parse(
        (cert, cert_pem): (&Path, &[u8]),
        (key, key_pem): (&Path, &[u8]),
        policy: &TlsPolicy,
    ) -> Result<Self, PairError> {
        let malformed =
            |path: &Path, reason: String| PairError::Malformed { path: path.to_owned(), reason };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert_pem)
            .collect::<Result<_, _>>()
            .map_err(|error| malformed(cert, format!("not a certificate in PEM: {error}")))?;
        let leaf = chain.first();
        let leaf = leaf.ok_or_else(|| malformed(cert, "has no certificate".to_owned()))?;
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| malformed(cert, format!("not an X.509 certificate: {error}")))?;
        let expires = parsed.validity().not_after.to_datetime();
        let key_info = parsed.public_key().raw.to_vec();
        let signing_key = load_key(key_pem, &policy.provider).map_err(|fault| match fault {
            Unusable::NoKey => malformed(key, "no private key in PEM".to_owned()),
            fault => malformed(key, format!("private key cannot be used: {fault}")),
        })?;
        if !belongs(&*signing_key, &key_info) {
            return Err(PairError::Mismatch { cert: cert.to_owned(), key: key.to_owned() });
        }
        let unfit = sent_chain(cert_pem).err().map(|fault| (cert.to_owned(), fault.to_string()));
        let certified = CertifiedKey::new(chain, signing_key);
        Ok(Self { certified: Arc::new(certified), expires, unfit })
    }

    /// The TLS configuration for this pair.
    ///
    /// A machine boots once, so no session is cached and no ticket is sent: both cost more than they save.
    pub(crate) fn config(&self, policy: &TlsPolicy) -> Result<ServerConfig, PairError> {
        let resolver = rustls::sign::SingleCertAndKey::from(Arc::clone(&self.certified));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&policy.provider))
            .with_protocol_versions(policy.versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if cfg!(feature = "fips") && !config.fips() {
            return Err(PairError::NotFips);
        }
        Ok(config)
    }

    /// Fault by which no machine boots with it. Such a pair does not replace another one.
    pub(crate) fn fault(&self) -> Option<PairError> {
        let (path, reason) = self.unfit.clone()?;
        Some(PairError::Malformed { path, reason })
    }

    /// Certificates to send, leaf first, in DER.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    /// Returns `true` if both have the same chain, which implies the key.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_file_with_certificate_and_key_is_one_pair_while_it_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [path, next] = ["tls.key", "next"].map(|name| directory.path().join(name));
        let texts = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            made.signing_key.serialize_pem() + &made.cert.pem()
        });
        std::fs::write(&path, &texts[0]).unwrap();
        let policy = TlsPolicy::new("", &[]).unwrap().0;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for text in texts.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    std::fs::write(&next, text).unwrap();
                    std::fs::rename(&next, &path).unwrap();
                }
            });
            let reads: Vec<_> = (0..2_000).map(|_| Pair::read(&path, &path, &policy)).collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(reads.iter().filter(|read| read.is_err()).count(), 0);
        });
    }
}
