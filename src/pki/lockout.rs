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
//! - A critical extension that is not understood ends a way (section 4.2).
//! - Who restricts extended usage allows serving TLS (section 4.2.1.12), which Go asks of CAs as of
//!   the leaf. The names of all below a CA keep to its name constraints (section 4.2.1.10).
//! - The message with the certificates has 65,536 bytes at most: Go's `crypto/tls` took no longer one
//!   for years, and those releases are what Ignition is built with. Newer ones take 262,144.
//!
//! Not looked at: policies, constraints of mail addresses and URIs, RSA keys of less than 2048 bits
//! (taken for no key, though Go still takes 1024), and whether a client parses every certificate.

use core::net::IpAddr;
use core::ops::ControlFlow;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Certificate, Host};

/// Candidates that Go looks at before it gives up.
const MOST_CANDIDATES: usize = 100;

/// Go's bound on a handshake message, less 1 KiB for what else may go into it.
const MOST_BYTES: usize = 65_536 - 1024;

/// Somebody who trusts some CAs and fetches configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// What an administrator knows it by.
    pub name: String,
    /// The CAs that it trusts.
    pub trusted: Vec<Certificate>,
    /// The hosts that it fetches from, all of them. Without any, only its trust is judged.
    pub hosts: Vec<Host>,
}

/// One that could not boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{holder} could not boot a machine: {reason}")]
pub struct Lockout {
    /// The [`Holder::name`].
    pub holder: String,
    /// Why not.
    pub reason: LockoutReason,
}

/// Why a machine does not accept what is served. Certificates are told by their subjects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockoutReason {
    /// There is no chain.
    #[error("no certificate is served")]
    NothingServed,
    /// The message with the certificates is longer than clients accept.
    #[error(
        "the chain that is served takes {bytes} bytes, more than the {MOST_BYTES} that are safe"
    )]
    TooLarge {
        /// What it comes to in a handshake.
        bytes: usize,
    },
    /// The leaf lacks a name.
    #[error("the serving certificate does not name {0}")]
    Host(Host),
    /// None of its CAs is valid.
    #[error("none of the CAs that it trusts is valid now")]
    NoValidCa,
    /// Nothing that is sent or trusted issued a certificate.
    #[error(
        "\"{issuer}\" issued \"{certificate}\" and is neither sent nor among the CAs that it trusts"
    )]
    IssuerMissing {
        /// Whose certificate is missing.
        issuer: String,
        /// The last certificate of the way.
        certificate: String,
    },
    /// The way ends at a self-signed certificate.
    #[error("\"{0}\" is not among the CAs that it trusts")]
    Untrusted(String),
    /// Too many ways lead nowhere.
    #[error(
        "a client gives up among so many certificates, after {MOST_CANDIDATES} that lead nowhere"
    )]
    TooManyCandidates,
    /// Its time is over.
    #[error("\"{certificate}\" expired at {}", date(*.at))]
    Expired {
        /// Whose.
        certificate: String,
        /// Its last moment.
        at: OffsetDateTime,
    },
    /// Its time has not come.
    #[error("\"{certificate}\" is not valid before {}: is the clock right?", date(*.at))]
    NotYetValid {
        /// Whose.
        certificate: String,
        /// Its first moment.
        at: OffsetDateTime,
    },
    /// A certificate signed another and is no CA's.
    #[error("\"{0}\" is no CA: its certificate lacks CA:TRUE")]
    NoCa(String),
    /// A CA's key may not sign certificates.
    #[error("\"{0}\" may not sign certificates: its key usage lacks keyCertSign")]
    KeyUsage(String),
    /// More certificates follow than a CA allows.
    #[error("\"{certificate}\" allows {most} CAs below it (pathlen), and there are {present}")]
    PathLength {
        /// The CA.
        certificate: String,
        /// As many as may follow, the leaf not counted.
        most: u32,
        /// As many as do.
        present: usize,
    },
    /// A CA may not vouch for a name.
    #[error("\"{certificate}\" may not vouch for {name}, by its name constraints")]
    NameConstraints {
        /// The CA.
        certificate: String,
        /// The name, of whichever certificate below.
        name: String,
    },
    /// A certificate is not for serving.
    #[error("\"{0}\" is not for TLS servers: its extended key usage lacks serverAuth")]
    ExtendedKeyUsage(String),
    /// A certificate has a critical extension that clients do not understand.
    #[error(
        "\"{certificate}\" has a critical extension that clients do not understand: {extension}"
    )]
    CriticalExtension {
        /// Whose.
        certificate: String,
        /// The extension's object identifier.
        extension: String,
    },
}

