//! Names by which machines know the server. A certificate for one, by a CA that machines trust, could impersonate the
//! server, so patterns in a policy do not cover them.
//!
//! They are the names in the serving certificate, of any issuer: every pointer config uses one of them. A wildcard in
//! it reserves all names that it covers.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use core::net::IpAddr;
use std::collections::BTreeSet;

use pki::{Certificate, Host};

/// Names that a policy must list literally.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReservedNames {
    hosts: BTreeSet<Host>,
    /// Parents of wildcards: `example.com` for `*.example.com`.
    wildcards: BTreeSet<String>,
}

impl ReservedNames {
    /// Names in a serving certificate, and in a list separated by commas.
    pub(super) fn of_server(leaf: &Certificate, reported: &str) -> Self {
        let names = leaf.dns_names().iter().map(String::as_str).chain(reported.split(','));
        let mut reserved: Self = names.collect();
        reserved.hosts.extend(leaf.hosts.iter().map(canonical));
        reserved
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.wildcards.is_empty()
    }

    /// Returns `true` if a name, or a name that a wildcard covers, is reserved, as a DNS name or as an address.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(address) = name.parse() {
            return self.has_address(address);
        }
        let parent = |name: &str| name.split_once('.').map(|(_, rest)| rest.to_owned());
        match name.strip_prefix("*.") {
            Some(rest) => {
                let below = |host: &Host| match host {
                    Host::Name(host) => parent(host).is_some_and(|it| it == rest),
                    Host::Address(_) => false,
                };
                self.wildcards.contains(rest) || self.hosts.iter().any(below)
            }
            None => {
                parent(&name).is_some_and(|rest| self.wildcards.contains(&rest))
                    || self.hosts.contains(&Host::Name(name))
            }
        }
    }

    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.hosts.contains(&Host::Address(address.to_canonical()))
    }
}

impl<'a> FromIterator<&'a str> for ReservedNames {
    /// Invalid names are skipped, because no certificate can have them.
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        let mut reserved = Self::default();
        for name in names {
            match name.trim().strip_prefix("*.") {
                Some(rest) => {
                    reserved.wildcards.insert(rest.trim_end_matches('.').to_ascii_lowercase());
                }
                None => reserved.hosts.extend(name.trim().parse::<Host>().as_ref().map(canonical)),
            }
        }
        reserved
    }
}

/// Verifiers treat an IPv4-mapped address as IPv4.
fn canonical(host: &Host) -> Host {
    match host {
        Host::Address(address) => Host::Address(address.to_canonical()),
        Host::Name(_) => host.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn names_are_those_of_the_serving_certificate_and_of_its_list() {
        let names = ["API.example.com", "*.wild.example.com", "::ffff:192.0.2.5"];
        let mut params = CertificateParams::new(names.map(str::to_owned)).unwrap();
        params.distinguished_name.push(DnType::CommonName, "no-name.example.com");
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let leaf = Certificate::from_der(signed.der()).unwrap();
        let reserved = ReservedNames::of_server(&leaf, "api-int.example.com, 2001:db8::7,?");
        for (name, is_reserved) in [
            ("api.example.com", true),
            ("API.Example.com.", true),
            ("api-int.example.com", true),
            ("no-name.example.com", false),
            ("a.api.example.com", false),
            ("*.example.com", true),
            ("*.api.example.com", false),
            ("example.com", false),
            ("wild.example.com", false),
            ("a.wild.example.com", true),
            ("*.wild.example.com", true),
            ("a.b.wild.example.com", false),
            ("*.a.wild.example.com", false),
            ("192.0.2.5", true),
            ("::ffff:192.0.2.5", true),
            ("2001:db8::7", true),
            ("2001:db8::8", false),
            ("", false),
        ] {
            assert_eq!(reserved.has_name(name), is_reserved, "{name}");
        }
        assert!(!reserved.is_empty());
        assert!([""; 0].into_iter().collect::<ReservedNames>().is_empty());
        assert!(["", "?"].into_iter().collect::<ReservedNames>().is_empty());
        assert!(!["*.example.com"].into_iter().collect::<ReservedNames>().is_empty());
    }
}
