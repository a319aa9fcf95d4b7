//! What has to be done about the certificates, and when to look again: a pure plan.
//!
//! The order of the steps is what keeps every machine able to boot. A new authority is made
//! together with certificates by which those who trust an older one trust it too (cross-signed,
//! sent after the serving certificate); it goes into the bundle, then into every pointer config,
//! and only then does it sign the serving certificate. After any step, with whatever process
//! dies, what is there verifies for every pointer config whose authority has not expired, and the
//! next plan goes on from there.
//!
//! ```text
//!  Authority (new pair, cross-signatures) ─> Bundle ─> Pointers ─> Serving
//! ```

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use super::authority::Authority;
use super::certificate::read_key;
use super::{Certificate, CertificateState, Host, PointerState, Policy, Reason};

/// What to do next. After it, observe and plan again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a new authority.
    Authority(Reason),
    /// Write this bundle, PEM.
    Bundle(String),
    /// Put the bundle into every pointer config that is stale.
    Pointers,
    /// Make a new serving pair for these hosts.
    Serving(Reason, Vec<Host>),
}

/// A step, if there is one, and when to look again if nothing else happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationPlan {
    /// What to do now.
    pub step: Option<Step>,
    /// When something will be due by itself.
    pub requeue_at: OffsetDateTime,
}

/// Decides what is to be done at `now`.
#[must_use]
pub fn plan(state: &CertificateState, policy: &Policy, now: OffsetDateTime) -> RotationPlan {
    let now_do = |step| RotationPlan { step: Some(step), requeue_at: now };
    let authority = match Authority::read(state.authority.as_ref()) {
        Ok(authority) => authority,
        Err(reason) => return now_do(Step::Authority(reason)),
    };
    let due = renewal(&authority.certificate, policy);
    if !authority.certificate.is_valid_at(now) {
        return now_do(Step::Authority(Reason::Expired));
    }
    if now >= due {
        return now_do(Step::Authority(Reason::Renewal));
    }
    if state.asked.authority {
        return now_do(Step::Authority(Reason::Asked));
    }
    let mut requeue_at = due;
    let mut requeue_by = |time: OffsetDateTime| requeue_at = requeue_at.min(time);

    let bundle = wanted_bundle(state, &authority, now);
    for certificate in &bundle {
        // Right after its end it has to leave the bundle.
        requeue_by(certificate.not_after + Duration::SECOND);
    }
    let present = state.trusted();
    let identity = |list: &[Certificate]| -> BTreeSet<Vec<u8>> {
        list.iter().map(|certificate| certificate.der().to_vec()).collect()
    };
    if identity(&present) != identity(&bundle) {
        return now_do(Step::Bundle(bundle_pem(&bundle)));
    }
    if state.pointers.iter().any(|pointer| matches!(pointer.state, PointerState::Stale(_))) {
        return now_do(Step::Pointers);
    }

    let hosts = wanted_hosts(state);
    if let Some(reason) = serving_reason(state, &authority, &bundle, &hosts, policy, now) {
        return now_do(Step::Serving(reason, hosts));
    }
    if let Some(leaf) = state.served() {
        requeue_by(renewal(&leaf, policy));
    }
    RotationPlan { step: None, requeue_at }
}

/// When a certificate is due: after the time that the policy gives, or after four fifths of its
/// validity where that is sooner, as it is for one that was cut short by its issuer's end.
#[must_use]
pub fn renewal(certificate: &Certificate, policy: &Policy) -> OffsetDateTime {
    let validity = certificate.not_after - certificate.not_before;
    (certificate.not_before + policy.renewal).min(certificate.not_before + validity * 4 / 5)
}

/// Every authority that a machine may need to trust, newest first: clients older than Ignition 2.4
/// read the first one only.
fn wanted_bundle(
    state: &CertificateState,
    authority: &Authority,
    now: OffsetDateTime,
) -> Vec<Certificate> {
    let mut wanted = vec![authority.certificate.clone()];
    let mut others = state.trusted();
    let served = state.served();
    let roots = Certificate::read_all(state.root_authority.as_deref().unwrap_or_default());
    // The old installation's authority, as long as it vouches for what is served.
    others.extend(
        roots
            .into_iter()
            .filter(|root| served.as_ref().is_some_and(|leaf| leaf.is_issued_by(root))),
    );
    others.sort_by_key(|certificate| std::cmp::Reverse(certificate.not_before));
    for other in others {
        if other.not_after >= now && !wanted.contains(&other) {
            wanted.push(other);
        }
    }
    wanted
}

fn bundle_pem(certificates: &[Certificate]) -> String {
    certificates.iter().map(Certificate::to_pem).collect()
}

/// The names given, and every one that a pointer config sends machines to; where there are none,
/// those that the serving certificate has.
fn wanted_hosts(state: &CertificateState) -> Vec<Host> {
    let mut hosts = state.hosts.clone();
    let used: BTreeSet<_> = state.pointers.iter().flat_map(|p| p.hosts.iter().cloned()).collect();
    hosts.extend(used.into_iter().filter(|host| !state.hosts.contains(host)));
    if hosts.is_empty() {
        let served = state.served();
        hosts.extend(served.into_iter().flat_map(|leaf| leaf.hosts));
    }
    hosts
}

fn serving_reason(
    state: &CertificateState,
    authority: &Authority,
    bundle: &[Certificate],
    hosts: &[Host],
    policy: &Policy,
    now: OffsetDateTime,
) -> Option<Reason> {
    if hosts.is_empty() {
        // Nothing to issue one for.
        return None;
    }
    let Some(serving) = &state.serving else { return Some(Reason::Missing) };
    let Some(leaf) = serving.leaf() else { return Some(Reason::Unreadable) };
    let has_key = read_key(&serving.key).is_some_and(|key| leaf.matches(&key));
    if !has_key {
        return Some(Reason::Key);
    }
    if !leaf.is_valid_at(now) {
        return Some(Reason::Expired);
    }
    if state.asked.serving {
        return Some(Reason::Asked);
    }
    if let Some(host) = hosts.iter().find(|host| !leaf.hosts.contains(host)) {
        return Some(Reason::Host(host.clone()));
    }
    let is_current = leaf.is_issued_by(&authority.certificate);
    if !is_current {
        if !bundle.iter().any(|trusted| leaf.is_issued_by(trusted)) {
            return Some(Reason::Issuer);
        }
        // Where the issuer signed its successor, whoever trusts it follows. Where its key was not
        // at hand, machines that trust only it would be locked out: it serves to its own end.
        let is_cross_signed = authority.cross_signed.iter().any(|cross_certificate| {
            bundle.iter().any(|trusted| {
                leaf.is_issued_by(trusted) && cross_certificate.is_issued_by(trusted)
            })
        });
        if is_cross_signed {
            return Some(Reason::NewerAuthority);
        }
    }
    (now >= renewal(&leaf, policy)).then_some(Reason::Renewal)
}
