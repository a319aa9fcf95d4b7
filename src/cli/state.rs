//! What `serve` keeps between runs: its certificate authority, its serving pair, and the pointer
//! configs it handed out.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use time::OffsetDateTime;

use crate::ignition::{SpecVersion, pointer};
use crate::pki::issue::{generate_key, issue_authority, issue_serving};
use crate::pki::pair::{Decision, decide, is_valid_at};
use crate::pki::{Host, Issued};
use crate::server::tls::Pair;
use crate::server::tls_policy::TlsPolicy;
use crate::store::files::{self, PRIVATE, PUBLIC, WriteError};

/// The oldest spec that can name a CA and a config to merge, so that old boot images read it.
const POINTER_SPEC: SpecVersion = SpecVersion::V3_1;

/// A state directory with a valid CA and serving pair in it.
#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    authority: String,
}

impl State {
    /// Keeps what is there and is valid, and makes what is missing.
    ///
    /// A CA is never replaced here: machines trust it by their pointer configs.
    pub(super) fn prepare(
        folder: &Path,
        hosts: &[Host],
        policy: &TlsPolicy,
        now: OffsetDateTime,
    ) -> anyhow::Result<Self> {
        files::create_folder(&folder.join("user-data"))?;
        let mut state = Self { folder: folder.to_owned(), authority: String::new() };
        let issuer = state.prepare_authority(now)?;
        state.prepare_pair(issuer.as_ref(), hosts, policy, now)?;
        Ok(state)
    }

    /// Where the CA's certificate lies.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Where the serving certificate lies.
    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("tls.crt")
    }

    /// Where the serving key lies.
    pub(super) fn key(&self) -> PathBuf {
        self.folder.join("tls.key")
    }

    /// Writes the pointer config of a pool and tells where.
    pub(super) fn write_pointer(
        &self,
        pool: &str,
        host: &Host,
        port: u16,
    ) -> Result<PathBuf, WriteError> {
        let url = format!("https://{host}:{port}/config/{pool}");
        let config = format!("{}\n", pointer(&url, self.authority.as_bytes(), POINTER_SPEC));
        let path = self.folder.join("user-data").join(format!("{pool}.ign"));
        files::replace(&path, config.as_bytes(), PUBLIC)?;
        Ok(path)
    }

    /// The CA that signs, `None` where its key is kept elsewhere.
    fn prepare_authority(&mut self, now: OffsetDateTime) -> anyhow::Result<Option<Issued>> {
        let key_path = self.folder.join("ca.key");
        let certificate = read_if_there(&self.authority())?;
        let key = read_if_there(&key_path)?;
        let issued = match (certificate, key) {
            (Some(certificate), key) => {
                if !is_valid_at(certificate.as_bytes(), now) {
                    bail!(
                        "{}: no certificate that is valid now; machines trust it by their pointer \
                         configs, so that it is not replaced unasked: restore it, or move it and \
                         ca.key away for a new one",
                        self.authority().display()
                    );
                }
                self.authority.clone_from(&certificate);
                return Ok(key.map(|key| Issued { certificate, key }));
            }
            // A key without a certificate was never handed out.
            (None, _) => issue_authority(&generate_key()?, now)?,
        };
        files::replace(&key_path, issued.key.as_bytes(), PRIVATE)?;
        files::replace(&self.authority(), issued.certificate.as_bytes(), PUBLIC)?;
        tracing::info!(path = %self.authority().display(), "made a certificate authority");
        self.authority.clone_from(&issued.certificate);
        Ok(Some(issued))
    }

    fn prepare_pair(
        &self,
        issuer: Option<&Issued>,
        hosts: &[Host],
        policy: &TlsPolicy,
        now: OffsetDateTime,
    ) -> anyhow::Result<()> {
        let certificate = read_if_there(&self.certificate())?;
        let certificate = certificate.as_ref().map(String::as_bytes);
        let has_key = Pair::read(&self.certificate(), &self.key(), policy).is_ok();
        let decision = decide(certificate, has_key, self.authority.as_bytes(), hosts, now);
        let Decision::Reissue { reason, hosts } = decision else { return Ok(()) };
        let Some(issuer) = issuer else {
            bail!(
                "{}: {reason}, and ca.key is not there to issue another",
                self.certificate().display()
            );
        };
        let pair = issue_serving(&generate_key()?, &hosts, issuer, now)
            .with_context(|| self.folder.join("ca.key").display().to_string())?;
        files::replace(&self.key(), pair.key.as_bytes(), PRIVATE)?;
        files::replace(&self.certificate(), pair.certificate.as_bytes(), PUBLIC)?;
        tracing::info!(path = %self.certificate().display(), %reason, "issued a serving pair");
        Ok(())
    }
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}
