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
//!
//! Verifiers differ in how they find a way from the serving certificate to an authority that they
//! trust. Some try every way but bound its length (webpki at six certificates, as Go bounds its
//! work); OpenSSL takes the first certificate of an issuer's name that it meets and never turns
//! back. So both kinds of ways are sent: the new authority signed by each older one, a short way to
//! any of them, and each older one signed by the one before it, a way along which every authority
//! lies, which comes first. For the short ways, older authorities' keys are kept until their
//! certificates expire. That puts nothing else at risk: whoever holds the current key is trusted
//! by all who trust an older one.

use std::collections::BTreeSet;

use rcgen::KeyPair;
use time::{Duration, OffsetDateTime};

use super::certificate::{read_key, read_keys};
use super::issue::{
    IssueError, KeyAlgorithm, RENEWAL, Signer, VALIDITY, cross_sign, issue_authority, issue_serving,
};
use super::{Certificate, Host};

/// How certificates are made, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long a certificate is valid.
    pub validity: Duration,
    /// How long it is used before it is renewed.
    pub renewal: Duration,
    /// What kind of keys are made.
    pub algorithm: KeyAlgorithm,
}

impl Default for Policy {
    fn default() -> Self {
        Self { validity: VALIDITY, renewal: RENEWAL, algorithm: KeyAlgorithm::default() }
    }
}

/// A certificate with its key and what goes with it, as it is stored: PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredPair {
    /// The certificate. For a serving pair, the cross-signed authorities follow it.
    pub certificates: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
    /// For an authority: its name and key as older ones signed them, and the older ones'
    /// certificates and keys.
    pub previous: Vec<u8>,
}

impl std::fmt::Debug for StoredPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredPair")
            .field("certificates", &Certificate::read_all(&self.certificates))
            .finish_non_exhaustive()
    }
}

/// A pointer config, as far as certificates go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer {
    /// Whether it trusts other authorities than the bundle holds.
    pub is_stale: bool,
    /// Whether writing it was refused: others do not wait for it.
    pub is_refused: bool,
    /// The hosts that it sends machines to.
    pub hosts: Vec<Host>,
}

/// Everything that a plan depends on.
#[derive(Debug, Clone, Default)]
pub struct CertificateState {
    /// The signing authority.
    pub authority: Option<StoredPair>,
    /// The bundle of authorities that pointer configs trust, PEM.
    pub bundle: Option<Vec<u8>>,
    /// The serving pair.
    pub serving: Option<StoredPair>,
    /// An older installation's authority, whose key was never kept, PEM.
    pub root_authority: Option<Vec<u8>>,
    /// The pointer configs.
    pub pointers: Vec<Pointer>,
    /// The names that machines may reach the server by, the main one first.
    pub hosts: Vec<Host>,
    /// Whether somebody asked for a new authority.
    pub authority_asked: bool,
    /// Whether somebody asked for a new serving pair.
    pub serving_asked: bool,
}

/// Why something is made anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// What there is cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The key is missing or another one's.
    #[error("its key is missing or does not belong to it")]
    Key,
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    Expired,
    /// It has been used for as long as it should.
    #[error("it is due for renewal")]
    Renewal,
    /// It lacks a name that machines ask for.
    #[error("it does not name {0}")]
    Host(Host),
    /// Its issuer is not trusted by new machines.
    #[error("its issuer is not in the bundle")]
    Issuer,
    /// There is a newer authority, which those who trust the older ones trust too.
    #[error("there is a newer authority")]
    NewerAuthority,
    /// Somebody asked for it.
    #[error("it was asked for")]
    Asked,
}

impl Reason {
    /// How metrics and events name it.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Key => "key",
            Self::Expired => "expired",
            Self::Renewal => "renewal",
            Self::Host(_) => "host",
            Self::Issuer => "issuer",
            Self::NewerAuthority => "newer-authority",
            Self::Asked => "asked",
        }
    }
}

