//! The serving pair: read, checked, and made into a TLS configuration.
//!
//! A pair is taken over only whole: certificate and key are read, checked to belong together, and
//! then swapped in; new connections get it, open ones keep what they have.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use super::signing::beside_workers;
use super::tls_policy::TlsPolicy;

/// A certificate chain with its key.
#[derive(Debug, Clone)]
pub struct Pair {
    certified: Arc<CertifiedKey>,
    /// When the serving certificate expires. Authorities that follow it may expire before, and
    /// take nobody along who still trusts another one.
    pub expires: OffsetDateTime,
}

/// Why a pair cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// A file holds something else.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Both are fine and do not belong together.
    #[error("{}: the key does not belong to the certificate in {}", key.display(), cert.display())]
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The build is for FIPS 140-3, and what it would speak is not all of it approved.
    #[error("TLS: not what FIPS 140-3 approves, which this server was built for")]
    NotFips,
    /// The TLS library refuses the policy with this pair.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl PairError {
    /// Whether a file is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl Pair {
    /// Reads and checks a pair: PEM, the key in any of its forms (PKCS#1, SEC1, PKCS#8).
    pub fn read(cert: &Path, key: &Path, policy: &TlsPolicy) -> Result<Self, PairError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| PairError::Unreadable { path: path.to_owned(), error })
        };
        let (cert_pem, key_pem) = (read(cert)?, Zeroizing::new(read(key)?));
        Self::parse((cert, &cert_pem), (key, &key_pem), policy)
    }

    /// The same of what has been read, with the names by which errors call it.
    pub fn parse(
        (cert, cert_pem): (&Path, &[u8]),
        (key, key_pem): (&Path, &[u8]),
        policy: &TlsPolicy,
    ) -> Result<Self, PairError> {
        let malformed =
            |path: &Path, reason: String| PairError::Malformed { path: path.to_owned(), reason };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert_pem)
            .collect::<Result<_, _>>()
            .map_err(|error| malformed(cert, format!("no PEM certificate: {error}")))?;
        let leaf = chain.first();
        let leaf = leaf.ok_or_else(|| malformed(cert, "holds no certificate".to_owned()))?;
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| malformed(cert, format!("no X.509 certificate: {error}")))?;
        let expires = parsed.validity().not_after.to_datetime();
        let key_der = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| malformed(key, format!("no PEM private key: {error}")))?;
        let signing_key = policy
            .provider
            .key_provider
            .load_private_key(key_der)
            .map_err(|error| malformed(key, format!("no usable private key: {error}")))?;
        let certified = CertifiedKey::new(chain, beside_workers(signing_key));
        match certified.keys_match() {
            // A key that cannot tell its public half is left for the handshake to judge.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(_) => {
                return Err(PairError::Mismatch { cert: cert.to_owned(), key: key.to_owned() });
            }
        }
        Ok(Self { certified: Arc::new(certified), expires })
    }

    /// The TLS configuration that serves this pair.
    ///
    /// A machine boots once, so that no session is kept and no ticket is sent: both cost more than
    /// they ever save.
    pub fn config(&self, policy: &TlsPolicy) -> Result<ServerConfig, PairError> {
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

    /// What is sent, leaf first, in DER.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    /// Whether both are the same chain; the key follows from it.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}
