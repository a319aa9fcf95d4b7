//! Plans a rotation: the steps that are due, their order, and the time of the next look.
//!
//! The order of the steps keeps every machine able to boot. A new CA is made together with the cross-certificates that
//! lead from older ones to it; it goes into the bundle, then into every pointer config, and only then signs the serving
//! certificate. After any step, even if the process dies, the served chain verifies for every pointer config whose CA
//! has not expired, and the next plan continues from there.
//!
//! ```text
//!  Ca ─> Bundle ─> Pointers ─> Serving
//! ```
//!
//! A plan only proposes. Each step is made and judged before anything is written, and [`next`](super::next()) skips a
//! step that would lock a machine out.

use time::{Duration, OffsetDateTime};

use super::certificate::{Certificate, unique};
use super::chain::MAX_CHAIN_BYTES;
use super::hosts::Host;
use super::keys::KeyAlgorithm;
use super::lockout::handshake_bytes;
use super::reason::{Reason, Unusable};
use super::state::{External, PointerState};
use super::view::{Serving, View};
use super::warning::{CertificateKind, Refusal, Warning};

/// Default validity: ten years of 365 days.
pub const VALIDITY: Duration = Duration::days(10 * 365);
/// Default age at renewal: eight years of 365 days.
pub const RENEWAL: Duration = Duration::days(8 * 365);

/// Settings for issued certificates.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Validity of a certificate.
    pub validity: Duration,
    /// Age at which a certificate is renewed.
    pub renewal: Duration,
    /// Algorithm of generated keys.
    pub algorithm: KeyAlgorithm,
}

impl Default for Policy {
    fn default() -> Self {
        Self { validity: VALIDITY, renewal: RENEWAL, algorithm: KeyAlgorithm::default() }
    }
}

/// Time within which a second requested rotation counts as the same one.
const ONE_ROTATION: Duration = Duration::hours(1);

/// Assumed difference between the clocks of several machines, and of a clock before and after it is set.
const CLOCKS_DIFFER: Duration = Duration::minutes(5);

/// The next step. After it, observe and plan again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a new CA.
    Ca(Reason),
    /// Store the CAs in another order, or without distrusted ones.
    Store(Reason),
    /// Write this bundle, PEM.
    Bundle(String),
    /// Update every stale pointer config to the bundle.
    Pointers,
    /// Serve another pair; the hosts are for one that is issued.
    Serving(Reason, Vec<Host>),
}

/// The steps that are due.
#[derive(Debug, Default)]
pub(super) struct RotationPlan {
    /// Steps in the order of preference.
    pub(super) steps: Vec<Step>,
    /// Faults that no step can repair.
    pub(super) attention: Vec<Warning>,
    /// Times at which something may become due without any change.
    pub(super) times: Vec<OffsetDateTime>,
}

pub(super) fn plan(view: &View<'_>, policy: &Policy) -> RotationPlan {
    let mut plan = RotationPlan::default();
    // No machine boots from an expired pair. The clock may have been set back into the validity of a replaced one,
    // whose CAs are still in bundle and pointer configs, so that restoring it comes first.
    if view.chain.first().is_some_and(|leaf| !leaf.is_valid_at(view.now)) {
        plan.steps.push(Step::Serving(Reason::Restored, Vec::new()));
    }
    plan.ca(view, policy);
    plan.bundle(view);
    if view.state.pointers.iter().any(|it| matches!(it.state, PointerState::Stale(_))) {
        plan.steps.push(Step::Pointers);
    }
    match &view.state.external {
        Some(external) => plan.external(view, external),
        None => plan.serving(view, policy),
    }
    plan.weak_keys(view);
    plan
}

/// Time at which a certificate is due for renewal: two years before it ends by default, or with a fifth of its validity
/// left if that is later, as for validities of less than ten years.
pub fn renewal(certificate: &Certificate, policy: &Policy) -> OffsetDateTime {
    renewal_between(certificate.not_before, certificate.not_after, policy)
}

fn renewal_between(begin: OffsetDateTime, end: OffsetDateTime, policy: &Policy) -> OffsetDateTime {
    let fifth: Duration = (end - begin) / 5;
    end.saturating_sub(fifth.min(policy.validity - policy.renewal))
}

/// First moment at which a certificate is expired; never for one without an end.
fn after(certificate: &Certificate) -> OffsetDateTime {
    certificate.not_after.saturating_add(Duration::SECOND)
}

/// Renewal time of a serving certificate, which may begin long before its issuer.
fn serving_renewal(view: &View<'_>, leaf: &Certificate, policy: &Policy) -> OffsetDateTime {
    let issuer = view.store.issuer_of(leaf).map(|ca| ca.certificate.not_before);
    let begin = issuer.map_or(leaf.not_before, |begin| leaf.not_before.max(begin));
    renewal_between(begin, leaf.not_after, policy)
}

