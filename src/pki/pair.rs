//! What a certificate in a file says, as far as a decision depends on it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::X509Certificate;

use super::Host;

/// Why a serving certificate has to be issued again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is none, or it cannot be read.
    #[error("there is no readable certificate")]
    Unreadable,
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    Invalid,
    /// It was issued by another authority.
    #[error("another authority issued it")]
    OtherIssuer,
    /// Its key is gone or another one's, as a process that died between two writes leaves it.
    #[error("its key is missing or does not belong to it")]
    Key,
    /// It lacks a name.
    #[error("it does not name {0}")]
    Host(Host),
}

/// What to do with a serving certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Use it.
    Keep,
    /// Replace it. `hosts` are all names that the new one should carry, the old one's included.
    Reissue {
        /// What is wrong with the one there is.
        reason: Reason,
        /// Names for the new one, those wanted first.
        hosts: Vec<Host>,
    },
}

/// Decides whether a serving certificate can be kept. `has_key` tells whether its key is there.
#[must_use]
pub fn decide(
    certificate: Option<&[u8]>,
    has_key: bool,
    authority: &[u8],
    wanted: &[Host],
    now: OffsetDateTime,
) -> Decision {
    let present = certificate.and_then(|pem| with_certificate(pem, hosts).ok());
    let reason = reason(certificate, authority, wanted, present.as_ref(), now)
        .or_else(|| (!has_key).then_some(Reason::Key));
    let Some(reason) = reason else { return Decision::Keep };
    let mut hosts = wanted.to_vec();
    hosts.extend(present.into_iter().flatten().filter(|host| !wanted.contains(host)));
    Decision::Reissue { reason, hosts }
}

fn reason(
    certificate: Option<&[u8]>,
    authority: &[u8],
    wanted: &[Host],
    present: Option<&BTreeSet<Host>>,
    now: OffsetDateTime,
) -> Option<Reason> {
    let (Some(certificate), Some(present)) = (certificate, present) else {
        return Some(Reason::Unreadable);
    };
    let valid = with_certificate(certificate, |parsed| is_valid(parsed, now));
    if valid != Ok(true) {
        return Some(Reason::Invalid);
    }
    let issued = with_certificate(authority, |authority| {
        with_certificate(certificate, |certificate| {
            certificate.verify_signature(Some(authority.public_key())).is_ok()
        })
    });
    if issued != Ok(Ok(true)) {
        return Some(Reason::OtherIssuer);
    }
    wanted.iter().find(|host| !present.contains(host)).cloned().map(Reason::Host)
}

/// Whether a PEM certificate is one, and valid at `now`.
#[must_use]
pub fn is_valid_at(certificate: &[u8], now: OffsetDateTime) -> bool {
    with_certificate(certificate, |parsed| is_valid(parsed, now)) == Ok(true)
}

fn is_valid(certificate: &X509Certificate<'_>, now: OffsetDateTime) -> bool {
    let validity = certificate.validity();
    validity.not_before.to_datetime() <= now && now <= validity.not_after.to_datetime()
}

fn hosts(certificate: &X509Certificate<'_>) -> BTreeSet<Host> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.as_slice());
    names
        .unwrap_or_default()
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => name.parse().ok(),
            GeneralName::IPAddress(bytes) => address(bytes).map(Host::Address),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[derive(Debug, PartialEq, Eq)]
struct NoCertificate;

fn with_certificate<T>(
    pem: &[u8],
    work: impl FnOnce(&X509Certificate<'_>) -> T,
) -> Result<T, NoCertificate> {
    let (_, pem) = parse_x509_pem(pem).map_err(|_| NoCertificate)?;
    let certificate = pem.parse_x509().map_err(|_| NoCertificate)?;
    Ok(work(&certificate))
}

#[cfg(test)]
mod tests {
    use super::super::issue::{VALIDITY, generate_key, issue_authority, issue_serving};
    use super::*;
    use time::Duration;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn a_pair_is_kept_while_it_is_valid_and_names_every_host() {
        let authority = issue_authority(&generate_key().unwrap(), NOW).unwrap();
        let hosts = [host("a.example.com"), host("192.0.2.1"), host("2001:db8::1")];
        let serving = issue_serving(&generate_key().unwrap(), &hosts, &authority, NOW).unwrap();
        let decided = |wanted: &[Host], now| {
            decide(
                Some(serving.certificate.as_bytes()),
                true,
                authority.certificate.as_bytes(),
                wanted,
                now,
            )
        };
        assert_eq!(decided(&hosts, NOW), Decision::Keep);
        assert_eq!(decided(&hosts[1..], NOW + VALIDITY), Decision::Keep);
        let late = NOW + VALIDITY + Duration::SECOND;
        assert!(matches!(decided(&hosts, late), Decision::Reissue { reason: Reason::Invalid, .. }));
        let keyless = decide(
            Some(serving.certificate.as_bytes()),
            false,
            authority.certificate.as_bytes(),
            &hosts,
            NOW,
        );
        assert!(matches!(keyless, Decision::Reissue { reason: Reason::Key, .. }));
        let more = [host("b.example.com"), host("a.example.com")];
        assert_eq!(
            decided(&more, NOW),
            Decision::Reissue {
                reason: Reason::Host(host("b.example.com")),
                hosts: vec![
                    host("b.example.com"),
                    host("a.example.com"),
                    hosts[1].clone(),
                    hosts[2].clone()
                ],
            }
        );
    }

    #[test]
    fn a_pair_of_another_authority_is_replaced() {
        let [one, other] =
            [(); 2].map(|()| issue_authority(&generate_key().unwrap(), NOW).unwrap());
        let hosts = [host("a")];
        let serving = issue_serving(&generate_key().unwrap(), &hosts, &one, NOW).unwrap();
        let decided = decide(
            Some(serving.certificate.as_bytes()),
            true,
            other.certificate.as_bytes(),
            &hosts,
            NOW,
        );
        assert!(matches!(decided, Decision::Reissue { reason: Reason::OtherIssuer, .. }));
    }

    #[test]
    fn what_is_no_certificate_is_replaced() {
        for present in [None, Some(&b"garbage"[..])] {
            let decided = decide(present, true, b"", &[], NOW);
            assert!(matches!(decided, Decision::Reissue { reason: Reason::Unreadable, .. }));
        }
    }
}
