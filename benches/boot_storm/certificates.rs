//! A CA and a P-256 serving pair, made anew for each run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use time::{Duration, OffsetDateTime};

/// The name that the machines ask for.
pub(crate) const HOST: &str = "api-int.storm.test";

/// Files in PEM.
pub(crate) struct Pair {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Issues the pair into `directory`. The leaf goes out alone: a longer chain would cost both servers
/// the same bytes and hide a difference between them.
pub(crate) fn issue(directory: &Path) -> Result<Pair> {
    let mut ca = parameters(&[], "boot storm CA")?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let mut leaf = parameters(&[HOST], HOST)?;
    leaf.use_authority_key_identifier_extension = true;
    let leaf = leaf.signed_by(&key, &ca)?;

    let pair = Pair {
        ca: directory.join("ca.crt"),
        certificate: directory.join("tls.crt"),
        key: directory.join("tls.key"),
    };
    fs::write(&pair.ca, ca.pem())?;
    fs::write(&pair.certificate, leaf.pem())?;
    fs::write(&pair.key, key.serialize_pem())?;
    Ok(pair)
}

fn parameters(hosts: &[&str], name: &str) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut parameters = CertificateParams::new(hosts)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - Duration::hours(1);
    parameters.not_after = now + Duration::days(1);
    Ok(parameters)
}
