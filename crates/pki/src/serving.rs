//! Chooses the serving pair: builds all candidates, judges them, and takes the first of those that lock out the fewest
//! machines.

use rcgen::KeyPair;
use time::OffsetDateTime;

use super::ca_store::Ca;
use super::certificate::{Certificate, pem_text};
use super::chain::MAX_CHAIN_BYTES;
use super::holder::{Lockout, LockoutReason};
use super::hosts::Host;
use super::issue::{Validity, issue_serving};
use super::lockout::handshake_bytes;
use super::plan::{Policy, can_renew};
use super::reason::{IssueError, Reason};
use super::state::{CertificateState, RotationRequest, StoredPair};
use super::view::{Serving, View};
use super::warning::{CertificateKind, Refusal, StepError};

/// Generates a key for a kind of certificate.
pub type Generate<'a> = &'a mut dyn FnMut(CertificateKind) -> Result<KeyPair, IssueError>;

struct Candidate<'a> {
    chain: Vec<Certificate>,
    key: CandidateKey<'a>,
}

enum CandidateKey<'a> {
    /// Text of an existing key.
    AtHand(Vec<u8>),
    /// The key is generated when it is needed, because that takes long for some algorithms. Until then a leaf with the
    /// key of this CA is judged: the key makes no difference to trust.
    Wanted(&'a Ca),
}

/// The pair to be served for this reason.
pub(super) fn choose(
    view: &View<'_>,
    policy: &Policy,
    reason: &Reason,
    hosts: &[Host],
    generate: Generate<'_>,
) -> Result<StoredPair, StepError> {
    let (candidates, failure) = match reason {
        Reason::Restored => (restored(view), None),
        Reason::Chain => (rechained(view)?.into_iter().collect(), None),
        Reason::External(_) => (external(view)?.into_iter().collect(), None),
        _ => issuable(view, policy, reason, hosts),
    };
    let is_forced = is_forced(&view.state.requested, reason);
    let before = view.lockouts_now();
    let must_repair = matches!(reason, Reason::Restored | Reason::Chain);
    let mut best: Option<(usize, Candidate<'_>)> = None;
    let mut refusal = None;
    for candidate in candidates {
        let is_external = matches!(reason, Reason::External(_));
        let new = view.new_lockouts(&candidate.chain, is_external);
        if !is_forced && let Some(objection) = objection(view, policy, &candidate, hosts, new)? {
            refusal.get_or_insert(objection);
            continue;
        }
        let count = view.lockouts_by(&candidate.chain, !must_repair);
        let is_better = best.as_ref().is_none_or(|(least, _)| count < *least);
        // Certificates that no machine needs now may be needed when the clock is right: only a lack of room removes
        // them.
        let is_too_long = handshake_bytes(&view.chain) > MAX_CHAIN_BYTES
            && handshake_bytes(&candidate.chain) < handshake_bytes(&view.chain);
        let is_cleaner = *reason == Reason::Chain && (is_too_long || view.sends_distrusted());
        if is_better && (!must_repair || count < before || (count == before && is_cleaner)) {
            best = Some((count, candidate));
        }
        // A forced rotation takes the newest candidate, even if it locks machines out.
        if is_forced || count == 0 {
            break;
        }
    }
    let Some((_, best)) = best else {
        let failure = failure.unwrap_or(IssueError::NoSigner);
        let refusal = refusal.unwrap_or_else(|| Refusal::Issue(failure.to_string()));
        return Err(refusal.of(CertificateKind::Serving, reason).into());
    };
    match best.key {
        CandidateKey::AtHand(key) => Ok(stored_pair(&best.chain, key)),
        CandidateKey::Wanted(ca) => {
            let key = generate(CertificateKind::Serving)?;
            let chain = issued(view, policy, ca, hosts, &key)?;
            Ok(stored_pair(&chain, key.serialize_pem().into()))
        }
    }
}

/// Chains of all CAs that can issue one, with the error of the last that cannot.
fn issuable<'a>(
    view: &'a View<'a>,
    policy: &Policy,
    reason: &Reason,
    hosts: &[Host],
) -> (Vec<Candidate<'a>>, Option<IssueError>) {
    let (mut candidates, mut failure) = (Vec::new(), None);
    for ca in signers(view, reason) {
        match ca.signer().and_then(|signer| issued(view, policy, ca, hosts, signer.key)) {
            Ok(chain) => candidates.push(Candidate { chain, key: CandidateKey::Wanted(ca) }),
            Err(error) => failure = Some(error),
        }
    }
    (candidates, failure)
}

/// Reason to refuse a candidate unless it is forced: it locks out machines that could boot, or is too long. The refusal
/// names the hosts if fewer of them would lock out none.
fn objection(
    view: &View<'_>,
    policy: &Policy,
    candidate: &Candidate<'_>,
    hosts: &[Host],
    locked_out: Vec<Lockout>,
) -> Result<Option<Refusal>, IssueError> {
    let CandidateKey::Wanted(ca) = candidate.key else {
        return Ok((!locked_out.is_empty()).then_some(Refusal::LocksOut(locked_out)));
    };
    // A chain that is too long already is renewed all the same.
    let is_too_long = handshake_bytes(&candidate.chain) > MAX_CHAIN_BYTES
        && handshake_bytes(&view.chain) <= MAX_CHAIN_BYTES
        && view.chain.first().is_some_and(|leaf| leaf.is_valid_at(view.now));
    let Some((leaf, _)) = candidate.chain.split_first() else { return Ok(None) };
    if locked_out.is_empty() && !is_too_long {
        return Ok(None);
    }
    let short = issued(view, policy, ca, &hosts[..hosts.len().min(1)], ca.signer()?.key)?;
    let unnamed = |lockout: &Lockout| matches!(lockout.reason, LockoutReason::Host(_));
    Ok(Some(if view.new_lockouts(&short, false).iter().all(unnamed) {
        let bytes = leaf.der().len();
        Refusal::Names { hosts: hosts.len(), bytes, locked_out }
    } else {
        Refusal::LocksOut(locked_out)
    }))
}

