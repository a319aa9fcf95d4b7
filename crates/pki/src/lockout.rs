//! Who is locked out: which holders of trust could not fetch a config from the chain that is served,
//! and why.
//!
//! The machines that ask are Ignition, a Go program, so paths are built as Go's `crypto/x509` does
//! (package documentation of `Certificate.Verify`, Go 1.26), and RFC 5280 says what each
//! certificate on them has to be:
//!
//! - The leaf is valid now and has every name that is asked for, or a wildcard for its first label
//!   (RFC 6125 section 6.4.3). A common name is no name.
//! - A certificate's issuer is looked for first among the trusted CAs, then among all that was sent,
//!   in whatever order it was sent: every one whose subject is the issuer's name, byte for byte.
//!   Key identifiers (sections 4.2.1.1 and 4.2.1.2) put likely ones first and rule nobody out. All
//!   are tried, until one way ends at a trusted CA, or 100 candidates have been looked at.
//! - An issuer's key made the signature. Its certificate says CA:TRUE (section 4.2.1.9; a trusted one
//!   of X.509 version 1 cannot and need not), allows signing certificates where it restricts its key
//!   at all (section 4.2.1.3), is valid now (section 4.1.2.5; Go asks that of trusted ones too), and
//!   lets as many certificates follow as do (section 4.2.1.9; Go counts self-issued ones).
//! - No subject with the same key and alternative names comes twice on a way, so there are no loops.
//! - A critical extension that is not understood ends a way (section 4.2), and so does a demand for policies on it below
//!   the trusted CA (section 4.2.1.11): Go looks whether the policies are there since 1.22.
//! - Who restricts extended usage allows serving TLS (section 4.2.1.12), which Go asks of CAs as of
//!   the leaf. The names of all below a CA keep to its name constraints (section 4.2.1.10).
//! - The message with the certificates has 65,536 bytes at most: Go's `crypto/tls` took no longer one
//!   for years, and those releases are what Ignition is built with. Newer ones take 262,144.
//!
//! The tests ask Go itself about thousands of generated chains (`tests/it/go_verifier.rs`).
//!
//! Not looked at: which policies there are, constraints of mail addresses and URIs, RSA keys of less than 2048 bits
//! (taken for no key, though Go still takes 1024), and whether a client parses every certificate.

use core::net::IpAddr;
use core::ops::ControlFlow;
use std::collections::HashMap;

use time::OffsetDateTime;

use super::holder::{MAX_CANDIDATES, MAX_HANDSHAKE_BYTES};
use super::{Certificate, Holder, Host, Lockout, LockoutReason};

/// Names every holder that could not boot from `chain` at `now`, in their order. The leaf is the
/// chain's first; the others follow in any order.
#[must_use]
pub fn locked_out(chain: &[Certificate], holders: &[Holder], now: OffsetDateTime) -> Vec<Lockout> {
    let reasons =
        refusals(chain, holders, now, &mut Signatures::default()).into_iter().zip(holders);
    reasons
        .filter_map(|(reason, holder)| {
            Some(Lockout { holder: holder.name.clone(), reason: reason? })
        })
        .collect()
}

/// Why the chain's first certificate does not come from one of `trusted` at `now`, if it does not: by the
/// same rules, but for extended usage, as what it is for is the caller's to know.
#[must_use]
pub fn untrusted(
    chain: &[Certificate],
    trusted: &[Certificate],
    now: OffsetDateTime,
) -> Option<LockoutReason> {
    let for_any_use = |certificate: &Certificate| {
        let mut certificate = certificate.clone();
        certificate.extensions.forbids_serving = false;
        certificate
    };
    let chain: Vec<_> = chain.iter().map(for_any_use).collect();
    let holder = Holder {
        name: String::new(),
        trusted: trusted.iter().map(for_any_use).collect(),
        hosts: Vec::new(),
    };
    refusal(&chain, &holder, now, &mut Signatures::default())
}

/// For every holder why it refuses the chain, if it does.
pub(super) fn refusals<'a>(
    chain: &[Certificate],
    holders: impl IntoIterator<Item = &'a Holder>,
    now: OffsetDateTime,
    signatures: &mut Signatures,
) -> Vec<Option<LockoutReason>> {
    holders.into_iter().map(|holder| refusal(chain, holder, now, signatures)).collect()
}

/// Whose key made whose signature, by the certificate and the key: many holders lead along the same
/// ways, in one chain after another, and looking at signatures is nearly all of the work.
#[derive(Default)]
pub(super) struct Signatures(HashMap<Vec<u8>, HashMap<Vec<u8>, bool>>);

impl Signatures {
    fn is_signed_by(&mut self, certificate: &Certificate, ca: &Certificate) -> bool {
        let known = self.0.get(certificate.der()).and_then(|keys| keys.get(&ca.key_info));
        if let Some(known) = known {
            return *known;
        }
        let is_signed = certificate.is_signed_by(ca);
        let keys = self.0.entry(certificate.der().to_vec()).or_default();
        keys.insert(ca.key_info.clone(), is_signed);
        is_signed
    }
}