/// What to do next. After it, observe and plan again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a new authority, with [`new_authority`].
    Authority(Reason),
    /// Write this bundle, PEM.
    Bundle(Vec<u8>),
    /// Put the bundle into every pointer config that is stale.
    Pointers,
    /// Make a new serving pair, with [`new_serving`], for these hosts.
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
pub fn plan(observed: &CertificateState, policy: &Policy, now: OffsetDateTime) -> RotationPlan {
    let now_do = |step| RotationPlan { step: Some(step), requeue_at: now };
    let authority = match Authority::read(observed.authority.as_ref()) {
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
    if observed.authority_asked {
        return now_do(Step::Authority(Reason::Asked));
    }
    let mut requeue_at = due;
    let mut requeue_by = |time: OffsetDateTime| requeue_at = requeue_at.min(time);

    let bundle = wanted_bundle(observed, &authority, now);
    for certificate in &bundle {
        // Right after its end it has to leave the bundle.
        requeue_by(certificate.not_after + Duration::SECOND);
    }
    let present = Certificate::read_all(observed.bundle.as_deref().unwrap_or_default());
    let identity = |list: &[Certificate]| -> BTreeSet<Vec<u8>> {
        list.iter().map(|certificate| certificate.der().to_vec()).collect()
    };
    if identity(&present) != identity(&bundle) {
        return now_do(Step::Bundle(bundle_pem(&bundle)));
    }
    if observed.pointers.iter().any(|pointer| pointer.is_stale && !pointer.is_refused) {
        return now_do(Step::Pointers);
    }

    let hosts = wanted_hosts(observed);
    if let Some(reason) = serving_reason(observed, &authority, &bundle, &hosts, policy, now) {
        return now_do(Step::Serving(reason, hosts));
    }
    if let Some(leaf) = observed.serving.as_ref().and_then(leaf) {
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

/// Makes the authority that [`Step::Authority`] asks for, signed also by the one before where its
/// key is at hand. `key` is new.
pub fn new_authority(
    observed: &CertificateState,
    policy: &Policy,
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<StoredPair, IssueError> {
    let certificate = issue_authority(key, policy.validity, now)?;
    let new = Signer { certificate: &certificate, key };
    let mut previous = String::new();
    if let Ok(old) = Authority::read(observed.authority.as_ref()) {
        let older: Vec<_> = old.line().filter(|older| older.certificate.is_valid_at(now)).collect();
        for PreviousCa { certificate, key, .. } in &older {
            previous += &cross_sign(&new, &Signer { certificate, key }, now)?.to_pem();
        }
        for PreviousCa { certificate, key, cross_certificate } in &older {
            previous += &cross_certificate.map(Certificate::to_pem).unwrap_or_default();
            previous += &certificate.to_pem();
            previous += &key.serialize_pem();
        }
    }
    Ok(StoredPair {
        certificates: certificate.to_pem().into(),
        key: key.serialize_pem().into(),
        previous: previous.into(),
    })
}

/// Makes the serving pair that [`Step::Serving`] asks for, `None` if there is no authority to sign
/// it. `key` is new.
pub fn new_serving(
    observed: &CertificateState,
    policy: &Policy,
    hosts: &[Host],
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<Option<StoredPair>, IssueError> {
    let Ok(authority) = Authority::read(observed.authority.as_ref()) else { return Ok(None) };
    let leaf = issue_serving(key, hosts, &authority.signer(), policy.validity, now)?;
    let mut certificates = leaf.to_pem();
    let cross_certificates = authority
        .previous
        .iter()
        .filter_map(|(_, _, cross_certificate)| cross_certificate.as_ref());
    let cross_certificates = authority.cross_signed.iter().chain(cross_certificates);
    certificates.extend(
        cross_certificates
            .filter(|certificate| certificate.is_valid_at(now))
            .map(Certificate::to_pem),
    );
    Ok(Some(StoredPair {
        certificates: certificates.into(),
        key: key.serialize_pem().into(),
        previous: Vec::new(),
    }))
}

/// The authority, read.
struct Authority {
    certificate: Certificate,
    key: KeyPair,
    /// Its name and key as older authorities signed them, the newest of these first.
    cross_signed: Vec<Certificate>,
    /// The older authorities, newest first: each one's own certificate, its key, and its name and
    /// key as the one before it signed them.
    previous: Vec<(Certificate, KeyPair, Option<Certificate>)>,
}

/// An authority as its successors see it.
struct PreviousCa<'a> {
    certificate: &'a Certificate,
    key: &'a KeyPair,
    /// Its name and key as the one before it signed them.
    cross_certificate: Option<&'a Certificate>,
}

impl Authority {
    fn read(stored: Option<&StoredPair>) -> Result<Self, Reason> {
        let stored = stored.ok_or(Reason::Missing)?;
        let certificate = leaf(stored).ok_or(Reason::Unreadable)?;
        let key = read_key(&stored.key).filter(|key| certificate.matches(key));
        let key = key.ok_or(Reason::Key)?;
        let previous = Certificate::read_all(&stored.previous);
        let (cross_signed, older): (Vec<_>, Vec<_>) =
            previous.into_iter().partition(|other| other.matches(&key));
        let cross_signed = cross_signed.into_iter().filter(|other| *other != certificate).collect();
        let previous = read_keys(&stored.previous).filter_map(|key| {
            let (own, cross_certificates): (Vec<_>, Vec<_>) = older
                .iter()
                .filter(|certificate| certificate.matches(&key))
                .cloned()
                .partition(|certificate| certificate.issuer == certificate.common_name);
            Some((own.into_iter().next()?, key, cross_certificates.into_iter().next()))
        });
        let previous = previous.collect();
        Ok(Self { certificate, key, cross_signed, previous })
    }

    /// This authority and those before it, newest first.
    fn line(&self) -> impl Iterator<Item = PreviousCa<'_>> {
        let Self { certificate, key, cross_signed, previous } = self;
        let own = PreviousCa { certificate, key, cross_certificate: cross_signed.first() };
        let older = previous.iter().map(|(certificate, key, cross_certificate)| PreviousCa {
            certificate,
            key,
            cross_certificate: cross_certificate.as_ref(),
        });
        std::iter::once(own).chain(older)
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: &self.certificate, key: &self.key }
    }
}

fn leaf(stored: &StoredPair) -> Option<Certificate> {
    Certificate::read_all(&stored.certificates).into_iter().next()
}

/// Every authority that a machine may need to trust, newest first: clients older than Ignition 2.4
/// read the first one only.
fn wanted_bundle(
    observed: &CertificateState,
    authority: &Authority,
    now: OffsetDateTime,
) -> Vec<Certificate> {
    let mut wanted = vec![authority.certificate.clone()];
    let older = observed.bundle.as_deref().unwrap_or_default();
    let mut others = Certificate::read_all(older);
    let served = observed.serving.as_ref().and_then(leaf);
    let roots = Certificate::read_all(observed.root_authority.as_deref().unwrap_or_default());
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

fn bundle_pem(certificates: &[Certificate]) -> Vec<u8> {
    certificates.iter().map(Certificate::to_pem).collect::<String>().into()
}

/// The names given, and every one that a pointer config sends machines to; where there are none,
/// those that the serving certificate has.
fn wanted_hosts(observed: &CertificateState) -> Vec<Host> {
    let mut hosts = observed.hosts.clone();
    let used: BTreeSet<_> =
        observed.pointers.iter().flat_map(|p| p.hosts.iter().cloned()).collect();
    hosts.extend(used.into_iter().filter(|host| !observed.hosts.contains(host)));
    if hosts.is_empty() {
        let served = observed.serving.as_ref().and_then(leaf);
        hosts.extend(served.into_iter().flat_map(|leaf| leaf.hosts));
    }
    hosts
}

fn serving_reason(
    observed: &CertificateState,
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
    let Some(serving) = &observed.serving else { return Some(Reason::Missing) };
    let Some(leaf) = leaf(serving) else { return Some(Reason::Unreadable) };
    let has_key = read_key(&serving.key).is_some_and(|key| leaf.matches(&key));
    if !has_key {
        return Some(Reason::Key);
    }
    if !leaf.is_valid_at(now) {
        return Some(Reason::Expired);
    }
    if observed.serving_asked {
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