/// The CA that signs at `now`, `None` if none can.
pub fn signing_ca(state: &CertificateState, now: OffsetDateTime) -> Option<Certificate> {
    View::of(state, now).store.signer_at(now).map(|ca| ca.certificate.clone())
}

/// Issues a pair for another server by the CA that signs now, with the cross-certificates to older CAs. `None` if no CA
/// can sign.
pub fn issue_pair(
    state: &CertificateState,
    policy: &Policy,
    hosts: &[Host],
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<Option<StoredPair>, IssueError> {
    let view = View::of(state, now);
    let pair = |ca| {
        let chain = issued(&view, policy, ca, hosts, key)?;
        Ok(stored_pair(&chain, key.serialize_pem().into()))
    };
    view.store.signer_at(now).map(pair).transpose()
}

/// Returns `true` if the reason or an administrator's `force` permits to lock machines out.
pub(super) fn is_forced(requested: &RotationRequest, reason: &Reason) -> bool {
    *reason == Reason::Distrusted
        || requested.force
            && matches!(reason, Reason::Requested | Reason::NewerCa | Reason::External(_))
}

/// CAs that can issue the pair, the newest first.
fn signers<'a>(view: &'a View<'_>, reason: &Reason) -> Vec<&'a Ca> {
    let mut signers = view.store.signers_at(view.now);
    match (reason, &view.serving) {
        (Reason::NewerCa, Serving::Ours(leaf)) => {
            if let Some(issuer) = view.store.issuer_of(leaf).map(|ca| &ca.certificate) {
                let made = issuer.made_at();
                signers.retain(|ca| ca.certificate.made_at() >= made && ca.certificate != *issuer);
            }
        }
        (Reason::Renewal, Serving::Ours(leaf) | Serving::Foreign { leaf, .. }) => {
            signers.retain(|ca| can_renew(view, leaf, &ca.certificate));
        }
        _ => {}
    }
    signers
}

/// Issues a leaf for this key by this CA, with the path to the other CAs.
fn issued(
    view: &View<'_>,
    policy: &Policy,
    ca: &Ca,
    hosts: &[Host],
    key: &KeyPair,
) -> Result<Vec<Certificate>, IssueError> {
    let links = view.links();
    let begin = links.begin(&ca.certificate);
    let validity = Validity { begin, end: view.now.saturating_add(policy.validity) };
    let leaf = issue_serving(key, hosts, ca.signer()?, validity)?;
    links.chain(&leaf, &ca.certificate)
}

/// The present pair, with a rebuilt chain.
fn rechained(view: &View<'_>) -> Result<Option<Candidate<'static>>, IssueError> {
    let (Serving::Ours(leaf), Some(present)) = (&view.serving, &view.state.serving) else {
        return Ok(None);
    };
    let Some(issuer) = view.store.issuer_of(leaf) else { return Ok(None) };
    let chain = view.links().chain(leaf, &issuer.certificate)?;
    Ok(Some(Candidate { chain, key: CandidateKey::AtHand(own_key_text(&present.key)) }))
}

/// The pair that is made outside of this server.
fn external(view: &View<'_>) -> Result<Option<Candidate<'static>>, IssueError> {
    let Some(external) = &view.state.external else { return Ok(None) };
    let Some(pair) = &external.pair else { return Ok(None) };
    let key = CandidateKey::AtHand(own_key_text(&pair.key));
    Ok(Some(Candidate { chain: external.chain(view)?, key }))
}

/// Stored pairs that were replaced.
fn restored(view: &View<'_>) -> Vec<Candidate<'static>> {
    let candidate = |pair: &StoredPair| {
        let chain = pair.served_chain().ok()?;
        let leaf = chain.first().filter(|leaf| leaf.is_valid_at(view.now))?;
        let is_good = !view.store.is_tainted(leaf);
        let key = CandidateKey::AtHand(own_key_text(&pair.key));
        is_good.then_some(Candidate { chain, key })
    };
    view.store.pairs().filter_map(candidate).collect()
}

fn stored_pair(chain: &[Certificate], key: Vec<u8>) -> StoredPair {
    let certificates: String = chain.iter().map(Certificate::to_pem).collect();
    StoredPair { certificates: certificates.into(), key, ..StoredPair::default() }
}

/// The keys of a PEM text, without its certificates.
fn own_key_text(text: &[u8]) -> Vec<u8> {
    let blocks = pem::parse_many(text).unwrap_or_default();
    let keys = blocks.iter().filter(|block| block.tag().contains("PRIVATE KEY"));
    keys.map(pem_text).collect::<String>().into()
}
