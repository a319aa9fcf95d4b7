//! Which pair is served: every one that could be is put together and judged, and the first of those
//! that lock out the fewest is taken.

use rcgen::KeyPair;
use time::OffsetDateTime;

use super::certificate::key_of;
use super::chain::MOST_BYTES;
use super::issue::{Validity, issue_serving};
use super::kept::Ca;
use super::lockout::handshake_bytes;
use super::view::{Serving, View};
use super::{
    Asked, Certificate, CertificateState, Host, IssueError, Lockout, Made, Policy, Reason, Refusal,
    Refused, StoredPair,
};

/// Makes a new key for a thing.
pub type Generate<'a> = &'a mut dyn FnMut(Made) -> Result<KeyPair, IssueError>;

/// A pair that could be served.
struct Candidate {
    pair: StoredPair,
    chain: Vec<Certificate>,
}

/// The pair to be served for this reason, or why there is none.
pub(super) fn choose(
    view: &View<'_>,
    policy: &Policy,
    reason: &Reason,
    hosts: &[Host],
    generate: Generate<'_>,
) -> Result<Result<StoredPair, Refused>, IssueError> {
    let refused = |refusal| Refused { what: Made::Serving, because: reason.clone(), refusal };
    let mut failure = None;
    let candidates = match reason {
        Reason::Restored => restored(view),
        Reason::Chain => rechained(view)?.into_iter().collect(),
        _ => {
            let key = generate(Made::Serving)?;
            let mut candidates = Vec::new();
            for signer in signers(view, reason) {
                match issued(view, policy, signer, hosts, &key) {
                    Ok(candidate) => candidates.push(candidate),
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            candidates
        }
    };
    let is_forced = is_forced(&view.state.asked, reason);
    let before = view.lockouts_now();
    let must_mend = matches!(reason, Reason::Restored | Reason::Chain);
    let mut best: Option<(usize, Candidate)> = None;
    let mut locked_out: Vec<Lockout> = Vec::new();
    for candidate in candidates {
        let new = view.newly_locked_out(&candidate.chain);
        if !new.is_empty() && !is_forced {
            if locked_out.is_empty() {
                locked_out = new;
            }
            continue;
        }
        let count = view.lockouts_by(&candidate.chain, !must_mend);
        let is_better = best.as_ref().is_none_or(|(least, _)| count < *least);
        // What nobody needs now may be needed when the clock is right: it leaves for room alone.
        let is_too_long = handshake_bytes(&view.chain) > MOST_BYTES
            && handshake_bytes(&candidate.chain) < handshake_bytes(&view.chain);
        let is_cleaner = *reason == Reason::Chain && (is_too_long || view.sends_distrusted());
        if is_better && (!must_mend || count < before || (count == before && is_cleaner)) {
            best = Some((count, candidate));
        }
        // What is forced is the newest, whoever pays for it.
        if is_forced || count == 0 {
            break;
        }
    }
    Ok(match (best, failure) {
        (Some((_, candidate)), _) => Ok(candidate.pair),
        (None, _) if !locked_out.is_empty() => Err(refused(Refusal::LocksOut(locked_out))),
        (None, failure) => {
            let failure = failure.unwrap_or_else(|| IssueError::NoSigner.to_string());
            Err(refused(Refusal::Issue(failure)))
        }
    })
}

/// The CA that signs now, `None` if none can.
#[must_use]
pub fn signing_ca(state: &CertificateState, now: OffsetDateTime) -> Option<Certificate> {
    let view = View::of(state, now);
    let signers = view.kept.signers();
    let valid = signers.into_iter().find(|ca| ca.certificate.is_valid_at(now));
    valid.map(|ca| ca.certificate.clone())
}

/// A pair for somebody else's server, by the CA that signs now, with what leads to those before it.
/// `None` if none can sign.
pub fn issue_pair(
    state: &CertificateState,
    policy: &Policy,
    hosts: &[Host],
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<Option<StoredPair>, IssueError> {
    let view = View::of(state, now);
    let signer = signers(&view, &Reason::Asked).into_iter().next();
    signer.map(|ca| Ok(issued(&view, policy, ca, hosts, key)?.pair)).transpose()
}

/// Whether machines may be locked out for it, because somebody said so.
fn is_forced(asked: &Asked, reason: &Reason) -> bool {
    *reason == Reason::Distrusted
        || asked.force && matches!(reason, Reason::Asked | Reason::NewerAuthority)
}

/// The CAs that may issue it, the newest first.
fn signers<'a>(view: &'a View<'_>, reason: &Reason) -> Vec<&'a Ca> {
    let mut signers = view.kept.signers();
    signers.retain(|ca| ca.certificate.is_valid_at(view.now));
    if *reason == Reason::NewerAuthority
        && let Serving::Ours(leaf) = &view.serving
        && let Some(issuer) = view.kept.issuer_of(leaf)
    {
        let made = issuer.certificate.made_at();
        signers
            .retain(|ca| ca.certificate.made_at() >= made && ca.certificate != issuer.certificate);
    }
    signers
}

fn issued(
    view: &View<'_>,
    policy: &Policy,
    ca: &Ca,
    hosts: &[Host],
    key: &KeyPair,
) -> Result<Candidate, IssueError> {
    let signer = ca.signer().ok_or(IssueError::NoSigner)?;
    let links = view.links();
    let begin = links.begin(&ca.certificate);
    let validity = Validity { begin, end: view.now + policy.validity };
    let leaf = issue_serving(key, hosts, signer, validity)?;
    let chain = links.chain(&leaf, &ca.certificate)?;
    Ok(Candidate::new(chain, key.serialize_pem().into()))
}

/// The pair that is served, with the certificates that should be sent with it.
fn rechained(view: &View<'_>) -> Result<Option<Candidate>, IssueError> {
    let (Serving::Ours(leaf), Some(present)) = (&view.serving, &view.state.serving) else {
        return Ok(None);
    };
    let Some(issuer) = view.kept.issuer_of(leaf) else { return Ok(None) };
    let chain = view.links().chain(leaf, &issuer.certificate)?;
    Ok(Some(Candidate::new(chain, own_key_text(&present.key))))
}

/// The pairs that were replaced once.
fn restored(view: &View<'_>) -> Vec<Candidate> {
    let is_valid = |leaf: &Certificate, now: OffsetDateTime| leaf.is_valid_at(now);
    view.kept
        .pairs()
        .filter_map(|pair| {
            let chain = Certificate::read_all(&pair.certificates);
            let leaf = chain.first().filter(|leaf| is_valid(leaf, view.now))?;
            let key = key_of(&pair.key)?;
            let is_whole = leaf.matches(&key) && !view.kept.is_tainted(leaf);
            is_whole.then(|| Candidate::new(chain, own_key_text(&pair.key)))
        })
        .collect()
}

impl Candidate {
    fn new(chain: Vec<Certificate>, key: Vec<u8>) -> Self {
        let certificates: String = chain.iter().map(Certificate::to_pem).collect();
        let pair = StoredPair { certificates: certificates.into(), key, ..StoredPair::default() };
        Self { pair, chain }
    }
}

/// The text of the keys alone, of one that may have certificates in it.
fn own_key_text(text: &[u8]) -> Vec<u8> {
    let blocks = pem::parse_many(text).unwrap_or_default();
    let keys = blocks.iter().filter(|block| block.tag().contains("PRIVATE KEY"));
    keys.map(super::certificate::pem_text).collect::<String>().into()
}
