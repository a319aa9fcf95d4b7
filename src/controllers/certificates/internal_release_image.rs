//! The pair that the registry of the internal release image serves with, signed by the machine
//! config server's CA. Nothing here does I/O.
//!
//! As the reference's (openshift/machine-config-operator, `certrotation_controller.go`,
//! `reconcileIRICertificate`): where the InternalReleaseImage exists, and the secret, which the
//! installer makes. Its certificate and key are set, and nothing else of it: the reference writes no
//! annotations there, and the type and the owner are the installer's.
//!
//! It is signed once the CA is in the bundle, and what leads to older CAs comes along, so that nodes
//! that know only one of them go on. The reference sends the CA itself, which nobody needs who trusts
//! it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
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
use super::reference_names::ReferenceNames;
use super::secret::stored_pair;
use super::state::ClusterState;
use crate::kubernetes::write::{
    Change, Malformed, MergePatch, ObjectName, ObjectWrite, Precondition, SecretWrite,
};

/// What is to be done about the pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// There is no internal release image.
    Absent,
    /// It is as it should be, until then.
    Current { until: OffsetDateTime },
    /// It is to be signed anew.
    Sign(Reason),
    /// It cannot be signed.
    Waits(Waits),
}

/// Why the pair is signed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("it cannot be read, or its key does not belong to it")]
    Unreadable,
    #[error("it is not valid now")]
    Expired,
    #[error("its issuer is not the certificate authority of now")]
    Issuer,
    #[error("its names are not those of the cluster")]
    Names,
    #[error("it is due for renewal")]
    Renewal,
}

impl Reason {
    /// How metrics and events name it.
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

/// Why the pair is not signed, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Waits {
    #[error("there is no secret, which the installer makes")]
    Secret,
    #[error("the Infrastructure has no internal URL of the API server")]
    Names,
    #[error("there is no certificate authority that is valid, can sign, and is in the bundle")]
    Ca,
}

/// Says what is to be done at `now`.
pub(super) fn decide(
    state: &ClusterState,
    policy: &Policy,
    now: OffsetDateTime,
) -> Result<Decision, Malformed> {
    if !state.has_release_image {
        return Ok(Decision::Absent);
    }
    let Some(secret) = &state.release_image_pair else { return Ok(Decision::Waits(Waits::Secret)) };
    let Some(names) = &state.infrastructure.reference_names else {
        return Ok(Decision::Waits(Waits::Names));
    };
    let Some(ca) = ca(state, now)? else {
        return Ok(Decision::Waits(Waits::Ca));
    };
    Ok(judge(secret, &hosts(names)?, &ca, policy, now))
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
    // More names than these are too many for the reference's controller as well.
    if leaf.hosts != hosts.iter().cloned().collect::<BTreeSet<_>>() {
        return Decision::Sign(Reason::Names);
    }
    // One that ends with its issuer gains nothing: its issuer's successor will sign the next one.
    let ends_with_issuer = leaf.not_after >= ca.not_after;
    let due = if ends_with_issuer { leaf.not_after } else { renewal(&leaf, policy) };
    if now >= due { Decision::Sign(Reason::Renewal) } else { Decision::Current { until: due } }
}

/// Signs a new pair. `key` is new. `None` where [`decide`] would wait.
pub(super) fn sign(
    state: &ClusterState,
    policy: &Policy,
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<Option<StoredPair>, SignError> {
    let Some(names) = &state.infrastructure.reference_names else { return Ok(None) };
    if ca(state, now)?.is_none() {
        return Ok(None);
    }
    Ok(issue_pair(&cas(state)?, policy, &hosts(names)?, key, now)?)
}

/// Why no pair was signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// The write of a new pair.
pub(super) fn pair_write(
    state: &ClusterState,
    pair: &StoredPair,
) -> Result<SecretWrite, Malformed> {
    let object = object();
    let present = state.release_image_pair.as_ref();
    let present = present.ok_or_else(|| object.malformed("it is not there"))?;
    let precondition = Precondition::of(&object, &present.metadata)?;
    let patch = MergePatch::new(precondition, std::collections::BTreeMap::new(), pair_data(pair));
    Ok(ObjectWrite { object, change: Change::Patch(patch) })
}

/// The secret of the pair.
pub(super) fn object() -> ObjectName {
    ObjectName::secret(NAMESPACE, RELEASE_IMAGE_PAIR)
}

/// The names that the pair has to have, the API server's first.
fn hosts(names: &ReferenceNames) -> Result<Vec<Host>, Malformed> {
    let names = names.release_image().into_iter().filter(|name| !name.is_empty());
    let hosts = names.map(|name| {
        name.parse().map_err(|error| super::Infrastructure::object().malformed(format!("{error}")))
    });
    let mut hosts = hosts.collect::<Result<Vec<Host>, _>>()?;
    hosts.sort_by_key(|host| !matches!(host, Host::Name(name) if name != "localhost"));
    Ok(hosts)
}

/// The CA that signs. Only one that those who trust the bundle trust.
fn ca(state: &ClusterState, now: OffsetDateTime) -> Result<Option<Certificate>, Malformed> {
    let trusted = state.trusted()?;
    Ok(signing_ca(&cas(state)?, now).filter(|ca| trusted.contains(ca)))
}

/// What is there of CAs.
fn cas(state: &ClusterState) -> Result<CertificateState, Malformed> {
    Ok(CertificateState {
        ca: state.ca.as_ref().map(stored_pair),
        bundle: Some(state.trusted()?.iter().map(Certificate::to_pem).collect::<String>().into()),
        ..CertificateState::default()
    })
}

#[cfg(test)]
mod tests;