/// Names every holder that could not boot from `chain` at `now`, in their order. The leaf is the
/// chain's first; the others follow in any order.
#[must_use]
pub fn locked_out(chain: &[Certificate], holders: &[Holder], now: OffsetDateTime) -> Vec<Lockout> {
    let judge = |holder: &Holder| {
        let reason = refusal(chain, holder, now)?;
        Some(Lockout { holder: holder.name.clone(), reason })
    };
    holders.iter().filter_map(judge).collect()
}

/// Why this one refuses the chain.
fn refusal(chain: &[Certificate], holder: &Holder, now: OffsetDateTime) -> Option<LockoutReason> {
    let Some((leaf, others)) = chain.split_first() else {
        return Some(LockoutReason::NothingServed);
    };
    let bytes = handshake_bytes(chain);
    if bytes > MOST_BYTES {
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
    let mut search = Search::new(&holder.trusted, others, now);
    match search.extend(&mut vec![leaf], None) {
        ControlFlow::Break(outcome) => return outcome,
        ControlFlow::Continue(()) => {}
    }
    // No way is sound. What is wrong with the first that would be there helps more than where some
    // other one ends.
    let mut search = Search { passes_faults: true, ..Search::new(&holder.trusted, others, now) };
    match search.extend(&mut vec![leaf], None) {
        ControlFlow::Break(Some(LockoutReason::TooManyCandidates)) | ControlFlow::Continue(()) => {
            Some(search.dead_end.unwrap_or(LockoutReason::TooManyCandidates))
        }
        ControlFlow::Break(outcome) => outcome,
    }
}

/// What the certificates come to in a handshake message of TLS 1.3 (RFC 8446 section 4.4.2), which
/// adds more to each than 1.2 does.
fn handshake_bytes(chain: &[Certificate]) -> usize {
    4 + chain.iter().map(|certificate| certificate.der().len() + 5).sum::<usize>()
}

/// A search for a way from the leaf to a trusted CA.
struct Search<'a> {
    trusted: Vec<&'a Certificate>,
    sent: Vec<&'a Certificate>,
    now: OffsetDateTime,
    /// Looks for a way with faults, and what the first is.
    passes_faults: bool,
    candidates: usize,
    /// Where the first way ended.
    dead_end: Option<LockoutReason>,
}