/// Requested CAs that are not distrusted yet.
pub(super) fn to_distrust(view: &View<'_>) -> Vec<Certificate> {
    let wanted: Vec<_> = view.state.requested.distrust.iter().map(|text| text.trim()).collect();
    let is_wanted = |ca: &&Certificate| wanted.iter().any(|text| ca.is_called(text));
    view.known_cas().into_iter().filter(is_wanted).cloned().collect()
}

impl RotationPlan {
    fn ca(&mut self, view: &View<'_>, policy: &Policy) {
        let View { store, now, .. } = view;
        let requested = &view.state.requested;
        if let Some(fault) = &view.fault {
            self.attention.push(Warning::Ca(fault.clone()));
            if requested.ca && requested.force {
                self.steps.push(Step::Ca(Reason::Requested));
            }
            return;
        }
        let behind = clock_behind(view, &[]);
        let distrusted = to_distrust(view);
        if !distrusted.is_empty() && (behind.is_none() || can_go_on_without(view, &distrusted)) {
            self.steps.push(Step::Store(Reason::Distrusted));
        }
        if let Some(external) = &view.state.external {
            if requested.ca {
                self.refuse_requested_ca(Refusal::External(external.name.clone()));
            }
            return;
        }
        let (signers, best) = (store.signers(), store.signer_at(*now));
        let reason = match best {
            None if view.state.ca.is_none() => Some(Reason::Missing),
            None => Some(Reason::Expired),
            Some(best) => {
                let due = renewal(&best.certificate, policy);
                self.times.push(due);
                let is_followed = signers.iter().any(|ca| {
                    ca.certificate.made_at() > best.certificate.made_at()
                        && ca.certificate.not_before <= best.certificate.not_after
                });
                let is_due = (due <= *now && !is_followed).then_some(Reason::Renewal);
                let elsewhere = view.state.issuer.as_ref().filter(|issuer| !issuer.has_issued);
                is_due.or(elsewhere.map(|issuer| Reason::Issuer(issuer.name.clone())))
            }
        };
        // A CA that expires before the clock catches up is renewed in spite of the clock.
        self.steps.extend(
            reason.filter(|reason| behind.is_none() || *reason == Reason::Renewal).map(Step::Ca),
        );
        if requested.ca && best.is_some() {
            self.requested_ca(view, requested.force, behind.is_some());
        }
        if let (Some(best), Some(own)) = (best, store.cas.first())
            && own.certificate != best.certificate
        {
            self.steps.push(Step::Store(Reason::Selected));
        }
        self.times.extend(store.certificates().map(|ca| ca.not_before));
        self.attention.extend(behind);
    }

    /// Adds the step that an administrator's request for a new CA leads to.
    fn requested_ca(&mut self, view: &View<'_>, is_forced: bool, is_clock_behind: bool) {
        let step = match just_rotated(view) {
            false if is_forced => Step::Ca(Reason::Requested),
            _ if is_clock_behind => return self.refuse_requested_ca(Refusal::Clock),
            true if !is_forced => Step::Store(Reason::Joined),
            _ => Step::Ca(Reason::Requested),
        };
        self.steps.push(step);
    }

    fn refuse_requested_ca(&mut self, refusal: Refusal) {
        self.attention.push(refusal.of(CertificateKind::Ca, &Reason::Requested).into());
    }

    /// Reports weak keys that sign or serve. An administrator provided them: this server generates none.
    fn weak_keys(&mut self, view: &View<'_>) {
        let signer = view.store.signer_at(view.now).map(|ca| &ca.certificate);
        let mut named: Vec<&Certificate> = Vec::new();
        for certificate in signer.into_iter().chain(&view.chain) {
            // Several certificates can share a key.
            let is_named = named.iter().any(|it| it.has_key_of(certificate));
            if let Some(weakness) = certificate.weakness().filter(|_| !is_named) {
                named.push(certificate);
                let name = certificate.title();
                self.attention.push(Warning::WeakKey { name, weakness });
            }
        }
    }

    fn bundle(&mut self, view: &View<'_>) {
        let wanted = wanted_bundle(view);
        if wanted.is_empty() {
            return;
        }
        // An expired certificate leaves the bundle right after its end.
        self.times.extend(wanted.iter().map(after));
        let present = &view.bundle;
        let is_same = present.len() == wanted.len() && wanted.iter().all(|it| present.contains(it));
        let leads = present.first().is_some_and(|first| view.vouches(first));
        let could_lead = wanted.first().is_some_and(|first| view.vouches(first));
        let is_misled = could_lead && !leads && !view.state.is_shared;
        if !is_same || is_misled {
            self.steps.push(Step::Bundle(wanted.iter().map(Certificate::to_pem).collect()));
        }
    }

