//! Serving pairs for commands that make none.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use time::OffsetDateTime;

/// A self-signed pair for `localhost`, in files.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Certificate for the clients' trust.
    pub(crate) pem: String,
}

impl Pair {
    /// Makes `tls.crt` and `tls.key` in `folder`, and replaces older ones atomically.
    pub(crate) fn make(directory: &Path, common_name: &str) -> Self {
        Self::valid_until(directory, common_name, date_time_ymd(2119, 12, 31))
    }

    /// Makes them with a certificate that expired with the year 2020.
    pub(crate) fn expired(directory: &Path, common_name: &str) -> Self {
        Self::valid_until(directory, common_name, date_time_ymd(2021, 1, 1))
    }

    /// Valid from 2020 on.
    fn valid_until(directory: &Path, common_name: &str, until: OffsetDateTime) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params =
            CertificateParams::new(["localhost".to_owned()]).expect("a subject alternative name");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = until;
        params.use_authority_key_identifier_extension = true;
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let pair =
            Self { certificate: directory.join("tls.crt"), key: directory.join("tls.key"), pem };
        replace(&pair.key, &key.serialize_pem());
        replace(&pair.certificate, &pair.pem);
        pair
    }
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).expect("a writable folder");
    fs::rename(&next, path).expect("a rename in one folder");
}
