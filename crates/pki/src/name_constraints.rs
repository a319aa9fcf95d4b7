//! The name constraints of a CA (RFC 5280 section 4.2.1.10).
//!
//! Serving certificates of this server have only DNS names and addresses. A constraint of DNS names covers the name and
//! everything below it. With a leading period, which the RFC has only for URIs but verifiers accept here too (errata
//! 5997), it covers only what is below.

use core::net::IpAddr;

use x509_parser::extensions::{GeneralName, GeneralSubtree, NameConstraints as Parsed};

/// The constraints that concern serving certificates.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct NameConstraints {
    permitted: Subtrees,
    excluded: Subtrees,
}

/// Subtrees of names and networks.
#[derive(Clone, Default, PartialEq, Eq)]
struct Subtrees {
    /// DNS names in lower case.
    names: Vec<String>,
    /// Address and mask, concatenated: 8 or 32 bytes.
    networks: Vec<Vec<u8>>,
}

impl NameConstraints {
    /// Reads the constraints. The flag is true if Go's verifier knows all of their kinds: otherwise it refuses a
    /// certificate with the extension marked critical.
    pub(super) fn read(parsed: &Parsed<'_>) -> (Self, bool) {
        let (permitted, permitted_known) = Subtrees::read(parsed.permitted_subtrees.as_deref());
        let (excluded, excluded_known) = Subtrees::read(parsed.excluded_subtrees.as_deref());
        (Self { permitted, excluded }, permitted_known && excluded_known)
    }

    /// Returns `true` if a certificate below may have this alternative name, which may be a wildcard.
    pub(super) fn allow_name(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let is_below = |names: &[String]| names.iter().any(|above| is_at_or_below(&name, above));
        let permitted = self.permitted.names.is_empty() || is_below(&self.permitted.names);
        // A wildcard covers every sibling name, so an excluded one too.
        let stands_for = |excluded: &String| {
            name.strip_prefix('*').is_some_and(|rest| {
                rest.len() > 1 && excluded.find('.').is_some_and(|dot| excluded[dot..] == *rest)
            })
        };
        let excluded = is_below(&self.excluded.names) || self.excluded.names.iter().any(stands_for);
        permitted && !excluded
    }

    /// Returns `true` if a certificate below may have this address.
    pub(super) fn allow_address(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[Vec<u8>]| networks.iter().any(|network| holds(network, address));
        let permitted = self.permitted.networks.is_empty() || is_in(&self.permitted.networks);
        permitted && !is_in(&self.excluded.networks)
    }
}

impl Subtrees {
    fn read(parsed: Option<&[GeneralSubtree<'_>]>) -> (Self, bool) {
        let mut read = Self::default();
        let mut all_known = true;
        for subtree in parsed.unwrap_or_default() {
            match subtree.base {
                GeneralName::DNSName(name) => read.names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(network) => read.networks.push(network.to_vec()),
                // No serving certificate of this server has such a name.
                GeneralName::RFC822Name(_) | GeneralName::URI(_) => {}
                _ => all_known = false,
            }
        }
        (read, all_known)
    }
}

/// Returns `true` if `name` is `above` or below it; both in lower case.
fn is_at_or_below(name: &str, above: &str) -> bool {
    let Some(rest) = name.strip_suffix(above) else { return false };
    above.is_empty() || above.starts_with('.') || rest.is_empty() || rest.ends_with('.')
}

fn holds(network: &[u8], address: IpAddr) -> bool {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (start, mask) = network.split_at(network.len() / 2);
    start.len() == bytes.len()
        && bytes
            .iter()
            .zip(start)
            .zip(mask)
            .all(|((byte, start), mask)| byte & mask == start & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraints(permitted: &[&str], excluded: &[&str]) -> NameConstraints {
        let subtrees = |names: &[&str]| Subtrees {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            networks: Vec::new(),
        };
        NameConstraints { permitted: subtrees(permitted), excluded: subtrees(excluded) }
    }

    #[test]
    fn names_are_allowed_by_whole_labels() {
        for (permitted, excluded, name, is_allowed) in [
            (&[][..], &[][..], "a.example.com", true),
            (&["example.com"], &[], "a.example.com", true),
            (&["example.com"], &[], "Example.COM", true),
            (&["example.com"], &[], "*.example.com", true),
            (&["example.com"], &[], "anexample.com", false),
            (&["example.com", "example.org"], &[], "a.example.org", true),
            (&[".example.com"], &[], "a.example.com", true),
            (&[".example.com"], &[], "example.com", false),
            (&[""], &[], "a.example.com", true),
            (&["example.com"], &["a.example.com"], "b.example.com", true),
            (&["example.com"], &["a.example.com"], "a.example.com", false),
            (&[], &["a.example.com"], "*.example.com", false),
            (&[], &["a.example.com"], "*.b.example.com", true),
            (&[], &[""], "a.example.com", false),
        ] {
            assert_eq!(
                constraints(permitted, excluded).allow_name(name),
                is_allowed,
                "{name}: {permitted:?} but {excluded:?}"
            );
        }
    }

    #[test]
    fn addresses_are_allowed_by_network_and_family() {
        let network = vec![192, 0, 2, 0, 255, 255, 255, 0];
        let mut constraints = constraints(&[], &[]);
        let allows = |constraints: &NameConstraints, address: &str| {
            constraints.allow_address(address.parse().unwrap())
        };
        assert!(allows(&constraints, "192.0.2.1"));
        constraints.permitted.networks.push(network.clone());
        assert!(allows(&constraints, "192.0.2.1"));
        assert!(!allows(&constraints, "198.51.100.1"));
        assert!(!allows(&constraints, "2001:db8::1"), "no network of its family is permitted");
        constraints.excluded.networks.push(network);
        assert!(!allows(&constraints, "192.0.2.1"));
    }
}
