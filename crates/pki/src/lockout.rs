//! Verifies the served chain for every holder of trust, and names those that it locks out.
//!
//! Machines run Ignition, a Go program, so paths are built as by Go's `crypto/x509` (package documentation of
//! `Certificate.Verify`, Go 1.26), with RFC 5280's requirements for each certificate:
//!
//! - The leaf is valid now and has every requested name, or a wildcard for its first label (RFC 6125 section 6.4.3).
//!   The common name is ignored.
//! - Candidates for a certificate's issuer are first the trusted CAs, then all sent certificates in any order, whose
//!   subject is the issuer's name, byte for byte. Key identifiers (sections 4.2.1.1 and 4.2.1.2) move likely ones to
//!   the front and exclude none. All are tried until a path ends at a trusted CA, or 100 candidates have failed.
//! - The issuer's key made the signature. Its certificate has CA:TRUE (section 4.2.1.9; not required of a trusted one
//!   of X.509 version 1), keyCertSign if it has a key usage (section 4.2.1.3), is valid now (section 4.1.2.5; Go
//!   requires this of trusted ones too), and its path length is respected (section 4.2.1.9; Go counts self-issued
//!   certificates).
//! - A subject with the same key and alternative names is at most once on a path, so there are no loops.
//! - An unknown critical extension ends a path (section 4.2), and so does a required policy below the trusted CA
//!   (section 4.2.1.11): Go checks for the policies since 1.22.
//! - An extended key usage, if present, includes serverAuth (section 4.2.1.12), which Go requires of CAs too. The names
//!   of all certificates below a CA satisfy its name constraints (section 4.2.1.10).
//! - The handshake message with the certificates has at most 65,536 bytes, the limit of Go's `crypto/tls` in the
//!   releases that Ignition is built with. Newer ones accept 262,144.
//!
//! The tests compare the verdict with Go's for thousands of generated chains (`tests/it/go_verifier.rs`).
//!
//! Not checked: policies, constraints of mail addresses and URIs, and parsing of every certificate. RSA keys of less
//! than 2048 bits are refused, though Go still accepts 1024.

use core::ops::ControlFlow;

use time::OffsetDateTime;

use super::certificate::{Certificate, unique};
use super::holder::{Lockout, LockoutReason, MAX_CANDIDATES, MAX_HANDSHAKE_BYTES, TrustHolder};
use super::hosts::Host;

/// Returns every holder that could not boot from `chain` at `now`, in their order. The leaf is the chain's first
/// certificate; the others follow in any order.
#[must_use]
pub fn locked_out(
    chain: &[Certificate],
    holders: &[TrustHolder],
    now: OffsetDateTime,
) -> Vec<Lockout> {
    let reasons = refusals(chain, holders, now);
    reasons.into_iter().zip(holders).filter_map(|(reason, it)| it.lockout(reason)).collect()
}

/// Reason why the chain's first certificate does not lead to one of `trusted` at `now`, by the same rules except for
/// extended key usage, which the caller checks.
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
    let trusted = trusted.iter().map(for_any_use).collect();
    let holder = TrustHolder { trusted, ..TrustHolder::default() };
    refusal(&chain, &holder, now)
}

/// The reason of each holder for refusing the chain; `None` if it accepts.
pub(super) fn refusals<'a>(
    chain: &[Certificate],
    holders: impl IntoIterator<Item = &'a TrustHolder>,
    now: OffsetDateTime,
) -> Vec<Option<LockoutReason>> {
    holders.into_iter().map(|holder| refusal(chain, holder, now)).collect()
}

fn refusal(
    chain: &[Certificate],
    holder: &TrustHolder,
    now: OffsetDateTime,
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
    let (trusted, sent) = (unique(&holder.trusted), unique(others));
    let (passes_faults, candidates, dead_end) = (false, 0, None);
    let mut search = Search { trusted, sent, now, passes_faults, candidates, dead_end };
    if let ControlFlow::Break(outcome) = search.extend(&mut vec![leaf], None) {
        return outcome;
    }
    // No path is valid. The first fault on the path that would exist explains more than the end of another path.
    (search.passes_faults, search.candidates, search.dead_end) = (true, 0, None);
    match search.extend(&mut vec![leaf], None) {
        ControlFlow::Break(Some(LockoutReason::TooManyCandidates)) | ControlFlow::Continue(()) => {
            Some(search.dead_end.unwrap_or(LockoutReason::TooManyCandidates))
        }
        ControlFlow::Break(outcome) => outcome,
    }
}