impl<'a> Search<'a> {
    fn new(trusted: &'a [Certificate], sent: &'a [Certificate], now: OffsetDateTime) -> Self {
        let (trusted, sent) = (each_once(trusted), each_once(sent));
        Self { trusted, sent, now, passes_faults: false, candidates: 0, dead_end: None }
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
            if self.candidates > MOST_CANDIDATES {
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

/// Whether a way that has one may not have the other, though their issuers differ.
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

/// Whether a leaf is for this host.
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

fn date(time: OffsetDateTime) -> String {
    // A year that RFC 3339 cannot write is still told.
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::KeyAlgorithm;
    use rcgen::{
        BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DnType,
        ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
        NameConstraints, SanType,
    };
    use time::Duration;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
    const YEAR: Duration = Duration::days(365);
    const HOST: &str = "api-int.example.com";
    const ADDRESS: &str = "192.0.2.1";

    type Change = fn(&mut CertificateParams);
    const UNCHANGED: Change = |_| {};

    /// A certificate that may sign others.
    struct Issued {
        params: CertificateParams,
        key: KeyPair,
        certificate: Certificate,
    }

    fn issue(mut params: CertificateParams, name: &str, by: Option<&Issued>) -> Issued {
        let key = KeyAlgorithm::P256.generate().unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        let certificate = signed(&params, &key, by);
        Issued { params, key, certificate }
    }

    /// A certificate of this name and key, self-signed without an issuer.
    fn signed(params: &CertificateParams, key: &KeyPair, by: Option<&Issued>) -> Certificate {
        let issued = match by {
            None => params.self_signed(key),
            Some(by) => params.signed_by(key, &Issuer::from_params(&by.params, &by.key)),
        };
        Certificate::from_der(issued.unwrap().der()).unwrap()
    }

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.not_before = NOW - YEAR;
        params.not_after = NOW + YEAR;
        params
    }

    fn ca(name: &str, by: Option<&Issued>, change: Change) -> Issued {
        let mut params = params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        change(&mut params);
        issue(params, name, by)
    }

    fn leaf(by: &Issued, change: Change) -> Certificate {
        let mut params = params();
        params.subject_alt_names = vec![
            SanType::DnsName(HOST.try_into().unwrap()),
            SanType::IpAddress(ADDRESS.parse().unwrap()),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        issue(params, "leaf", Some(by)).certificate
    }

    fn refused(
        chain: &[Certificate],
        trusted: &[&Certificate],
        hosts: &[&str],
    ) -> Option<LockoutReason> {
        let holder = Holder {
            name: "worker.ign".to_owned(),
            trusted: trusted.iter().copied().cloned().collect(),
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        };
        locked_out(chain, &[holder], NOW).pop().map(|lockout| lockout.reason)
    }

    /// A leaf below an intermediate CA below a trusted root, each of them changed.
    fn refused_with(
        root: Change,
        intermediate: Change,
        leaf_change: Change,
    ) -> Option<LockoutReason> {
        let root = ca("root", None, root);
        let intermediate = ca("intermediate", Some(&root), intermediate);
        let leaf = leaf(&intermediate, leaf_change);
        refused(&[leaf, intermediate.certificate], &[&root.certificate], &[HOST, ADDRESS])
    }

    #[test]
    fn who_is_served_a_sound_chain_boots() {
        assert_eq!(refused_with(UNCHANGED, UNCHANGED, UNCHANGED), None);
    }

    #[test]
    fn what_is_wrong_with_the_leaf_is_told() {
        let leaf = || "leaf".to_owned();
        let (before, after) = (NOW - Duration::SECOND, NOW + Duration::SECOND);
        let changes: [(Change, _); 5] = [
            (
                |params| params.not_after = NOW - Duration::SECOND,
                LockoutReason::Expired { certificate: leaf(), at: before },
            ),
            (
                |params| params.not_before = NOW + Duration::SECOND,
                LockoutReason::NotYetValid { certificate: leaf(), at: after },
            ),
            (
                |params| drop(params.subject_alt_names.remove(0)),
                LockoutReason::Host(HOST.parse().unwrap()),
            ),
            (
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                LockoutReason::ExtendedKeyUsage(leaf()),
            ),
            (add_critical_extension, critical_extension_of("leaf")),
        ];
        for (change, reason) in changes {
            assert_eq!(refused_with(UNCHANGED, UNCHANGED, change), Some(reason));
        }
        let to_the_second: Change = |params| {
            params.not_before = NOW;
            params.not_after = NOW;
        };
        assert_eq!(refused_with(to_the_second, to_the_second, to_the_second), None);
    }

    fn add_critical_extension(params: &mut CertificateParams) {
        // NULL, below a number that is kept for examples (RFC 5612).
        let mut extension =
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 1], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    }

    fn critical_extension_of(certificate: &str) -> LockoutReason {
        LockoutReason::CriticalExtension {
            certificate: certificate.to_owned(),
            extension: "1.3.6.1.4.1.32473.1".to_owned(),
        }
    }

    fn constrain<'a>(
        params: &'a mut CertificateParams,
        permitted: &[&str],
        excluded: &[&str],
    ) -> &'a mut NameConstraints {
        let subtrees = |names: &[&str]| {
            names.iter().map(|&name| GeneralSubtree::DnsName(name.to_owned())).collect()
        };
        params.name_constraints.insert(NameConstraints {
            permitted_subtrees: subtrees(permitted),
            excluded_subtrees: subtrees(excluded),
        })
    }

    fn faults_of(ca: &str) -> [(Change, LockoutReason); 10] {
        let ca = || ca.to_owned();
        let named = |name: &str| LockoutReason::NameConstraints {
            certificate: ca(),
            name: name.to_owned(),
        };
        let expired = LockoutReason::Expired { certificate: ca(), at: NOW - Duration::SECOND };
        let early = LockoutReason::NotYetValid { certificate: ca(), at: NOW + Duration::SECOND };
        [
            (|params| params.not_after = NOW - Duration::SECOND, expired),
            (|params| params.not_before = NOW + Duration::SECOND, early),
            (|params| params.is_ca = IsCa::NoCa, LockoutReason::NoCa(ca())),
            (|params| params.is_ca = IsCa::ExplicitNoCa, LockoutReason::NoCa(ca())),
            (
                |params| params.key_usages = vec![KeyUsagePurpose::CrlSign],
                LockoutReason::KeyUsage(ca()),
            ),
            (
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                LockoutReason::ExtendedKeyUsage(ca()),
            ),
            (|params| _ = constrain(params, &["example.org"], &[]), named(HOST)),
            (|params| _ = constrain(params, &[], &["example.com"]), named(HOST)),
            (
                |params| {
                    let network = CidrSubnet::V4([198, 51, 100, 0], [255, 255, 255, 0]);
                    let constraints = constrain(params, &["example.com"], &[]);
                    constraints.permitted_subtrees.push(GeneralSubtree::IpAddress(network));
                },
                named(ADDRESS),
            ),
            (add_critical_extension, critical_extension_of(&ca())),
        ]
    }