    /// Plans for a pair that is made outside of this server. Taking it checks who trusts it.
    fn external(&mut self, view: &View<'_>, external: &External) {
        if let Some(fault) = external.fault() {
            self.attention.push(Warning::External { name: external.name.clone(), fault });
            return;
        }
        let certificates = external.certificates();
        let Some(leaf) = certificates.first() else { return };
        self.attention.extend(view.external.dropped.clone());
        self.attention.extend(external.unread());
        self.times.extend([leaf.not_before, after(leaf)]);
        if !leaf.is_valid_at(view.now) {
            let fault = Unusable::NotValid;
            self.attention.push(Warning::External { name: external.name.clone(), fault });
        } else if view.chain.first() != Some(leaf) || view.state.requested.serving {
            let reason = Reason::External(external.name.clone());
            self.steps.push(Step::Serving(reason, Vec::new()));
        }
    }

    fn serving(&mut self, view: &View<'_>, policy: &Policy) {
        let hosts = wanted_hosts(view);
        match &view.serving {
            Serving::Unusable { fault, is_foreign: true } => {
                self.attention.push(Warning::Serving(fault.clone()));
            }
            Serving::Foreign { leaf, is_known: false }
                if !leaf.is_valid_at(view.now) && !view.state.requested.serving =>
            {
                self.attention.push(Warning::ServingExpired);
            }
            _ => {}
        }
        if let Serving::Ours(leaf) | Serving::Foreign { leaf, .. } = &view.serving {
            self.times.extend([leaf.not_before, serving_renewal(view, leaf, policy)]);
            self.times.push(after(leaf));
        }
        // Without hosts there is no certificate to issue.
        if !hosts.is_empty() {
            let reason = serving_reason(view, &hosts, policy);
            self.steps.extend(reason.map(|reason| Step::Serving(reason, hosts)));
        }
        if view.lockouts_now() > 0 {
            self.steps.push(Step::Serving(Reason::Restored, Vec::new()));
        }
        let is_ours = matches!(view.serving, Serving::Ours(_));
        let is_too_long = handshake_bytes(&view.chain) > MAX_CHAIN_BYTES;
        if is_ours && (view.lockouts_now() > 0 || is_too_long || view.sends_distrusted()) {
            self.steps.push(Step::Serving(Reason::Chain, Vec::new()));
        }
    }
}

/// Reason why another pair is due. Whether it locks machines out is judged later.
fn serving_reason(view: &View<'_>, hosts: &[Host], policy: &Policy) -> Option<Reason> {
    let requested = &view.state.requested;
    let signers = view.store.signers_at(view.now);
    let newest = signers.first()?;
    let is_due = |leaf: &Certificate| {
        let can_renew = signers.iter().any(|ca| can_renew(view, leaf, &ca.certificate));
        view.now >= serving_renewal(view, leaf, policy) && can_renew
    };
    match &view.serving {
        Serving::Missing => Some(Reason::Missing),
        Serving::Distrusted => Some(Reason::Distrusted),
        Serving::Unusable { is_foreign: true, .. } => {
            (requested.serving && requested.force).then_some(Reason::Requested)
        }
        Serving::Unusable { fault, .. } => Some(if view.chain.is_empty() {
            Reason::Unreadable
        } else {
            Reason::Unusable(fault.clone())
        }),
        Serving::Foreign { leaf, is_known } => {
            if requested.serving {
                Some(Reason::Requested)
            } else if !is_known {
                requested.force.then_some(Reason::NewerCa)
            } else if !leaf.is_valid_at(view.now) {
                Some(Reason::Expired)
            } else if is_due(leaf) {
                Some(Reason::Renewal)
            } else {
                let missing = used_hosts(view).find(|host| !leaf.hosts.contains(host));
                Some(missing.cloned().map_or(Reason::NewerCa, Reason::Host))
            }
        }
        Serving::Ours(leaf) => {
            if !leaf.is_valid_at(view.now) {
                return Some(Reason::Expired);
            }
            if requested.serving {
                return Some(Reason::Requested);
            }
            if view.chain.iter().any(|sent| view.store.is_tainted(sent)) {
                return Some(Reason::Distrusted);
            }
            if let Some(host) = hosts.iter().find(|host| !leaf.hosts.contains(host)) {
                return Some(Reason::Host(host.clone()));
            }
            let issuer = view.store.issuer_of(leaf)?;
            // If two CAs were made in the same second, the first is the one that the store names.
            if issuer.certificate != newest.certificate
                && issuer.certificate.made_at() <= newest.certificate.made_at()
            {
                return Some(Reason::NewerCa);
            }
            is_due(leaf).then_some(Reason::Renewal)
        }
    }
}