/// Why this one refuses the chain.
fn refusal(
    chain: &[Certificate],
    holder: &Holder,
    now: OffsetDateTime,
    signatures: &mut Signatures,
) -> Option<LockoutReason> {
    let Some((leaf, others)) = chain.split_first() else {
        return Some(LockoutReason::NothingServed);
    };
    let bytes = handshake_bytes(chain);
    if bytes > MAX_HANDSHAKE_BYTES {
        return Some(LockoutReason::TooLarge { bytes });
    }
    if let Some(reason) = own_fault(leaf, now) {
        return Some(reason);
    }
    if let Some(host) = holder.hosts.iter().find(|host| !names(leaf, host)) {
        return Some(LockoutReason::Host(host.clone()));
    }
    if !holder.trusted.iter().any(|ca| ca.is_valid_at(now)) {
        return Some(LockoutReason::NoValidCa);
    }
    if holder.trusted.contains(leaf) {
        return path_fault(&[leaf]);
    }
    let mut search = Search::new(&holder.trusted, others, now, signatures);
    match search.extend(&mut vec![leaf], None) {
        ControlFlow::Break(outcome) => return outcome,
        ControlFlow::Continue(()) => {}
    }
    // No way is sound. What is wrong with the first that would be there helps more than where some
    // other one ends.
    let mut search =
        Search { passes_faults: true, ..Search::new(&holder.trusted, others, now, signatures) };
    match search.extend(&mut vec![leaf], None) {
        ControlFlow::Break(Some(LockoutReason::TooManyCandidates)) | ControlFlow::Continue(()) => {
            Some(search.dead_end.unwrap_or(LockoutReason::TooManyCandidates))
        }
        ControlFlow::Break(outcome) => outcome,
    }
}

/// What the certificates come to in a handshake message of TLS 1.3 (RFC 8446 section 4.4.2), which
/// adds more to each than 1.2 does.
pub(super) fn handshake_bytes(chain: &[Certificate]) -> usize {
    4 + chain.iter().map(|certificate| certificate.der().len() + 5).sum::<usize>()
}

/// A search for a way from the leaf to a trusted CA.
struct Search<'a, 's> {
    trusted: Vec<&'a Certificate>,
    sent: Vec<&'a Certificate>,
    now: OffsetDateTime,
    signatures: &'s mut Signatures,
    /// Looks for a way with faults, and what the first is.
    passes_faults: bool,
    candidates: usize,
    /// Where the first way ended.
    dead_end: Option<LockoutReason>,
}

impl<'a, 's> Search<'a, 's> {
    fn new(
        trusted: &'a [Certificate],
        sent: &'a [Certificate],
        now: OffsetDateTime,
        signatures: &'s mut Signatures,
    ) -> Self {
        let (trusted, sent) = (each_once(trusted), each_once(sent));
        Self { trusted, sent, now, signatures, passes_faults: false, candidates: 0, dead_end: None }
    }

    /// Tries every way on from `path`, whose first fault is `fault`. Breaks with the outcome: that of
    /// a whole way, or that there were too many.
    fn extend(
        &mut self,
        path: &mut Vec<&'a Certificate>,
        fault: Option<&LockoutReason>,
    ) -> ControlFlow<Option<LockoutReason>> {
        let Some(&last) = path.last() else { return ControlFlow::Continue(()) };
        let trusted = likely_first(&self.trusted, last).map(|ca| (ca, true));
        let sent = likely_first(&self.sent, last).map(|ca| (ca, false));
        let candidates: Vec<_> = trusted.chain(sent).collect();
        let mut is_dead_end = true;
        for (ca, is_trusted) in candidates {
            self.candidates += 1;
            if self.candidates > MAX_CANDIDATES {
                return ControlFlow::Break(Some(LockoutReason::TooManyCandidates));
            }
            if path.iter().any(|other| is_the_same(other, ca))
                || !self.signatures.is_signed_by(last, ca)
            {
                continue;
            }
            is_dead_end = false;
            let own = issuer_fault(ca, is_trusted, path.len() - 1, self.now);
            let fault = fault.cloned().or(own);
            if fault.is_some() && !self.passes_faults {
                continue;
            }
            path.push(ca);
            if is_trusted {
                let fault = fault.or_else(|| path_fault(path));
                if fault.is_none() || self.passes_faults {
                    return ControlFlow::Break(fault);
                }
            } else {
                self.extend(path, fault.as_ref())?;
            }
            path.pop();
        }
        if is_dead_end && self.dead_end.is_none() {
            self.dead_end = Some(if last.subject_name == last.issuer_name {
                LockoutReason::Untrusted(last.title())
            } else {
                LockoutReason::IssuerMissing {
                    issuer: last.issuer_title(),
                    certificate: last.title(),
                }
            });
        }
        ControlFlow::Continue(())
    }
}

