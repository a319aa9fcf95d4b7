//! Extensions as Go takes them (`processExtensions`, RFC 5280 section 4.2).

use core::net::IpAddr;

use super::der::{
    BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, constructed, context,
};
use super::malformed::Malformed;
use super::names::{is_domain, is_mailbox, is_uri};

/// An extension that Go looks into: its identifier, its name in RFC 5280 for messages, and the check of its value.
type ExtensionRule = (&'static [u32], &'static str, fn(Reader<'_>) -> Option<()>);

const KNOWN: [ExtensionRule; 13] = [
    (&[2, 5, 29, 14], "subjectKeyIdentifier", |mut value| value.read(OCTET_STRING).map(drop)),
    (&[2, 5, 29, 15], "keyUsage", |mut value| value.bit_string().map(drop)),
    (&[2, 5, 29, 17], "subjectAltName", alternative_names),
    (&[2, 5, 29, 19], "basicConstraints", basic_constraints),
    (&[2, 5, 29, 30], "nameConstraints", name_constraints),
    (&[2, 5, 29, 31], "cRLDistributionPoints", distribution_points),
    (&[2, 5, 29, 32], "certificatePolicies", policies),
    (&[2, 5, 29, 33], "policyMappings", policy_mappings),
    (&[2, 5, 29, 35], "authorityKeyIdentifier", issuer_key_identifier),
    (&[2, 5, 29, 36], "policyConstraints", policy_constraints),
    (&[2, 5, 29, 37], "extKeyUsage", extended_key_usage),
    (&[2, 5, 29, 54], "inhibitAnyPolicy", |mut value| value.integer_64(INTEGER).map(drop)),
    (&[1, 3, 6, 1, 5, 5, 7, 1, 1], "authorityInfoAccess", information_access),
];

/// Extensions that must not be critical.
const NEVER_CRITICAL: [&str; 3] =
    ["subjectKeyIdentifier", "authorityKeyIdentifier", "authorityInfoAccess"];

/// Checks the extensions: the contents of their explicit tag.
pub(super) fn check(mut list: Reader<'_>) -> Result<(), Malformed> {
    let fault = || Malformed::Field("list of extensions");
    let mut list = list.read(SEQUENCE).ok_or_else(fault)?;
    let mut seen = Vec::new();
    while !list.is_empty() {
        let (identifier, is_critical, value) =
            list.read(SEQUENCE).and_then(extension).ok_or_else(fault)?;
        if seen.contains(&identifier) {
            let identifier: Vec<_> = identifier.iter().map(ToString::to_string).collect();
            return Err(Malformed::Twice(identifier.join(".")));
        }
        if let Some((_, name, check)) = KNOWN.iter().find(|(known, ..)| *known == identifier) {
            if is_critical && NEVER_CRITICAL.contains(name) {
                return Err(Malformed::Critical(name));
            }
            check(value).ok_or(Malformed::Extension(name))?;
        }
        seen.push(identifier);
    }
    Ok(())
}

/// Splits an extension into identifier, criticality and value (`parseExtension`).
fn extension(mut extension: Reader<'_>) -> Option<(Vec<u32>, bool, Reader<'_>)> {
    let identifier = extension.object_identifier()?;
    let is_critical = if extension.is_next(BOOLEAN) { extension.boolean()? } else { false };
    Some((identifier, is_critical, extension.read(OCTET_STRING)?))
}

fn basic_constraints(mut value: Reader<'_>) -> Option<()> {
    let mut value = value.read(SEQUENCE)?;
    if value.is_next(BOOLEAN) {
        value.boolean()?;
    }
    if value.is_next(INTEGER) {
        value.integer_64(INTEGER).filter(|length| *length >= 0)?;
    }
    Some(())
}

/// The text of a name, which is an IA5String.
fn ascii(name: &[u8]) -> Option<&str> {
    str::from_utf8(name).ok().filter(|name| name.is_ascii())
}

const EMAIL: u8 = context(1);
const DNS: u8 = context(2);
const URI: u8 = context(6);
const ADDRESS: u8 = context(7);

fn alternative_names(mut value: Reader<'_>) -> Option<()> {
    value.each(SEQUENCE, |names| {
        let name = names.any()?;
        let is_good = match name.tag {
            EMAIL | DNS => name.contents.is_ascii(),
            URI => ascii(name.contents).is_some_and(is_uri),
            ADDRESS => [4, 16].contains(&name.contents.len()),
            _ => true,
        };
        is_good.then_some(())
    })
}

fn name_constraints(mut value: Reader<'_>) -> Option<()> {
    let mut both = value.read(SEQUENCE)?;
    let permitted = both.optional(constructed(0))?;
    let excluded = both.optional(constructed(1))?;
    let subtrees = [permitted, excluded];
    let is_all_read = value.is_empty() && both.is_empty();
    if !is_all_read || subtrees.iter().all(|it| it.is_empty()) {
        return None;
    }
    for mut subtrees in subtrees {
        while !subtrees.is_empty() {
            let base = subtrees.read(SEQUENCE)?.any()?;
            let is_good = match base.tag {
                DNS => ascii(base.contents).is_some_and(|it| is_domain(it, true)),
                URI => ascii(base.contents).is_some_and(is_uri_domain),
                EMAIL => ascii(base.contents).is_some_and(is_mailbox_or_domain),
                ADDRESS => is_network(base.contents),
                _ => true,
            };
            is_good.then_some(())?;
        }
    }
    Some(())
}

fn is_mailbox_or_domain(name: &str) -> bool {
    if name.contains('@') { is_mailbox(name) } else { is_domain(name, true) }
}

/// Returns `true` for a domain that is no address. No domain has a colon; which of those with one Go reads as addresses
/// differs by its release.
fn is_uri_domain(domain: &str) -> bool {
    !domain.contains(':') && domain.parse::<IpAddr>().is_err() && is_domain(domain, true)
}

/// Returns `true` for an address followed by a mask of the same length, ones before zeros.
fn is_network(octets: &[u8]) -> bool {
    let mask = match octets.len() {
        8 => &octets[4..],
        32 => &octets[16..],
        _ => return false,
    };
    let ones = mask.iter().take_while(|octet| **octet == 0xff).count();
    let mut rest = mask[ones..].iter();
    rest.next().is_none_or(|octet| octet.leading_ones() + octet.trailing_zeros() == 8)
        && rest.all(|octet| *octet == 0)
}

fn distribution_points(mut value: Reader<'_>) -> Option<()> {
    value.each(SEQUENCE, |points| {
        let mut point = points.read(SEQUENCE)?;
        if point.is_next(constructed(0)) {
            let mut full_name = point.read(constructed(0))?.read(constructed(0))?;
            while full_name.is_next(URI) {
                full_name.read(URI)?;
            }
        }
        Some(())
    })
}

fn policies(mut value: Reader<'_>) -> Option<()> {
    let mut seen = Vec::new();
    value.each(SEQUENCE, |policies| {
        let identifier = policies.read(SEQUENCE)?.object_identifier()?;
        let is_new = !seen.contains(&identifier);
        seen.push(identifier);
        is_new.then_some(())
    })
}

fn policy_mappings(mut value: Reader<'_>) -> Option<()> {
    value.each(SEQUENCE, |mappings| {
        let mut mapping = mappings.read(SEQUENCE)?;
        mapping.read(OBJECT_IDENTIFIER)?;
        mapping.read(OBJECT_IDENTIFIER).map(drop)
    })
}

fn issuer_key_identifier(mut value: Reader<'_>) -> Option<()> {
    value.read(SEQUENCE)?.optional(context(0)).map(drop)
}

fn policy_constraints(mut value: Reader<'_>) -> Option<()> {
    let mut constraints = value.read(SEQUENCE)?;
    for tag in [context(0), context(1)] {
        if constraints.is_next(tag) {
            constraints.integer_64(tag)?;
        }
    }
    Some(())
}

fn extended_key_usage(mut value: Reader<'_>) -> Option<()> {
    value.each(SEQUENCE, |usages| usages.object_identifier().map(drop))
}

fn information_access(mut value: Reader<'_>) -> Option<()> {
    value.each(SEQUENCE, |descriptions| {
        let mut description = descriptions.read(SEQUENCE)?;
        description.object_identifier()?;
        description.optional(URI).map(drop)
    })
}
