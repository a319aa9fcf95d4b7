//! Issues the serving certificate of the internal release image's registry, by the machine config server's CA. The
//! module does no I/O.
//!
//! As with the reference (openshift/machine-config-operator, `certrotation_controller.go`, `reconcileIRICertificate`),
//! it requires the InternalReleaseImage and the Secret, which the installer creates. Only certificate and key of the
//! Secret are set: the reference writes no annotations there, and type and owner are the installer's.
//!
//! It is signed once the CA is in the bundle, with cross-certificates to older CAs, so that nodes that trust only one
//! of them continue to work. The reference sends the CA itself, which clients that trust it do not need.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::{Malformed, ObjectName, SecretWrite};
use pki::certificate::key_of;
use pki::plan::renewal;
use pki::{
    Certificate, CertificateState, Host, IssueError, Policy, StoredPair, issue_pair, signing_ca,
};
use rcgen::KeyPair;
use time::OffsetDateTime;

use super::super::NAMESPACE;
use super::names::RELEASE_IMAGE_PAIR;
use super::objects::pair_data;
use super::reference::names::ReferenceNames;
use super::secret::stored_pair;
use super::settings::infrastructure::host;
use super::state::ClusterState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The cluster has no internal release image.
    Absent,
    /// The pair is up to date, until this time.
    Current {
        until: OffsetDateTime,
    },
    Sign(Reason),
    Blocked(Blocker),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("cannot be read, or the key does not belong to it")]
    Unreadable,
    #[error("not valid now")]
    Expired,
    #[error("its issuer is not the present signing CA")]
    Issuer,
    #[error("does not have the names of the cluster")]
    Names,
    #[error("due for renewal")]
    Renewal,
}

impl Reason {
    /// Value of the label in metrics and events.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Expired => "expired",
            Self::Issuer => "issuer",
            Self::Names => "names",
            Self::Renewal => "renewal",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Blocker {
    #[error("the Secret that the installer makes is missing")]
    Secret,
    #[error("the Infrastructure has no internal URL of the API server")]
    Names,
    #[error("no CA is valid, can sign and is in the trust bundle")]
    Ca,
}

impl Blocker {
    /// Next step of an administrator.
    pub(super) const fn fix(self) -> &'static str {
        match self {
            Self::Secret => "restore the Secret from a backup of the cluster",
            Self::Names => "set status.apiServerInternalURI of Infrastructure cluster",
            Self::Ca => {
                "run machine-config-server certs check, which says what is wrong with the CA"
            }
        }
    }
}

pub(super) fn decide(
    state: &ClusterState,
    policy: &Policy,
    now: OffsetDateTime,
) -> Result<Decision, Malformed> {
    if !state.has_release_image {
        return Ok(Decision::Absent);
    }
    let Some(secret) = &state.release_image_pair else {
        return Ok(Decision::Blocked(Blocker::Secret));
    };
    Ok(match issuance(state, now)? {
        Err(blocker) => Decision::Blocked(blocker),
        Ok(Issuance { ca, hosts, .. }) => judge(secret, &hosts, &ca, policy, now),
    })
}

fn judge(
    secret: &Secret,
    hosts: &[Host],
    ca: &Certificate,
    policy: &Policy,
    now: OffsetDateTime,
) -> Decision {
    let pair = stored_pair(secret);
    let key = key_of(&pair.key);
    let leaf = pair.leaf().filter(|leaf| key.is_some_and(|key| leaf.matches(&key)));
    let Some(leaf) = leaf else { return Decision::Sign(Reason::Unreadable) };
    if !leaf.is_valid_at(now) {
        return Decision::Sign(Reason::Expired);
    }
    if !leaf.is_issued_by(ca) {
        return Decision::Sign(Reason::Issuer);
    }
    // The reference's controller also replaces a pair with additional names.
    if leaf.hosts != hosts.iter().cloned().collect::<BTreeSet<_>>() {
        return Decision::Sign(Reason::Names);
    }
    // If it ends with its issuer, a new one gains nothing: the issuer's successor signs the next one.
    let ends_with_issuer = leaf.not_after >= ca.not_after;
    let due = if ends_with_issuer { leaf.not_after } else { renewal(&leaf, policy) };
    if now >= due { Decision::Sign(Reason::Renewal) } else { Decision::Current { until: due } }
}

/// Names of a pair, and the CAs for it.
pub(super) struct Issuance {
    /// The CA that signs.
    ca: Certificate,
    cas: CertificateState,
    hosts: Vec<Host>,
}

impl Issuance {
    /// Signs a new pair with a new `key`. `None` if no CA can.
    pub(super) fn sign(
        &self,
        policy: &Policy,
        key: &KeyPair,
        now: OffsetDateTime,
    ) -> Result<Option<StoredPair>, IssueError> {
        issue_pair(&self.cas, policy, &self.hosts, key, now)
    }
}

pub(super) fn issuance(
    state: &ClusterState,
    now: OffsetDateTime,
) -> Result<Result<Issuance, Blocker>, Malformed> {
    let Some(names) = &state.infrastructure.reference_names else {
        return Ok(Err(Blocker::Names));
    };
    let trusted = state.trusted()?;
    let cas = CertificateState {
        ca: state.ca.as_ref().map(stored_pair),
        bundle: Some(trusted.iter().map(Certificate::to_pem).collect::<String>().into()),
        ..CertificateState::default()
    };
    let Some(ca) = signing_ca(&cas, now).filter(|ca| trusted.contains(ca)) else {
        return Ok(Err(Blocker::Ca));
    };
    Ok(Ok(Issuance { ca, cas, hosts: hosts(names)? }))
}

pub(super) fn pair_write(
    state: &ClusterState,
    pair: &StoredPair,
) -> Result<SecretWrite, Malformed> {
    let object = object();
    let present = state.release_image_pair.as_ref();
    let present = present.ok_or_else(|| object.malformed("not found"))?;
    SecretWrite::patch(object, &present.metadata, BTreeMap::new(), pair_data(pair))
}

/// Name of the pair's Secret.
pub(super) fn object() -> ObjectName {
    ObjectName::secret(NAMESPACE, RELEASE_IMAGE_PAIR)
}

/// Required names of the pair, the API server's first.
fn hosts(names: &ReferenceNames) -> Result<Vec<Host>, Malformed> {
    let names = names.release_image().into_iter().filter(|name| !name.is_empty());
    let mut hosts = names.map(host).collect::<Result<Vec<Host>, _>>()?;
    hosts.sort_by_key(|host| !matches!(host, Host::Name(name) if name != "localhost"));
    Ok(hosts)
}

#[cfg(test)]
mod tests;