    #[test]
    fn what_is_wrong_with_a_ca_is_told_whether_it_is_sent_or_trusted() {
        for (change, reason) in faults_of("intermediate") {
            assert_eq!(refused_with(UNCHANGED, change, UNCHANGED), Some(reason));
        }
        for (change, reason) in faults_of("root") {
            // A trusted CA's validity is asked first of all.
            let reason = match reason {
                LockoutReason::Expired { .. } | LockoutReason::NotYetValid { .. } => {
                    LockoutReason::NoValidCa
                }
                other => other,
            };
            assert_eq!(refused_with(change, UNCHANGED, UNCHANGED), Some(reason));
        }
    }

    #[test]
    fn what_a_ca_restricts_as_it_may_does_no_harm() {
        let changes: [Change; 5] = [
            |params| params.key_usages = Vec::new(),
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any],
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1)),
            |params| {
                let network = CidrSubnet::V4([192, 0, 2, 0], [255, 255, 255, 0]);
                let constraints = constrain(params, &["example.com"], &["a.example.com"]);
                constraints.permitted_subtrees.push(GeneralSubtree::IpAddress(network));
            },
        ];
        for change in changes {
            assert_eq!(refused_with(change, change, UNCHANGED), None);
        }
    }

    #[test]
    fn a_path_length_counts_the_cas_below() {
        let none: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        assert_eq!(refused_with(UNCHANGED, none, UNCHANGED), None);
        assert_eq!(
            refused_with(none, UNCHANGED, UNCHANGED),
            Some(LockoutReason::PathLength { certificate: "root".to_owned(), most: 0, present: 1 })
        );
    }

    #[test]
    fn a_chain_that_leads_to_none_of_the_trusted_cas_says_where_it_ends() {
        let root = ca("root", None, UNCHANGED);
        let intermediate = ca("intermediate", Some(&root), UNCHANGED);
        let stranger = ca("stranger", None, UNCHANGED);
        let [r, i, s] = [&root, &intermediate, &stranger].map(|issued| &issued.certificate);
        let leaf = leaf(&intermediate, UNCHANGED);
        let missing = |issuer: &str, certificate: &str| {
            Some(LockoutReason::IssuerMissing {
                issuer: issuer.to_owned(),
                certificate: certificate.to_owned(),
            })
        };
        let chain = [&leaf, i, r].map(Clone::clone);
        assert_eq!(refused(&chain[..1], &[r], &[HOST]), missing("intermediate", "leaf"));
        assert_eq!(refused(&chain[..2], &[s], &[HOST]), missing("root", "intermediate"));
        let untrusted = Some(LockoutReason::Untrusted("root".to_owned()));
        assert_eq!(refused(&chain, &[s], &[HOST]), untrusted);
        assert_eq!(refused(&chain, &[], &[HOST]), Some(LockoutReason::NoValidCa));
        assert_eq!(refused(&[], &[r], &[HOST]), Some(LockoutReason::NothingServed));
        for trusted in [&[s, r][..], &[i], &[&leaf]] {
            assert_eq!(refused(&chain, trusted, &[HOST]), None);
        }

        // The same name with another key is another CA.
        let namesake = ca("intermediate", Some(&root), UNCHANGED).certificate;
        let chain = [&leaf, &namesake].map(Clone::clone);
        assert_eq!(refused(&chain, &[r], &[HOST]), missing("intermediate", "leaf"));
        let chain = [&leaf, &namesake, i].map(Clone::clone);
        assert_eq!(refused(&chain, &[r], &[HOST]), None);
    }

    #[test]
    fn every_way_is_tried_in_whatever_order_it_is_sent() {
        let (old, new) = (ca("old", None, UNCHANGED), ca("new", None, UNCHANGED));
        let of_new = |by: &Issued, change: Change| {
            let mut params = new.params.clone();
            change(&mut params);
            signed(&params, &new.key, Some(by))
        };
        let sound = of_new(&old, UNCHANGED);
        let expired = of_new(&old, |params| params.not_after = NOW - YEAR / 2);
        // The other way round: a loop.
        let back = signed(&old.params, &old.key, Some(&new));
        let leaf = leaf(&new, UNCHANGED);
        let mut sent = [expired.clone(), back.clone(), sound.clone(), new.certificate.clone()];
        for _ in 0..sent.len() {
            sent.rotate_left(1);
            let chain = [std::slice::from_ref(&leaf), &sent[..]].concat();
            assert_eq!(refused(&chain, &[&old.certificate], &[HOST]), None);
            assert_eq!(refused(&chain, &[&new.certificate], &[HOST]), None);
        }
        assert_eq!(
            refused(&[leaf, back, expired], &[&old.certificate], &[HOST]),
            Some(LockoutReason::Expired { certificate: "new".to_owned(), at: NOW - YEAR / 2 })
        );
    }

    #[test]
    fn a_leaf_is_for_its_names_and_wildcards() {
        let root = ca("root", None, UNCHANGED);
        let leaf = leaf(&root, |params| {
            params.subject_alt_names = ["*.example.com", "API.example.org"]
                .map(|name| SanType::DnsName(name.try_into().unwrap()))
                .into();
            params.subject_alt_names.push(SanType::IpAddress("2001:db8::1".parse().unwrap()));
        });
        for (host, is_named) in [
            ("api-int.example.com", true),
            ("example.com", false),
            ("a.b.example.com", false),
            ("api.example.org", true),
            ("leaf", false),
            ("[2001:db8::1]", true),
            ("192.0.2.1", false),
        ] {
            let reason = refused(std::slice::from_ref(&leaf), &[&root.certificate], &[host]);
            let unnamed = LockoutReason::Host(host.parse().unwrap());
            assert_eq!(reason, (!is_named).then_some(unnamed), "{host}");
        }
    }

    #[test]
    fn clients_bound_what_they_read_and_try() {
        let root = ca("root", None, UNCHANGED);
        let issuer = ca("intermediate", Some(&root), UNCHANGED);
        let leaf = leaf(&issuer, UNCHANGED);
        let sent = |namesakes: usize, last: &Certificate| -> Vec<Certificate> {
            // They have its name and its key's identifier, which nobody checks.
            let others = (0..namesakes).map(|_| {
                let identifier = issuer.certificate.extensions.key_identifier.clone();
                let mut params = issuer.params.clone();
                params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(identifier);
                signed(&params, &KeyAlgorithm::P256.generate().unwrap(), Some(&root))
            });
            std::iter::once(leaf.clone()).chain(others).chain([last.clone()]).collect()
        };
        // One candidate is the root.
        let trusted = [&root.certificate];
        assert_eq!(refused(&sent(98, &issuer.certificate), &trusted, &[HOST]), None);
        assert_eq!(
            refused(&sent(99, &issuer.certificate), &trusted, &[HOST]),
            Some(LockoutReason::TooManyCandidates)
        );

        let with_padding = |length: usize| {
            let mut params = issuer.params.clone();
            let padding =
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 2], vec![0; length]);
            params.custom_extensions.push(padding);
            vec![leaf.clone(), signed(&params, &issuer.key, Some(&root))]
        };
        let length = MOST_BYTES - handshake_bytes(&with_padding(60_000)) + 60_000 - 8;
        assert_eq!(refused(&with_padding(length), &trusted, &[HOST]), None);
        let chain = with_padding(length + 16);
        let bytes = handshake_bytes(&chain);
        assert_eq!(refused(&chain, &trusted, &[HOST]), Some(LockoutReason::TooLarge { bytes }));
    }

    #[test]
    fn those_who_do_not_boot_are_named_in_one_line_each() {
        let (root, stranger) = (ca("root", None, UNCHANGED), ca("stranger", None, UNCHANGED));
        let chain = [leaf(&root, UNCHANGED)];
        let holder = |name: &str, trusted: &Issued| Holder {
            name: name.to_owned(),
            trusted: vec![trusted.certificate.clone()],
            hosts: vec![HOST.parse().unwrap()],
        };
        let holders = [holder("worker.ign", &stranger), holder("master.ign", &root)];
        let lines: Vec<_> =
            locked_out(&chain, &holders, NOW).iter().map(Lockout::to_string).collect();
        assert_eq!(
            lines,
            ["worker.ign could not boot a machine: \"root\" issued \"leaf\" and is neither sent \
              nor among the CAs that it trusts"]
        );
        for (change, reason) in faults_of("root") {
            assert!(refused_with(change, UNCHANGED, UNCHANGED).is_some());
            let line = reason.to_string();
            assert!(line.contains("\"root\"") && !line.contains('\n'), "{line}");
        }
    }
}
