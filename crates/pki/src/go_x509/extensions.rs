//! Extensions as Go takes them (`processExtensions`, RFC 5280 section 4.2).

use core::net::IpAddr;

use super::der::{
    BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, constructed, context,
};
use super::malformed::Malformed;
use super::names::{is_domain, is_mailbox, is_uri};

/// An extension that Go looks into.
#[derive(Clone, Copy)]
struct ExtensionRule {
    identifier: &'static [u32],
    /// Name in RFC 5280, for messages.
    name: &'static str,
    /// True if it must not be critical.
    is_never_critical: bool,
    check: fn(Reader<'_>) -> Option<()>,
}

const fn known(
    identifier: &'static [u32],
    name: &'static str,
    check: fn(Reader<'_>) -> Option<()>,
) -> ExtensionRule {
    ExtensionRule { identifier, name, is_never_critical: false, check }
}

const fn never_critical(known: ExtensionRule) -> ExtensionRule {
    ExtensionRule { is_never_critical: true, ..known }
}

const KNOWN: [ExtensionRule; 13] = [
    never_critical(known(&[2, 5, 29, 14], "subjectKeyIdentifier", key_identifier)),
    known(&[2, 5, 29, 15], "keyUsage", key_usage),
    known(&[2, 5, 29, 17], "subjectAltName", alternative_names),
    known(&[2, 5, 29, 19], "basicConstraints", basic_constraints),
    known(&[2, 5, 29, 30], "nameConstraints", name_constraints),
    known(&[2, 5, 29, 31], "cRLDistributionPoints", distribution_points),
    known(&[2, 5, 29, 32], "certificatePolicies", policies),
    known(&[2, 5, 29, 33], "policyMappings", policy_mappings),
    never_critical(known(&[2, 5, 29, 35], "authorityKeyIdentifier", issuer_key_identifier)),
    known(&[2, 5, 29, 36], "policyConstraints", policy_constraints),
    known(&[2, 5, 29, 37], "extKeyUsage", extended_key_usage),
    known(&[2, 5, 29, 54], "inhibitAnyPolicy", inhibit_any_policy),
    never_critical(known(&[1, 3, 6, 1, 5, 5, 7, 1, 1], "authorityInfoAccess", information_access)),
];

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
        if let Some(known) = KNOWN.iter().find(|known| known.identifier == identifier) {
            if is_critical && known.is_never_critical {
                return Err(Malformed::Critical(known.name));
            }
            (known.check)(value).ok_or(Malformed::Extension(known.name))?;
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

fn key_identifier(mut value: Reader<'_>) -> Option<()> {
    value.read(OCTET_STRING).map(drop)
}

fn key_usage(mut value: Reader<'_>) -> Option<()> {
    value.bit_string().map(drop)
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
    let mut names = value.read(SEQUENCE)?;
    while !names.is_empty() {
        let name = names.any()?;
        let is_good = match name.tag {
            EMAIL | DNS => name.contents.is_ascii(),
            URI => ascii(name.contents).is_some_and(is_uri),
            ADDRESS => [4, 16].contains(&name.contents.len()),
            _ => true,
        };
        is_good.then_some(())?;
    }
    Some(())
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
    let mut points = value.read(SEQUENCE)?;
    while !points.is_empty() {
        let mut point = points.read(SEQUENCE)?;
        if !point.is_next(constructed(0)) {
            continue;
        }
        let mut full_name = point.read(constructed(0))?.read(constructed(0))?;
        while full_name.is_next(URI) {
            full_name.read(URI)?;
        }
    }
    Some(())
}

fn policies(mut value: Reader<'_>) -> Option<()> {
    let mut policies = value.read(SEQUENCE)?;
    let mut seen = Vec::new();
    while !policies.is_empty() {
        let identifier = policies.read(SEQUENCE)?.object_identifier()?;
        if seen.contains(&identifier) {
            return None;
        }
        seen.push(identifier);
    }
    Some(())
}

fn policy_mappings(mut value: Reader<'_>) -> Option<()> {
    let mut mappings = value.read(SEQUENCE)?;
    while !mappings.is_empty() {
        let mut mapping = mappings.read(SEQUENCE)?;
        mapping.read(OBJECT_IDENTIFIER)?;
        mapping.read(OBJECT_IDENTIFIER)?;
    }
    Some(())
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
    let mut usages = value.read(SEQUENCE)?;
    while !usages.is_empty() {
        usages.object_identifier()?;
    }
    Some(())
}

fn inhibit_any_policy(mut value: Reader<'_>) -> Option<()> {
    value.integer_64(INTEGER).map(drop)
}

fn information_access(mut value: Reader<'_>) -> Option<()> {
    let mut descriptions = value.read(SEQUENCE)?;
    while !descriptions.is_empty() {
        let mut description = descriptions.read(SEQUENCE)?;
        description.object_identifier()?;
        description.optional(URI)?;
    }
    Some(())
}