/// Returns `true` if a certificate of this CA can replace a leaf that is about to expire: it ends later, and no newer
/// CA would replace it again.
pub(super) fn can_renew(view: &View<'_>, leaf: &Certificate, ca: &Certificate) -> bool {
    let issuer = view.store.issuer_of(leaf).map(|issuer| &issuer.certificate);
    let stays = issuer.is_none_or(|issuer| ca == issuer || ca.made_at() > issuer.made_at());
    ca.not_after > leaf.not_after && stays
}

/// Returns `true` if no CA has to be made while the clock is behind when these are distrusted: only they are newer than
/// the clock, or another CA can sign.
fn can_go_on_without(view: &View<'_>, distrusted: &[Certificate]) -> bool {
    let stays = |ca: &Certificate| !distrusted.iter().any(|it| it.has_key_of(ca));
    clock_behind(view, distrusted).is_none()
        || view.store.signers_at(view.now).iter().any(|ca| stays(&ca.certificate))
}

/// Warning about the newest CA except `without` if it was made later than now, so that the clock is behind.
fn clock_behind(view: &View<'_>, without: &[Certificate]) -> Option<Warning> {
    let mut anchors = view.known_cas();
    anchors.retain(|ca| !without.iter().any(|it| it.has_key_of(ca)));
    let newest = anchors.into_iter().max_by_key(|ca| ca.made_at())?;
    let made = newest.made_at();
    (view.now.saturating_add(CLOCKS_DIFFER) < made)
        .then(|| Warning::ClockBehind { name: newest.title(), made })
}

/// Returns `true` if a CA was replaced within [`ONE_ROTATION`]. The first CA replaces none.
fn just_rotated(view: &View<'_>) -> bool {
    let signers = view.store.signers();
    let newest = signers.first().map(|ca| ca.certificate.made_at());
    signers.len() > 1 && newest.is_some_and(|made| view.now < made.saturating_add(ONE_ROTATION))
}

/// Every CA that a machine may need to trust. The first one vouches for the served chain, because clients older than
/// Ignition 2.4 read only the first; then the newest first. None is omitted for its size: a machine that trusts the
/// oldest CA boots after a backup of that time was restored.
fn wanted_bundle(view: &View<'_>) -> Vec<Certificate> {
    let signers = view.store.signers();
    let can_sign = |ca: &Certificate| signers.iter().any(|signer| signer.certificate == *ca);
    let is_wanted = |ca: &&Certificate| {
        ca.signing_fault().is_none()
            && (view.bundle.contains(ca) || can_sign(ca) || view.is_top(ca) || view.vouches(ca))
            && !is_succeeded(view, ca)
    };
    let mut wanted: Vec<_> = view.anchors().into_iter().filter(is_wanted).collect();
    wanted.sort_by_key(|ca| std::cmp::Reverse(ca.made_at()));
    let leading = wanted.iter().position(|ca| view.vouches(ca));
    if let Some(leading) = leading {
        let first = wanted.remove(leading);
        wanted.insert(0, first);
    } else if let Serving::Foreign { .. } = view.serving {
        // A chain with intermediates implies that its topmost CA is to be trusted.
        wanted.splice(0..0, view.top().filter(|top| top.signing_fault().is_none()));
    }
    wanted.into_iter().cloned().collect()
}

/// Returns `true` if a CA has expired, and one that was made during its validity has replaced it. Without a successor,
/// the clock may have jumped, and the CA is needed again when it jumps back.
fn is_succeeded(view: &View<'_>, ca: &Certificate) -> bool {
    let takes_its_place = |other: &Certificate| {
        other.made_at() > ca.made_at()
            && other.made_at() <= ca.not_after
            && other.is_valid_at(view.now)
    };
    ca.not_after < view.now && view.store.certificates().chain(&view.bundle).any(takes_its_place)
}

/// Hosts that machines are known to use.
fn used_hosts<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Host> {
    let given = view.state.hosts.iter().filter(|_| view.state.are_hosts_used);
    given.chain(view.state.pointers.iter().flat_map(|pointer| &pointer.hosts))
}

/// The configured hosts, every one in a pointer config, and all of the previous certificate: pointer configs that were
/// exported long ago may use any of them.
pub(super) fn wanted_hosts(view: &View<'_>) -> Vec<Host> {
    let mut used: Vec<_> = view.state.pointers.iter().flat_map(|it| &it.hosts).collect();
    used.sort();
    let served = view.chain.first().into_iter().flat_map(|leaf| &leaf.hosts);
    unique(view.state.hosts.iter().chain(used).chain(served)).into_iter().cloned().collect()
}