fn each_once(certificates: &[Certificate]) -> Vec<&Certificate> {
    let mut once: Vec<&Certificate> = Vec::new();
    for certificate in certificates {
        if !once.contains(&certificate) {
            once.push(certificate);
        }
    }
    once
}

/// Those that have the name of the issuer: with its key's identifier first, then where one of the
/// two has no identifier, then the others.
fn likely_first<'a>(
    certificates: &[&'a Certificate],
    issued: &Certificate,
) -> impl Iterator<Item = &'a Certificate> {
    let wanted = &issued.extensions.issuer_key_identifier;
    let mut found: Vec<_> = certificates
        .iter()
        .copied()
        .filter(|certificate| certificate.subject_name == issued.issuer_name)
        .collect();
    found.sort_by_key(|certificate| {
        let present = &certificate.extensions.key_identifier;
        (present != wanted, !(present.is_empty() || wanted.is_empty()))
    });
    found.into_iter()
}

/// Returns `true` if a way that has one may not have the other, though their issuers differ.
fn is_the_same(one: &Certificate, other: &Certificate) -> bool {
    one.subject_name == other.subject_name
        && one.key_info == other.key_info
        && one.extensions.alternative_names == other.extensions.alternative_names
}

/// What is wrong with a certificate wherever it stands.
fn own_fault(certificate: &Certificate, now: OffsetDateTime) -> Option<LockoutReason> {
    let title = || certificate.title();
    if let Some(extension) = &certificate.extensions.unknown_critical {
        let extension = extension.clone();
        return Some(LockoutReason::CriticalExtension { certificate: title(), extension });
    }
    if now < certificate.not_before {
        let at = certificate.not_before;
        return Some(LockoutReason::NotYetValid { certificate: title(), at });
    }
    (now > certificate.not_after)
        .then(|| LockoutReason::Expired { certificate: title(), at: certificate.not_after })
}

/// What is wrong with a certificate as an issuer with so many CAs below it.
fn issuer_fault(
    ca: &Certificate,
    is_trusted: bool,
    below: usize,
    now: OffsetDateTime,
) -> Option<LockoutReason> {
    let constraints = ca.extensions.basic_constraints.as_ref();
    let is_marked = constraints.map_or(is_trusted && !ca.is_version_3, |found| found.ca);
    if !is_marked {
        return Some(LockoutReason::NoCa(ca.title()));
    }
    if ca.extensions.forbids_signing {
        return Some(LockoutReason::KeyUsage(ca.title()));
    }
    own_fault(ca, now).or_else(|| {
        let most = constraints?.path_len_constraint?;
        let is_exceeded = u32::try_from(below).map_or(true, |below| below > most);
        is_exceeded.then(|| LockoutReason::PathLength {
            certificate: ca.title(),
            most,
            present: below,
        })
    })
}

/// What is wrong with a whole way, leaf first.
fn path_fault(path: &[&Certificate]) -> Option<LockoutReason> {
    if let Some(other) = path.iter().rev().find(|it| it.extensions.forbids_serving) {
        return Some(LockoutReason::ExtendedKeyUsage(other.title()));
    }
    // What the trusted CA itself demands is not asked for.
    let below = &path[..path.len().saturating_sub(1)];
    if let Some(other) = below.iter().rev().find(|it| it.extensions.demands_policies) {
        return Some(LockoutReason::Policies(other.title()));
    }
    path.iter().enumerate().find_map(|(index, ca)| {
        let name = path[..index].iter().find_map(|below| refused_name(ca, below))?;
        Some(LockoutReason::NameConstraints { certificate: ca.title(), name })
    })
}

/// A name of a certificate that a CA above it may not vouch for.
fn refused_name(ca: &Certificate, below: &Certificate) -> Option<String> {
    let constraints = ca.extensions.name_constraints.as_ref()?;
    let name = below.extensions.dns_names.iter().find(|name| !constraints.allow_name(name));
    name.cloned().or_else(|| {
        let address = addresses(below).find(|address| !constraints.allow_address(*address));
        address.map(|address| address.to_string())
    })
}

fn addresses(certificate: &Certificate) -> impl Iterator<Item = IpAddr> {
    certificate.hosts.iter().filter_map(|host| match host {
        Host::Address(address) => Some(*address),
        Host::Name(_) => None,
    })
}

/// Returns `true` if a leaf is for this host.
fn names(leaf: &Certificate, host: &Host) -> bool {
    match host {
        Host::Address(wanted) => {
            addresses(leaf).any(|address| address.to_canonical() == wanted.to_canonical())
        }
        Host::Name(wanted) => leaf.extensions.dns_names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            name == *wanted
                || name.strip_prefix("*.").is_some_and(|rest| {
                    wanted.split_once('.').is_some_and(|(_, domain)| domain == rest)
                })
        }),
    }
}

#[cfg(test)]
mod tests;