/// Size of the certificates in a handshake message of TLS 1.3 (RFC 8446 section 4.4.2), which adds more to each than
/// 1.2 does.
pub(super) fn handshake_bytes(chain: &[Certificate]) -> usize {
    4 + chain.iter().map(|certificate| certificate.der().len() + 5).sum::<usize>()
}

/// A search for a path from the leaf to a trusted CA.
struct Search<'a> {
    trusted: Vec<&'a Certificate>,
    sent: Vec<&'a Certificate>,
    now: OffsetDateTime,
    /// True to search for a path despite faults, and return the first fault.
    passes_faults: bool,
    candidates: usize,
    /// Reason why the first path ended.
    dead_end: Option<LockoutReason>,
}

impl<'a> Search<'a> {
    /// Tries every continuation of `path`, whose first fault is `fault`. Breaks with the outcome of a complete path, or
    /// if there were too many candidates.
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
            if path.iter().any(|other| is_the_same(other, ca)) || !last.is_signed_by(ca) {
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
            let (issuer, certificate) = (last.issuer_title(), last.title());
            self.dead_end = Some(if last.subject_name == last.issuer_name {
                LockoutReason::Untrusted(certificate)
            } else {
                LockoutReason::IssuerMissing { issuer, certificate }
            });
        }
        ControlFlow::Continue(())
    }
}

/// Certificates with the issuer's name: first those with its key's identifier, then those where either identifier is
/// missing, then the others.
fn likely_first<'a>(
    certificates: &[&'a Certificate],
    issued: &Certificate,
) -> impl Iterator<Item = &'a Certificate> {
    let wanted = &issued.extensions.issuer_key_identifier;
    let is_named = |certificate: &&Certificate| certificate.subject_name == issued.issuer_name;
    let mut found: Vec<_> = certificates.iter().copied().filter(is_named).collect();
    found.sort_by_key(|certificate| {
        let present = &certificate.extensions.key_identifier;
        (present != wanted, !(present.is_empty() || wanted.is_empty()))
    });
    found.into_iter()
}

/// Returns `true` if a path must not have both certificates, even if their issuers differ.
fn is_the_same(one: &Certificate, other: &Certificate) -> bool {
    one.subject_name == other.subject_name
        && one.key_info == other.key_info
        && one.extensions.alternative_names == other.extensions.alternative_names
}

/// Fault of a certificate regardless of its position.
fn own_fault(certificate: &Certificate, now: OffsetDateTime) -> Option<LockoutReason> {
    let title = || certificate.title();
    let (begin, end) = (certificate.not_before, certificate.not_after);
    if let Some(extension) = certificate.extensions.unknown_critical.clone() {
        return Some(LockoutReason::CriticalExtension { certificate: title(), extension });
    }
    if now < begin {
        return Some(LockoutReason::NotYetValid { certificate: title(), at: begin });
    }
    (now > end).then(|| LockoutReason::Expired { certificate: title(), at: end })
}

/// Fault of a certificate as an issuer with so many CAs below it.
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
        let certificate = ca.title();
        is_exceeded.then_some(LockoutReason::PathLength { certificate, most, present: below })
    })
}

/// Fault of a complete path, leaf first.
fn path_fault(path: &[&Certificate]) -> Option<LockoutReason> {
    if let Some(other) = path.iter().rev().find(|it| it.extensions.forbids_serving) {
        return Some(LockoutReason::ExtendedKeyUsage(other.title()));
    }
    // Policies that the trusted CA itself requires are not checked.
    let below = &path[..path.len().saturating_sub(1)];
    if let Some(other) = below.iter().rev().find(|it| it.extensions.demands_policies) {
        return Some(LockoutReason::Policies(other.title()));
    }
    path.iter().enumerate().find_map(|(index, ca)| {
        let name = path[..index].iter().find_map(|below| refused_name(ca, below))?;
        Some(LockoutReason::NameConstraints { certificate: ca.title(), name })
    })
}

/// A name of `below` that the CA's name constraints exclude.
fn refused_name(ca: &Certificate, below: &Certificate) -> Option<String> {
    let constraints = ca.extensions.name_constraints.as_ref()?;
    let name = below.extensions.dns_names.iter().find(|name| !constraints.allow_name(name));
    name.cloned().or_else(|| {
        let mut addresses = below.extensions.addresses.iter();
        let address = addresses.find(|address| !constraints.allow_address(**address));
        address.map(ToString::to_string)
    })
}

/// Returns `true` if a leaf has this host.
fn names(leaf: &Certificate, host: &Host) -> bool {
    match host {
        Host::Address(wanted) => {
            let mut addresses = leaf.extensions.addresses.iter();
            addresses.any(|address| address.to_canonical() == wanted.to_canonical())
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
