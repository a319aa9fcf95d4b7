//! An external CA that signs by CMPv2, built from an issuer and its Secrets, and checks of its certificates. The module
//! does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use cmp::{Credential, CredentialFault, EnrolledCertificate, Settings};
use pki::{Certificate, Issued, excess, read_chain, untrusted};
use time::OffsetDateTime;

use super::issuer_spec::{ProofSpec, SecretKey, UpstreamSpec};
use super::policy::Grant;

/// Values of Secrets, by name and key.
pub(super) type Secrets = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// An external CA with the server for its messages.
pub(super) struct Upstream<S> {
    spec: UpstreamSpec,
    secrets: Secrets,
    pub(super) server: S,
}

impl<S> Upstream<S> {
    /// The external CA of an issuer, or the missing part. `server` creates its server, with the CAs that verify HTTPS.
    pub(super) fn new(
        spec: UpstreamSpec,
        secrets: Secrets,
        server: impl FnOnce(&UpstreamSpec, &[Certificate]) -> Result<S, String>,
    ) -> Result<Self, String> {
        let cas = certificates(&secrets, spec.cas.as_ref())?;
        let server = server(&spec, &cas)?;
        let upstream = Self { spec, secrets, server };
        upstream.settings()?;
        Ok(upstream)
    }

    /// Returns `true` if these inputs would make the same CA.
    pub(super) fn is_of(&self, spec: &UpstreamSpec, secrets: &Secrets) -> bool {
        self.spec == *spec && self.secrets == *secrets
    }

    pub(super) fn settings(&self) -> Result<Settings, String> {
        let UpstreamSpec { recipient, expected_sender, allow_sha1, implicit_confirm, .. } =
            &self.spec;
        Ok(Settings {
            credential: self.credential()?,
            recipient: recipient.clone(),
            expected_sender: expected_sender.clone(),
            trusted: self.trusted()?,
            allow_sha1: *allow_sha1,
            implicit_confirm: *implicit_confirm,
        })
    }

    /// Certificates for the request's object, or the reason why they are refused.
    pub(super) fn issued(
        &self,
        enrolled: EnrolledCertificate,
        grant: &Grant,
        now: OffsetDateTime,
    ) -> Result<Issued, String> {
        let EnrolledCertificate { certificate, chain, cas: mut roots, .. } = enrolled;
        if let Some(excess) = excess(&certificate, &grant.request, grant.is_ca) {
            return Err(format!("the issued certificate has more than was requested: {excess}"));
        }
        let mut whole = vec![certificate];
        whole.extend(chain);
        // A value can also contain CAs for HTTPS and for other certificates.
        for trusted in self.trusted()? {
            let vouches = untrusted(&whole, std::slice::from_ref(&trusted), now).is_none();
            if vouches && !roots.contains(&trusted) {
                roots.push(trusted);
            }
        }
        Ok(Issued { chain: whole, roots })
    }

    fn trusted(&self) -> Result<Vec<Certificate>, String> {
        certificates(&self.secrets, self.spec.trusted.as_ref())
    }

    fn credential(&self) -> Result<Credential, String> {
        let value = |key| value(&self.secrets, key);
        match &self.spec.proof {
            ProofSpec::Password { password, reference } => {
                let text = value(password)?.to_vec();
                let read = Credential::of_password(text, reference);
                read.map_err(|fault| format!("{password}: {fault}"))
            }
            ProofSpec::Certificate { certificate, key } => {
                let read = Credential::of_certificate(value(certificate)?, value(key)?);
                read.map_err(|fault| match fault {
                    CredentialFault::NoCertificate => format!("{certificate}: {fault}"),
                    _ => format!("{key}: {fault}"),
                })
            }
        }
    }
}

fn value<'a>(secrets: &'a Secrets, key: &SecretKey) -> Result<&'a [u8], String> {
    let value = secrets.get(&key.secret).and_then(|secret| secret.get(&key.key));
    value.map(Vec::as_slice).ok_or_else(|| format!("{key} not found"))
}

/// Certificates in a value; empty for a missing default.
fn certificates(secrets: &Secrets, key: Option<&SecretKey>) -> Result<Vec<Certificate>, String> {
    let Some(key) = key else { return Ok(Vec::new()) };
    let text = match value(secrets, key) {
        Err(_) if key.is_default => return Ok(Vec::new()),
        text => text?,
    };
    let found = read_chain(text).map_err(|fault| format!("{key}: {fault}"))?;
    if found.is_empty() {
        return Err(format!("{key}: has no certificate"));
    }
    Ok(found)
}
